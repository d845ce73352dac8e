# SPDX-License-Identifier: Apache-2.0
"""Steps: the messages between a leader and a follower, as values. Offsets are physical, ends exclusive."""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from typing import Final, Protocol, TypeAlias

from libs.formats.epoch import Epoch
from libs.requests.errors import DependencyUnavailable
from services.commitlog.engine.start.cut import Cut

TOPICS, TOPIC_BEGINS, QUEUE_OFFSETS = "topics", "topic_begins", "queue_offsets"
"""Names of the files that are sent beside the log."""
TOPIC_CHANGES = "topic_changes"
"""Name of changes of the topics that were sent before on the same stream, as the journal of topics has them."""

PROTOCOL_VERSION = 1
"""Version of the stream, which a follower sends with its hello."""
PROMISED_EPOCH = "hello.promised_epoch"
"""Field of StaleEpoch if the follower knows of a newer epoch than the leader's."""


@dataclass(frozen=True, slots=True)
class Hello:
    """First message of a follower: its identity and its state."""

    replica_id: str
    store_id: str
    """Id of its data directory."""
    history_id: str
    """Empty before its first epoch."""
    epochs: tuple[Epoch, ...]
    max_physical_offset: int
    flushed_physical_offset: int
    segment_size_bytes: int
    needs_queue_offsets: bool
    """Whether deleted records may have had queue offsets that the follower does not know."""
    window_bytes: int
    promised_epoch: int = 0
    """Newest epoch that the follower knows."""
    is_witness: bool = False
    """Whether the follower can promise not to stand, as `Beat.lease_ms` asks."""
    topic_journal_version: int = 0
    """Newest version of the journal of topics that it reads. With 0 it gets all topics after each change."""


@dataclass(frozen=True, slots=True)
class Handshake:
    """First message of the leader: the end of the common history, and the start of the chunks."""

    history_id: str
    epochs: tuple[Epoch, ...]
    common_end_physical_offset: int
    start_physical_offset: int
    min_physical_offset: int
    confirmed_physical_offset: int
    is_synchronous: bool = False
    """Whether the leader's readers see only bytes that all members of the in-sync set have flushed."""


@dataclass(frozen=True, slots=True)
class State:
    """A file of the leader's store, or changes of it, with one of the names above."""

    name: str
    content: bytes


@dataclass(frozen=True, slots=True)
class Chunk:
    """Bytes of one segment and one epoch, as stored."""

    start_physical_offset: int
    data: bytes | memoryview
    epoch: Epoch
    """Epoch of the bytes."""
    confirmed_physical_offset: int
    sync_to_physical_offset: int = 0
    """An append at the leader waits for an fsync up to this offset."""
    response: bytes = field(default=b"", repr=False, compare=False)
    """At a leader, the serialized ReplicateResponse, whose last bytes are the data."""

    @property
    def end_physical_offset(self) -> int:
        """Where the next chunk begins."""
        return self.start_physical_offset + len(self.data)


@dataclass(frozen=True, slots=True)
class Beat:
    """Periodic state of the leader."""

    epoch: int
    max_physical_offset: int
    confirmed_physical_offset: int
    min_physical_offset: int
    sync_to_physical_offset: int = 0
    is_in_sync: bool = False
    """Whether the follower is in the in-sync set."""
    replicated_physical_offset: int = 0
    """Offset up to which at least two members have flushed the log."""
    lease_ms: int = 0
    """Asks for a promise not to stand for this time. An acknowledgement that counts this step gives the promise."""


@dataclass(frozen=True, slots=True)
class Ack:
    """The follower's state: the end of the received bytes, and of the bytes that survive a power cut."""

    epoch: int
    received_physical_offset: int
    flushed_physical_offset: int
    step_count: int = 0
    """Number of processed steps after the handshake."""
    is_leaving: bool = False
    """Whether the follower stops in order, so that appends need not wait for it."""


Step: TypeAlias = Handshake | State | Chunk | Beat


class Replication(Protocol):
    """A stream at the follower. Iteration raises DependencyUnavailable if the leader is unreachable."""

    def __aiter__(self) -> AsyncIterator[Step]: ...

    async def acknowledge(self, ack: Ack) -> None:
        """Send the follower's state to the leader."""
        ...


@dataclass(frozen=True, slots=True)
class LeaderAt:
    """The leader of a follower, with the operations on it."""

    target: str
    """Address of the leader, host:port; empty if no leader is known."""
    open: Callable[[Hello], AbstractAsyncContextManager[Replication]]
    """Opens a stream."""
    cut: Callable[[Cut], None]
    """Requests a truncation of the log, which is then opened again."""
    move: Callable[[str], None]
    """Reports that another log leads, at this address."""
    close: Callable[[], Awaitable[None]]
    """Closes the connection."""
    stand_back: Callable[[int], None] | None = None
    """Forbids this member to stand for election, for milliseconds. None if it never stands."""


def _nobody(_: Hello) -> AbstractAsyncContextManager[Replication]:
    raise DependencyUnavailable("leader", "nobody is known to lead")


async def _nothing() -> None:
    pass


NOBODY: Final = LeaderAt("", _nobody, lambda _: None, lambda _: None, _nothing)
"""The leader of a log that knows no leader."""
