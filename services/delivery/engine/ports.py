# SPDX-License-Identifier: Apache-2.0
"""What Delivery needs of the log and of its index, as the engine sees them. `rpc/log` has them over gRPC."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol, TypeAlias

from libs.formats.records.delivery_record import Place, Policy


@dataclass(frozen=True, slots=True)
class Found:
    """A stored message. `message` is whatever the index answers with; the engine hands it on."""

    queue_offset: int
    key: int
    """Hash of its ordering key, 0 if it has none."""
    size_bytes: int
    message: Any
    origin_topic: str = ""
    """Of a dead letter: where it came from, if it tells."""
    store_time_ms: int = 0
    """Milliseconds since the epoch."""


@dataclass(frozen=True, slots=True)
class Pulled:
    """What a pull found. Messages that did not match are passed over."""

    found: list[Found]
    next_queue_offset: int
    min_queue_offset: int
    max_queue_offset: int


@dataclass(frozen=True, slots=True)
class Stored:
    """A record of the journal."""

    queue_offset: int
    body: bytes


@dataclass(frozen=True, slots=True)
class Written:
    """Where a record of the journal is."""

    queue_offset: int
    physical_offset: int
    store_time_ms: int = 0
    ahead_ms: int = 0
    """How far that is ahead of the clock of the log's machine."""


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """A message that was given back too often, and where it goes."""

    found: Found
    topic: str
    origin: Place
    attempt_count: int
    """How often it was delivered."""

    @property
    def size_bytes(self) -> int:
        """About as much as it adds to an append."""
        return self.found.size_bytes


@dataclass(frozen=True, slots=True)
class Replayed:
    """A dead letter that goes back to where it came from."""

    found: Found

    @property
    def topic(self) -> str:
        """Where it goes."""
        return self.found.origin_topic

    @property
    def size_bytes(self) -> int:
        """About as much as it adds to an append."""
        return self.found.size_bytes


@dataclass(frozen=True, slots=True)
class Copy:
    """A stored message that is appended once more, with what differs."""

    message: Any
    size_bytes: int
    topic: str
    queue_id: int | None
    """None: the log chooses one."""
    properties: Mapping[str, str] = field(default_factory=dict)
    """What it has besides."""
    without: frozenset[str] = frozenset()
    """Properties that it has no more."""
    committed_offset: int | None = None
    """Of a committed one: the physical offset of its half message."""


@dataclass(frozen=True, slots=True)
class Note:
    """A message that the service makes itself."""

    topic: str
    queue_id: int
    body: bytes
    properties: Mapping[str, str]

    @property
    def size_bytes(self) -> int:
        """About as much as it adds to an append."""
        return len(self.body) + 256


Letter: TypeAlias = DeadLetter | Replayed | Copy | Note
"""What is appended together with events."""


class Wanted(NamedTuple):
    """Which messages are read: both must hold. Equal ones ask for the same: `wanted_of` makes them so."""

    tags: str = "*"
    where: str = ""
    """A condition of their properties."""


class Log(Protocol):
    """The log that the journal is in."""

    async def next_number(self) -> int:
        """Return the number that the journal's next record has to have. Raises DependencyUnavailable and LogFollows."""
        ...

    async def write(self, number: int, body: bytes, letters: Sequence[Letter], *, is_safe: bool) -> Written:
        """Append a record to the journal, and these messages to their topics, all or nothing.

        `is_safe`: wait until it is as durable as the log promises, which covers all records before it, else for the
        log's memory. Raises DependencyUnavailable, LogFollows when the log does not lead, AppendRefused for messages
        that it never takes, and JournalLost when nobody knows whether it was appended, and when it was not because
        another process wrote the record of this number; as JournalNotDurable when it was, and a failover may undo it.
        """
        ...

    async def ahead_ms(self) -> int:
        """Return how far the log's time is ahead of its machine's clock. Raises DependencyUnavailable."""
        ...

    async def active_segment(self) -> int:
        """Return the physical offset of the segment that is written. Raises DependencyUnavailable.

        JournalLost where the log follows another one by now, so that nobody goes on by what it knows if it leads again.
        """
        ...

    async def queue_count(self, topic: str) -> int:
        """Return how many queues of a topic are read. Raises TopicNotFound and DependencyUnavailable."""
        ...

    async def refusal(self, topic: str) -> str:
        """Return why a topic takes no messages of clients, "" if it does. Raises DependencyUnavailable."""
        ...


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
