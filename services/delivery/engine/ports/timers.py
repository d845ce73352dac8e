# SPDX-License-Identifier: Apache-2.0
"""What delays need of the log and its index. `rpc/log` has it over gRPC."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol


class Entry(NamedTuple):
    """A record of the timer topic. In the order in which they are due."""

    due_ms: int
    queue_offset: int
    physical_offset: int
    is_by_clock: int = 1
    """Whether the time is one of the machine's clock, else of the log."""


@dataclass(frozen=True, slots=True)
class Timed:
    """A record of the timer topic."""

    queue_offset: int
    physical_offset: int
    size_bytes: int
    due_ms: int
    topic: str
    """Where the message goes. "" if the record does not say it."""
    queue_id: int
    unique_id: str
    """Property UNIQ_KEY, or the id of its first record."""
    deletes: str
    """Of a record that takes another one back: the unique id of that one."""
    is_cancelled: bool
    """Of such a record: whether it did so in time, as the journal says."""
    out: str
    """Property TIMER_OUT_MS, by which RocketMQ delivers; it keeps it when it appends a message again."""
    is_rolled_by_rocketmq: bool
    """Whether RocketMQ appended it in the place of another one."""
    message: Any
    """As the index and the log answer with it."""
    is_by_clock: bool = True
    """Whether `due_ms` is a time of the machine's clock. Else it is one of the log."""

    @property
    def entry(self) -> Entry:
        """When it is due."""
        return Entry(self.due_ms, self.queue_offset, self.physical_offset, int(self.is_by_clock))


@dataclass(frozen=True, slots=True)
class TimedRead:
    """Some records of the timer topic, where to go on, and which is the first that is left."""

    found: list[Timed]
    next_queue_offset: int
    min_queue_offset: int


class TimerIndex(Protocol):
    """The timer topic. All raise DependencyUnavailable."""

    async def waiting(self, queue_offset: int, *, wait_s: float) -> TimedRead:
        """Return records from a queue offset on, waiting for the first one."""
        ...

    async def read(self, physical_offsets: Sequence[int]) -> list[Timed | None]:
        """Return records of the log, some of the first ones. None for one that is gone."""
        ...

    async def by_id(self, topic: str, unique_id: str) -> tuple[list[Timed], int]:
        """Return the records for a topic with an id, the newest first, and up to where the log was indexed then."""
        ...

    async def is_delivered(self, timed: Timed) -> bool:
        """Return whether the topic of a message has it from RocketMQ, by its unique id and the time."""
        ...

    async def stored_before(self, time_ms: int) -> int:
        """Return the first queue offset that was stored at or after a time."""
        ...

    async def log_bounds(self) -> tuple[int, int, int]:
        """Return the first physical offset that is kept, the end of the log, and the size of a segment."""
        ...
