# SPDX-License-Identifier: Apache-2.0
"""Messages as the engine reads and appends them, and the filter of a consumer."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeAlias

from libs.formats.records.delivery_record import Place


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


JournaledMessage: TypeAlias = DeadLetter | Replayed | Copy | Note
"""What is appended together with events."""


class Wanted(NamedTuple):
    """Which messages are read: both must hold. Equal ones ask for the same: `wanted_of` makes them so."""

    tags: str = "*"
    where: str = ""
    """A condition of their properties."""
