# SPDX-License-Identifier: Apache-2.0
"""Follower: replicates the leader's log into this log.

The follower sends its table of epochs and gets the end of the common history. If its own log is longer, it has bytes
that the leader does not have: it truncates them if a newer leader replaced them, otherwise it stops with an error. Then
it checks each chunk and appends it. It acknowledges whenever more bytes have arrived or are flushed.
Invariants: readers see only bytes that are flushed here and visible at the leader; they stay visible while the leader
is away. Epochs, topics and queue offsets are the leader's. The follower stores its promise to the leader's epoch before
it truncates or acknowledges, and follows no older leader afterwards.
Callers: the loop that owns the log. RocketMQ's counterpart is HAClient.
"""

import asyncio
import contextlib
import enum
import logging
from dataclasses import dataclass, field

from libs.formats.config import topics_json
from libs.formats.errors import FormatError, NewerVersion
from libs.formats.state import topic_journal
from libs.formats.state.log_history import TopicBeginsFile
from libs.formats.state.queue_snapshot import QueueSnapshot
from libs.machine.clock import Clock
from libs.machine.first_of import first_of
from libs.machine.loop import SupervisedLoop
from libs.requests.errors import DependencyUnavailable, ServiceError
from libs.segments.chain import SegmentChain
from libs.segments.errors import StoreFull
from services.commitlog.config import CommitLogConfig
from services.commitlog.engine.keep.checkpoint import CheckpointKeeper
from services.commitlog.engine.keep.epochs import EpochHistory
from services.commitlog.engine.keep.identity import Identity
from services.commitlog.engine.keep.small_files import SmallFiles
from services.commitlog.engine.replicate.applier import Applier
from services.commitlog.engine.replicate.steps import (
    NOBODY,
    QUEUE_OFFSETS,
    TOPIC_BEGINS,
    TOPIC_CHANGES,
    TOPICS,
    Ack,
    Beat,
    Chunk,
    Handshake,
    Hello,
    LeaderAt,
    Replication,
    State,
    Step,
)
from services.commitlog.engine.start.cut import Cut
from services.commitlog.engine.write.gate import Reason, WriteGate
from services.commitlog.engine.write.marks import Marks
from services.commitlog.engine.write.state import LogState
from services.commitlog.engine.write.topics import TopicRegistry, TopicsDiffer
from services.commitlog.errors import HistoryDiffers, NotLeader, StaleEpoch

RETRY_MS = 100
LEAVE_S = 1.0
"""Longest wait for the leader to continue without this follower: two beats."""

_log = logging.getLogger(__name__)


class CannotFollow(Exception):
    """Base: the leader's log does not continue this log."""


class Diverged(CannotFollow):
    """This log has bytes that its leader does not have; `why` tells why they are not truncated."""

    def __init__(self, *, end_physical_offset: int, common_end_physical_offset: int, why: str) -> None:
        super().__init__(
            f"the log goes on to {end_physical_offset} with bytes of its own, its leader has the same up to "
            f"{common_end_physical_offset}: {why}"
        )


class LeftBehind(CannotFollow):
    """The leader has deleted the next bytes."""

    def __init__(self, *, end_physical_offset: int, min_physical_offset: int) -> None:
        super().__init__(f"the log ends at {end_physical_offset}, its leader keeps it from {min_physical_offset} on")


class OldLeader(CannotFollow):
    """A newer leader is known."""

    def __init__(self, *, epoch: int, promised_epoch: int) -> None:
        super().__init__(f"the leader is in epoch {epoch}, and this log knows of epoch {promised_epoch}")


class FollowingState(enum.Enum):
    """State of a follower."""

    CONNECTING = enum.auto()
    """Opens a stream to the leader."""
    CATCHING_UP = enum.auto()
    """Receives chunks; the leader has more."""
    FOLLOWING = enum.auto()
    """Has the whole log as of the leader's last beat."""
    OUT = enum.auto()
    """Cannot follow this leader; `last_error` has the reason. A retry alone does not help."""


