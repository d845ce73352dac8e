# SPDX-License-Identifier: Apache-2.0
"""What a leader and who follows it say to each other, as values. Offsets are physical, ends exclusive."""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import Final, Protocol, TypeAlias

from libs.formats.epoch import Epoch
from libs.requests.errors import DependencyUnavailable
from services.commitlog.engine.start.cut import Cut

TOPICS, TOPIC_BEGINS, QUEUE_OFFSETS = "topics", "topic_begins", "queue_offsets"
"""Names of what travels beside the log."""


@dataclass(frozen=True, slots=True)
class Hello:
    """Who follows, and what it has."""

    replica_id: str
    store_id: str
    """Of its data directory."""
    history_id: str
    """Empty before its first epoch."""
    epochs: tuple[Epoch, ...]
    max_physical_offset: int
    flushed_physical_offset: int
    segment_size_bytes: int
    needs_queue_offsets: bool
    """Whether records that are gone may have had queue offsets that nothing on its side tells of."""
    window_bytes: int
    promised_epoch: int = 0
    """Newest epoch that it knows of."""
    is_witness: bool = False
    """Whether it does what `Beat.lease_ms` asks for."""


@dataclass(frozen=True, slots=True)
class Handshake:
    """Where the two logs part, and where the chunks begin."""

    history_id: str
    epochs: tuple[Epoch, ...]
    common_end_physical_offset: int
    start_physical_offset: int
    min_physical_offset: int
    confirmed_physical_offset: int
    is_synchronous: bool = False
    """Whether the leader shows only what all members of the in-sync set have on their disks."""


@dataclass(frozen=True, slots=True)
class State:
    """A file of the leader's store, by one of the names above."""

    name: str
    content: bytes


@dataclass(frozen=True, slots=True)
class Chunk:
    """Bytes of one segment and one epoch, as stored."""

    start_physical_offset: int
    data: bytes | memoryview
    """A view of a segment is to be used before the loop runs again."""
    epoch: Epoch
    """That wrote them."""
    confirmed_physical_offset: int
    sync_to_physical_offset: int = 0
    """Somebody waits until the log is synced up to here."""

    @property
    def end_physical_offset(self) -> int:
        """Where the next chunk begins."""
        return self.start_physical_offset + len(self.data)


@dataclass(frozen=True, slots=True)
class Beat:
    """Where the leader is."""

    epoch: int
    max_physical_offset: int
    confirmed_physical_offset: int
    min_physical_offset: int
    sync_to_physical_offset: int = 0
    is_in_sync: bool = False
    """Whether the other side is in the in-sync set."""
    replicated_physical_offset: int = 0
    """Up to here at least two members have the log on their disks."""
    lease_ms: int = 0
    """Asks not to stand for election for so long. An acknowledgement that counts this step promises it."""


@dataclass(frozen=True, slots=True)
class Ack:
    """What there is on the side that follows: what has arrived, and what survives a power cut there."""

    epoch: int
    received_physical_offset: int
    flushed_physical_offset: int
    step_count: int = 0
    """Steps of the stream, after the handshake, that have been taken in."""
    is_leaving: bool = False
    """Whether it stops in order, so that nobody need wait for it any more."""


Step: TypeAlias = Handshake | State | Chunk | Beat


class Replication(Protocol):
    """A stream as the side sees it that follows. Iterating raises DependencyUnavailable when the leader is gone."""

    def __aiter__(self) -> AsyncIterator[Step]: ...

    async def acknowledge(self, ack: Ack) -> None:
        """Tell the leader what is here."""
        ...


@dataclass(frozen=True, slots=True)
class LeaderAt:
    """Whom a log follows."""

    target: str
    """Its address, host:port; empty if nobody is known to lead."""
    open: Callable[[Hello], AbstractAsyncContextManager[Replication]]
    """Opens a stream."""
    cut: Callable[[Cut], None]
    """Asks whoever runs the log to cut it, and to open it again."""
    move: Callable[[str], None]
    """Tells whoever runs the log that another one leads, at this address."""
    close: Callable[[], Awaitable[None]]
    """Lets go of the connection."""
    stand_back: Callable[[int], None] | None = None
    """Tells whoever runs the log not to stand for election for so many milliseconds. None: it never does."""


def _nobody(_: Hello) -> AbstractAsyncContextManager[Replication]:
    raise DependencyUnavailable("leader", "nobody is known to lead")


async def _nothing() -> None:
    pass


NOBODY: Final = LeaderAt("", _nobody, lambda _: None, lambda _: None, _nothing)
"""Whom a log follows that does not know who leads."""
