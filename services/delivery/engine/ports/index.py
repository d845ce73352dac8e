# SPDX-License-Identifier: Apache-2.0
"""The index of the log, as the engine sees it; `rpc/log` implements it over gRPC."""

from collections.abc import Mapping, Sequence
from typing import Protocol

from libs.formats.records.delivery_record import Place, Policy
from services.delivery.engine.ports.messages import Found, Pulled, Stored, Wanted


class Index(Protocol):
    """What was stored, by queue offset. All raise DependencyUnavailable."""

    async def pull(
        self,
        topic: str,
        queue_id: int,
        queue_offset: int,
        *,
        wanted: Wanted,
        count: int,
        size_bytes: int,
        wait_s: float,
    ) -> Pulled:
        """Return messages from a queue offset on, waiting for the first one. Outside of it: goes to its border."""
        ...

    def passes(self, found: Found, wanted: Wanted) -> bool:
        """Return whether a message that was read passes a filter, as a pull would say. Without a call."""
        ...

    async def journal(self, queue_offset: int, *, wait_s: float) -> tuple[list[Stored], int]:
        """Return records of the journal from here on, and where to go on."""
        ...

    async def queue_end(self, topic: str, queue_id: int, *, wait_s: float) -> int:
        """Return the end of a queue, waiting for its first message."""
        ...

    async def bounds(self, topic: str) -> Mapping[int, tuple[int, int]]:
        """Return the first queue offset and the end of each queue of a topic that has messages."""
        ...

    async def offset_at(self, topic: str, queue_id: int, time_ms: int) -> int:
        """Return the first queue offset stored at or after a time."""
        ...

    async def size_bytes(self, topic: str, queue_id: int, start: int, others: Sequence[int]) -> int:
        """Return the bytes of the records from a queue offset to the end, and of others before it."""
        ...

    async def stored_offset(self, group: str, topic: str, queue_id: int) -> int | None:
        """Return what a group committed of a queue, None if it committed nothing."""
        ...

    async def stored_offsets(self) -> Mapping[Place, int]:
        """Return what all groups committed."""
        ...

    async def stored_policy(self, group: str) -> Policy | None:
        """Return how RocketMQ let a group retry, None if nobody knows."""
        ...

    async def store_policies(self, policies: Mapping[str, Policy | None]) -> None:
        """Keep policies for RocketMQ. None: there is no such group any more."""
        ...

    async def store_offsets(self, group: str, offsets: Mapping[tuple[str, int], int]) -> None:
        """Commit offsets of a group."""
        ...
