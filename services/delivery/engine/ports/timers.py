# SPDX-License-Identifier: Apache-2.0
"""TimerIndex: the timer topic in the log and its index, as the engine sees it; `rpc/log` implements it over gRPC."""

from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol

from msgspec import Struct

from services.delivery.engine.ports.messages import Read


class Entry(NamedTuple):
    """The time and place of a record of the timer topic. Entries compare by due time."""

    due_ms: int
    queue_offset: int
    physical_offset: int
    is_by_clock: int = 1
    """Whether `due_ms` is a time of the machine's clock, otherwise of the log's time."""


class Timed(Struct, frozen=True):
    """A record of the timer topic."""

    queue_offset: int
    physical_offset: int
    size_bytes: int
    due_ms: int
    topic: str
    """The topic of the message, "" if the record does not name it."""
    queue_id: int
    unique_id: str
    """Property UNIQ_KEY, or the id of its first record."""
    deletes: str
    """For a record that cancels another record: the unique id of that record."""
    is_cancelled: bool
    """For such a record: whether it cancelled in time, as the journal says."""
    out: str
    """Property TIMER_OUT_MS, by which RocketMQ delivers. RocketMQ keeps it when it appends a message again."""
    is_rolled_by_rocketmq: bool
    """Whether RocketMQ appended it in the place of another record."""
    message: Any
    """The message in the own type of the index and the log."""
    is_by_clock: bool = True
    """Whether `due_ms` is a time of the machine's clock, otherwise of the log's time."""

    @property
    def entry(self) -> Entry:
        """The entry for the schedule."""
        return Entry(self.due_ms, self.queue_offset, self.physical_offset, int(self.is_by_clock))


class TimerIndex(Protocol):
    """The timer topic. All calls raise DependencyUnavailable."""

    async def waiting(self, queue_offset: int, *, wait_s: float) -> Read[Timed]:
        """Return records from a queue offset on; wait for the first."""
        ...

    async def read(self, physical_offsets: Sequence[int]) -> list[Timed | None]:
        """Return the records at the first of these offsets, as many as fit. None for a record that is gone."""
        ...

    async def by_id(self, topic: str, unique_id: str) -> tuple[list[Timed], int]:
        """Return a topic's records with an id, the newest first, and the offset up to which the log was indexed."""
        ...

    async def is_delivered(self, timed: Timed) -> bool:
        """Return whether RocketMQ has delivered a message to its topic, by its unique id and the time."""
        ...

    async def stored_before(self, time_ms: int) -> int:
        """Return the first queue offset that was stored at or after a time."""
        ...

    async def log_bounds(self) -> tuple[int, int, int]:
        """Return the first physical offset that is kept, the end of the log, and the size of a segment."""
        ...
