# SPDX-License-Identifier: Apache-2.0
"""Shards: the Deliveries of the other shards, as the engine sees them; `rpc/shard_client` implements it over gRPC."""

from collections.abc import Sequence
from typing import Protocol

from services.delivery.engine.ports.messages import SealedQueue


class Shards(Protocol):
    """The Deliveries of the shards, by the names of the shards."""

    async def sealed_queues(
        self, shard: str, group: str, topic: str, queue_ids: Sequence[int]
    ) -> Sequence[SealedQueue]:
        """Return how far a group is in sealed queues at a shard. Raises DependencyUnavailable."""
        ...
