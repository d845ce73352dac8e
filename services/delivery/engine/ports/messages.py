# SPDX-License-Identifier: Apache-2.0
"""Messages as the engine reads and appends them, and the filter of a consumer."""

from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import Any, Generic, NamedTuple, TypeAlias, TypeVar

import msgspec
from msgspec import Struct, field

from libs.formats.records.delivery_record import Place

T = TypeVar("T")


class Found(msgspec.Struct, frozen=True, gc=False):
    """A stored message. `message` has the index's own type; the engine passes it on."""

    queue_offset: int
    key: int
    """Hash of its ordering key, 0 if it has none."""
    size_bytes: int
    message: Any
    origin_topic: str = ""
    """For a dead letter: its original topic, if its properties tell."""
    store_time_ms: int = 0
    """Milliseconds since the epoch."""


class Read(msgspec.Struct, Generic[T], frozen=True):
    """The records that a pull of a queue found, the queue offset of the next pull, and the borders of the queue.

    Records that did not match, or that can't be decoded, are left out.
    """

    found: Sequence[T]
    next_queue_offset: int
    min_queue_offset: int
    max_queue_offset: int


Pulled: TypeAlias = Read[Found]
"""The messages that a pull found."""


class SealedStage(StrEnum):
    """How far a group is in a sealed queue. The API has the same names."""

    NOT_SEALED = "NOT_SEALED"
    NOT_INDEXED = "NOT_INDEXED"
    NO_POSITION = "NO_POSITION"
    UNSETTLED = "UNSETTLED"
    SETTLED = "SETTLED"


class SealedQueue(NamedTuple):
    """How far a group is in a queue, and how many of its messages are not settled."""

    queue_id: int
    stage: SealedStage
    unsettled_count: int = 0


class Stored(Struct, frozen=True):
    """A record of the journal."""

    queue_offset: int
    body: bytes


class Written(Struct, frozen=True):
    """The place and the store time of a record of the journal."""

    queue_offset: int
    physical_offset: int
    store_time_ms: int = 0
    ahead_ms: int = 0
    """How far the store time is ahead of the clock of the log's machine."""


class DeadLetter(Struct, frozen=True):
    """A message to write to the dead letters, and their topic."""

    found: Found
    topic: str
    origin: Place
    attempt_count: int
    """How often it was delivered."""

    @property
    def size_bytes(self) -> int:
        """The approximate size that it adds to an append."""
        return self.found.size_bytes


class Replayed(Struct, frozen=True):
    """A dead letter to append to its original topic again."""

    found: Found

    @property
    def topic(self) -> str:
        """The original topic."""
        return self.found.origin_topic

    @property
    def size_bytes(self) -> int:
        """The approximate size that it adds to an append."""
        return self.found.size_bytes


class Copy(Struct, frozen=True):
    """A stored message that is appended once more, with changed properties."""

    message: Any
    size_bytes: int
    topic: str
    queue_id: int | None
    """None: the log chooses the queue."""
    properties: Mapping[str, str] = field(default_factory=dict)
    """Properties to add."""
    without: frozenset[str] = frozenset()
    """Properties to remove."""
    committed_offset: int | None = None
    """For a committed message: the physical offset of its half message."""


class Note(Struct, frozen=True):
    """A message that Delivery makes itself."""

    topic: str
    queue_id: int
    body: bytes
    properties: Mapping[str, str]

    @property
    def size_bytes(self) -> int:
        """The approximate size that it adds to an append."""
        return len(self.body) + 256


JournaledMessage: TypeAlias = DeadLetter | Replayed | Copy | Note
"""A message that is appended together with events."""


class Part(NamedTuple):
    """Some entries of a queue: those from `start` on, and others before it. `oldest` is the first of them."""

    topic: str
    queue_id: int
    start: int
    others: Sequence[int]
    oldest: int


class Measure(NamedTuple):
    """The bytes of the records of a part, and when its oldest message was stored, None if it is damaged or gone."""

    size_bytes: int
    store_time_ms: int | None


class Wanted(NamedTuple):
    """The filter of a consumer: tags and a condition; both must hold.

    Filters that let through the same tags and have the same condition are equal: `wanted_of` makes them so.
    """

    tags: str = "*"
    where: str = ""
    """A condition on the properties of messages."""