@dataclass(slots=True, eq=False)
class Follower:
    """The follower side of one log: opens one stream after the other."""

    leader: LeaderAt
    _applier: Applier
    _chain: SegmentChain
    _state: LogState
    _marks: Marks
    _epochs: EpochHistory
    _topics: TopicRegistry
    _gate: WriteGate
    _checkpoint: CheckpointKeeper
    _identity: Identity
    _small_files: SmallFiles
    _clock: Clock
    _config: CommitLogConfig
    state: FollowingState = FollowingState.CONNECTING
    leader_max_physical_offset: int = 0
    """End of the leader's log as of the last step."""
    heard_at_ms: int | None = None
    is_in_sync: bool = False
    """Whether this log is in the in-sync set as of the last beat."""
    loop: SupervisedLoop = field(init=False)
    _told_physical_offset: int = 0
    """End of the bytes that are visible at the leader."""
    _is_leader_synchronous: bool = False
    """Whether bytes that are visible at the leader are replicated."""
    _step_count: int = 0
    """Number of processed steps of this stream."""
    _news: asyncio.Event = field(default_factory=asyncio.Event)
    _turn: asyncio.Timeout | None = None
    """Ends the open stream."""
    _no_stream: asyncio.Event = field(default_factory=asyncio.Event)
    """Set while no stream is open."""
    _is_turning: bool = False
    _is_leaving: bool = False
    _let_go: asyncio.Event = field(default_factory=asyncio.Event)
    """Set while this log is outside the in-sync set, as of the last beat."""

    def __post_init__(self) -> None:
        self._no_stream.set()
        self._gate.hand_over(self.leader.target)
        self.loop = SupervisedLoop(
            "replication",
            self._follow,
            interval_ms=RETRY_MS,
            backoff_ms_max=self._config.reconnect_ms_max,
            expected_errors=(ServiceError, StoreFull, CannotFollow),
        )

    @property
    def last_error(self) -> str:
        """Reason of the missing stream, empty while a stream is open."""
        if self.is_connected:
            return ""
        return str(self.loop.last_error or "") if self.leader.target else "nobody is known to lead"

    @property
    def is_connected(self) -> bool:
        """Whether a stream from the leader is open."""
        return self.state in (FollowingState.CATCHING_UP, FollowingState.FOLLOWING)

    @property
    def lag_bytes(self) -> int:
        """Lag behind the leader in bytes, as of the last step."""
        return max(self.leader_max_physical_offset - self._marks.wrote.value, 0)

    async def turn_to(self, leader: LeaderAt) -> None:
        """Follow another leader. After the return the former leader gets no more messages."""
        former, self.leader = self.leader, leader
        self._gate.hand_over(leader.target)
        self._is_turning = True
        if not self._no_stream.is_set():
            assert self._turn is not None
            self._turn.reschedule(0)
        await self._no_stream.wait()
        self._is_turning = False
        self.loop.hurry()
        await former.close()

    async def take_leave(self) -> None:
        """Announce an orderly stop to the leader, and wait briefly until it continues without this follower."""
        if not self.is_connected:
            return
        self._is_leaving = True
        self._let_go.clear()  # the last beat may be older than the set
        self._news.set()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(LEAVE_S):
                await self._let_go.wait()

    async def _follow(self) -> None:
        """Follow one stream until it ends."""
        store_id = await self._identity.claim()
        if self._is_turning:
            return
        self._no_stream.clear()
        try:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(None) as self._turn:
                    await self._follow_leader(store_id)
        finally:
            self._no_stream.set()

    async def _follow_leader(self, store_id: str) -> None:
        self.state = FollowingState.CONNECTING
        if self.leader is NOBODY:
            return
        try:
            async with self.leader.open(self._hello(store_id)) as stream:
                await self._follow_stream(stream)
        except (CannotFollow, HistoryDiffers):
            self.state = FollowingState.OUT
            raise
        except StaleEpoch as error:
            self.state = FollowingState.OUT
            raise OldLeader(epoch=error.epoch, promised_epoch=self._identity.promised_epoch) from error
        except NotLeader as error:
            self.state = FollowingState.CONNECTING
            self.leader.move(error.leader)
            raise
        except BaseException:
            self.state = FollowingState.CONNECTING
            raise
        finally:
            self._know_in_sync(is_in_sync=False)

    async def _follow_stream(self, stream: Replication) -> None:
        steps = aiter(stream)
        handshake = await anext(steps)
        if not isinstance(handshake, Handshake):
            raise DependencyUnavailable("leader", "its first step is no handshake")
        await self._begin(handshake)
        acknowledging = asyncio.create_task(self._acknowledge(stream), name="acknowledge to the leader")
        try:
            async for step in steps:
                await self._take(step)
                if acknowledging.done():
                    acknowledging.result()
        finally:
            acknowledging.cancel()
            with contextlib.suppress(asyncio.CancelledError, ServiceError):
                await acknowledging

    def _hello(self, store_id: str) -> Hello:
        return Hello(
            replica_id=self._config.replica_id,
            store_id=store_id,
            history_id=self._epochs.history_id,
            epochs=tuple(self._epochs.epochs),
            max_physical_offset=self._chain.max_physical_offset,
            flushed_physical_offset=self._marks.flushed.value,
            segment_size_bytes=self._chain.segment_size_bytes,
            needs_queue_offsets=not self._chain.segments or self._gate.holds(Reason.QUEUE_OFFSETS_UNKNOWN),
            window_bytes=self._config.replica_window_bytes,
            promised_epoch=self._identity.promised_epoch,
            is_witness=self.leader.stand_back is not None,
            topic_journal_version=topic_journal.VERSION,
        )

    async def _begin(self, handshake: Handshake) -> None:
        """Agree with the leader on the offset at which this log continues.

        Raises HistoryDiffers, OldLeader, Diverged and LeftBehind.
        """
        mine, end, start = self._epochs, self._chain.max_physical_offset, handshake.start_physical_offset
        epoch, promised = handshake.epochs[-1].number, self._identity.promised_epoch
        if epoch < promised:
            raise OldLeader(epoch=epoch, promised_epoch=promised)
        if mine.history_id != handshake.history_id and (mine.history_id or self._chain.segments):
            raise HistoryDiffers(mine=mine.history_id, theirs=handshake.history_id)
        if self._chain.segments and start > end:
            raise LeftBehind(end_physical_offset=end, min_physical_offset=handshake.min_physical_offset)
        await self._identity.promise(epoch)
        if not handshake.is_synchronous:
            await self._identity.note_asynchronous()
        if handshake.common_end_physical_offset < end:
            raise self._diverged(handshake, end)
        begun = [epoch for epoch in handshake.epochs if epoch.start_physical_offset <= start] or list(
            handshake.epochs[:1]
        )
        if begun != mine.epochs or mine.history_id != handshake.history_id:
            await self._small_files.write(lambda: mine.adopt(handshake.history_id, begun), with_ballast=True)
        if not self._chain.segments and start > 0:
            await self._checkpoint.save_start(start)
        self._applier.begin(start, handshake.epochs)
        self._step_count = 0
        self._told_physical_offset = handshake.confirmed_physical_offset
        self._is_leader_synchronous = handshake.is_synchronous
        self.state = FollowingState.CATCHING_UP
        _log.info("the log follows %s from %d on", self.leader.target, start)

    def _diverged(self, handshake: Handshake, end: int) -> Diverged:
        """Request a truncation if the leader is newer and the bytes can be kept aside. Returns the error to raise."""
        common_end, limit = handshake.common_end_physical_offset, self._config.cut_bytes_max
        first = self._chain.min_physical_offset
        if not self._epochs.number < handshake.epochs[-1].number:
            why = "the leader has no newer epoch, so nothing says that these were given up"
        elif end - common_end > limit:
            why = f"these are more than cut_bytes_max, {limit}"
        elif common_end < (replicated := self._identity.replicated_physical_offset):
            why = f"other members had the same as this log up to {replicated}, so it is the leader that lacks something"
        elif common_end <= first and first > 0:  # a log that begins at 0 may be cut whole
            why = "these are all that it has"
        else:
            why = "the log is cut there"
            self.leader.cut(Cut(common_end, handshake.epochs))
        return Diverged(end_physical_offset=end, common_end_physical_offset=common_end, why=why)

    async def _take(self, step: Step) -> None:
        """Process a step."""
        self.heard_at_ms = self._clock.now_ms()
        match step:
            case State(name, content):
                await self._restore(name, content)
            case Chunk():
                await self._applier.apply(step)
                self._hear(step.end_physical_offset, step.confirmed_physical_offset)
                self._sync_to(step.sync_to_physical_offset)
                self.loop.succeeded()
            case Beat():
                if step.lease_ms and self.leader.stand_back is not None:
                    self.leader.stand_back(step.lease_ms)
                self._sync_to(step.sync_to_physical_offset)
                self._know_in_sync(is_in_sync=step.is_in_sync)
                self._identity.note_replicated(min(step.replicated_physical_offset, self._marks.flushed.value))
                self._hear(step.max_physical_offset, step.confirmed_physical_offset)
                has_all = self._applier.received_physical_offset >= step.max_physical_offset
                self.state = FollowingState.FOLLOWING if has_all else FollowingState.CATCHING_UP
                if has_all:  # not earlier: a chunk that always fails also follows beats
                    self.loop.succeeded()
            case Handshake():
                raise DependencyUnavailable("leader", "a second handshake")
        self._step_count += 1
        self._news.set()

    def _know_in_sync(self, *, is_in_sync: bool) -> None:
        self.is_in_sync = is_in_sync
        (self._let_go.clear if is_in_sync else self._let_go.set)()

    def _hear(self, max_physical_offset: int, confirmed_physical_offset: int) -> None:
        self.leader_max_physical_offset = max(self.leader_max_physical_offset, max_physical_offset)
        self._told_physical_offset = confirmed_physical_offset
        self._show()

    def _sync_to(self, physical_offset: int) -> None:
        """Request an fsync up to this offset: an append at the leader waits for it."""
        self._marks.flushed.hurry(min(physical_offset, self._marks.wrote.value))

    def _show(self) -> None:
        """Show readers the bytes that are flushed here and visible at the leader, also if this log leads later."""
        shown = min(self._told_physical_offset, self._marks.flushed.value)
        self._marks.visible.advance(shown)
        if self._is_leader_synchronous:
            self._identity.note_replicated(shown)

    async def _restore(self, name: str, content: bytes) -> None:
        """Replace the own state by the leader's, or change it likewise.

        Raises DependencyUnavailable if it cannot be decoded, or continues other topics: the next stream has all topics.
        """
        try:
            if name == TOPICS:
                await self._topics.replace(topics_json.loads(content.decode()))
            elif name == TOPIC_CHANGES:
                await self._topics.follow(topic_journal.merged(topic_journal.decode_whole(content)))
            elif name == TOPIC_BEGINS:
                await self._topics.replace_begins(TopicBeginsFile.decode(content).begins)
            elif name == QUEUE_OFFSETS:
                self._state.restore(QueueSnapshot.decode(content))
                self._gate.put(Reason.QUEUE_OFFSETS_UNKNOWN, holds=False)
        except (FormatError, NewerVersion, UnicodeDecodeError) as error:
            raise DependencyUnavailable("leader", f"its {name} can't be read: {error}") from error
        except TopicsDiffer as error:
            raise DependencyUnavailable("leader", str(error)) from error

    async def _acknowledge(self, stream: Replication) -> None:
        """Acknowledge to the leader whenever more bytes have arrived or are flushed."""
        while True:
            self._news.clear()
            flushed = self._marks.flushed.value
            received = self._applier.received_physical_offset
            await stream.acknowledge(Ack(self._epochs.number, received, flushed, self._step_count, self._is_leaving))
            await first_of(self._news.wait(), self._marks.flushed.reached(flushed + 1))
            self._show()
