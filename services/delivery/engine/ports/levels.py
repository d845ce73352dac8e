# SPDX-License-Identifier: Apache-2.0
"""LevelIndex: the schedule topic, where messages with a delay level wait; `rpc/log` implements it over gRPC."""

from typing import Any, Protocol

from msgspec import Struct

from services.delivery.engine.ports.messages import Read


class Delayed(Struct, frozen=True):
    """A record of the schedule topic."""

    queue_offset: int
    size_bytes: int
    store_time_ms: int
    """Milliseconds since the epoch. The delay begins at this time."""
    topic: str
    """The topic of the message, "" if the record does not name it."""
    queue_id: int | None
    """The queue of the message in its topic, None if the record does not name it."""
    message: Any
    """The message in the own type of the index and the log."""


class LevelIndex(Protocol):
    """The schedule topic. All calls raise DependencyUnavailable."""

    async def delayed(self, queue_id: int, queue_offset: int, *, wait_s: float) -> Read[Delayed]:
        """Return records of a level from a queue offset on; wait for the first. The level is `queue_id` plus 1."""
        ...
