# SPDX-License-Identifier: Apache-2.0
"""LevelIndex: the schedule topic, where messages with a delay level wait; `rpc/log` implements it over gRPC."""

from dataclasses import dataclass
from typing import Any, Protocol


@dataclass(frozen=True, slots=True)
class Delayed:
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


@dataclass(frozen=True, slots=True)
class DelayedRead:
    """Records of a level, the queue offset of the next read, and the borders of the level's queue."""

    found: list[Delayed]
    next_queue_offset: int
    min_queue_offset: int
    max_queue_offset: int


class LevelIndex(Protocol):
    """The schedule topic. All calls raise DependencyUnavailable."""

    async def delayed(self, queue_id: int, queue_offset: int, *, wait_s: float) -> DelayedRead:
        """Return records of a level from a queue offset on; wait for the first. The level is `queue_id` plus 1."""
        ...
