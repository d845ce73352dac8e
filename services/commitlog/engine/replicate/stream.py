# SPDX-License-Identifier: Apache-2.0
"""ReplicaStream: the leader's stream to one follower, with the follower's acknowledgements.

Invariants: at most one window of bytes is in flight. A beat is sent every half second. Offsets and promises of the
follower come from its acknowledgements alone; acknowledgements after the end of the stream are ignored.
Callers: the loop that owns the log; Replicas creates it.
"""

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, Mapping
from dataclasses import dataclass

from libs.formats.config import topics_json
from libs.formats.state import topic_journal
from libs.formats.state.log_history import TopicBeginsFile
from libs.formats.state.replication import Member
from libs.machine.clock import Clock
from libs.machine.first_of import first_of
from libs.requests.errors import BadArgument
from libs.segments.chain import SegmentChain
from services.commitlog.engine.keep.epochs import EpochHistory
from services.commitlog.engine.replicate.catch_up import CatchUpPace
from services.commitlog.engine.replicate.chunks import ChunkReader
from services.commitlog.engine.replicate.in_sync_keeper import InSyncKeeper
from services.commitlog.engine.replicate.ledger import LeasePromises
from services.commitlog.engine.replicate.shared_chunks import SHARED_SIZE_BYTES_MIN, SharedChunks
from services.commitlog.engine.replicate.steps import (
    TOPIC_BEGINS,
    TOPIC_CHANGES,
    TOPICS,
    Ack,
    Beat,
    Chunk,
    Handshake,
    Hello,
    State,
    Step,
)
from services.commitlog.engine.write.marks import Marks
from services.commitlog.engine.write.topics import TopicRegistry
from services.commitlog.errors import StaleEpoch

BEAT_S = 0.5
"""Longest time between two beats."""
ASKED_COUNT_MAX = 16
"""Beats with unanswered requests for promises."""
CHUNK_SIZE_BYTES_WORTH = 1 << 20
"""Least free part of a window for which a chunk is sent."""
EARLY_S = 0.001
"""Timers may fire this much too early."""


@dataclass(slots=True, eq=False)
class Replica:
    """A connected follower as the leader sees it. Times in milliseconds."""

    replica_id: str
    connected_at_ms: int
    received_physical_offset: int
    flushed_physical_offset: int
    heard_at_ms: int
    had_all_at_ms: int
    """When it had last flushed the whole log."""
    start_physical_offset: int
    """Start of its stream."""
    is_in_sync: bool = False
    is_catching_up: bool = False
    """Whether it still reads old data."""


class ReplicaStream:
    """The stream to one follower: topics, then their changes, chunks while the window has room, beats otherwise."""

    def __init__(
        self,
        chain: SegmentChain,
        epochs: EpochHistory,
        marks: Marks,
        topics: TopicRegistry,
        in_sync: InSyncKeeper,
        pace: CatchUpPace,
        shared: SharedChunks,
        clock: Clock,
        hello: Hello,
        promises: LeasePromises | None,
        *,
        common_end_physical_offset: int,
    ) -> None:
        self.hello = hello
        self.member = Member(hello.replica_id, hello.store_id)
        self.start_physical_offset = at = max(common_end_physical_offset, chain.min_physical_offset)
        """Start of the chunks."""
        now_ms = clock.now_ms()
        self.replica = Replica(
            hello.replica_id,
            connected_at_ms=now_ms,
            received_physical_offset=at,
            flushed_physical_offset=min(common_end_physical_offset, hello.flushed_physical_offset),
            heard_at_ms=now_ms,
            had_all_at_ms=now_ms,
            start_physical_offset=at,
        )
        self._common_end = common_end_physical_offset
        self._chain = chain
        self._epochs = epochs
        self._epoch = epochs.number
        self._marks = marks
        self._topics = topics
        self._in_sync = in_sync
        self._pace = pace
        self._shared = shared
        self._clock = clock
        self._chunks = ChunkReader(chain, epochs, marks)
        self._sent_physical_offset = at
        self._sent_begins: Mapping[str, int] | None = None
        self._sent_change_count = 0
        """Change count of the topics that were sent last."""
        self._sent_step_count = 0
        self._topics_sent: deque[tuple[int, int]] = deque()
        """Unacknowledged steps with topics: step count and change count of each."""
        self._topics_change_count = 0
        """The follower has the topics as of this change count."""
        self._told_physical_offset = marks.visible.value
        self._told_sync_physical_offset = 0
        self._beat_at_s = _now_s()
        self._promises = promises if hello.is_witness else None
        self._asked: deque[tuple[int, float]] = deque(maxlen=ASKED_COUNT_MAX)
        """Steps that ask for a promise, with their monotonic time."""
        self._news = asyncio.Event()
        self._failure: Exception | None = None

    def end(self, reason: Exception | None = None) -> None:
        """End the stream. Without a reason the follower has opened a second stream. The first reason is kept."""
        if self._failure is not None:
            return  # by now the member may have another stream
        self._failure = reason or StaleEpoch(epoch=self._epoch, field="hello.replica_id")
        self._in_sync.leave(self.member)  # at once: a send under way may fail late
        self._news.set()

    def look(self) -> Replica:
        """Return the current state of the follower."""
        self.replica.is_in_sync = self.member in self._in_sync.set.others
        self.replica.is_catching_up = not self._chunks.is_new(self._sent_physical_offset)
        return self.replica

    @property
    def has_topics(self) -> bool:
        """Whether the follower has the current topics."""
        return self._sent_change_count == self._topics.change_count and not self._topics_sent

    def wake(self) -> None:
        """Check for data to send."""
        self._news.set()

    def acknowledge(self, ack: Ack) -> None:
        """Record an acknowledgement. Raises StaleEpoch for a newer epoch, and BadArgument.

        It is ignored after the end of the stream.
        """
        if self._failure is not None:
            return
        if ack.epoch > self._epoch:
            raise StaleEpoch(epoch=self._epoch, field="ack.epoch")
        received, flushed = ack.received_physical_offset, ack.flushed_physical_offset
        if not flushed <= received <= self._sent_physical_offset:
            reason = "what is flushed has arrived before, and what has arrived was sent before"
            raise BadArgument(
                reason, field="ack.received_physical_offset", value=received, limit=self._sent_physical_offset
            )
        replica, now_ms = self.replica, self._clock.now_ms()
        replica.received_physical_offset = max(replica.received_physical_offset, received)
        replica.flushed_physical_offset = max(replica.flushed_physical_offset, flushed)
        replica.heard_at_ms = now_ms
        while self._topics_sent and self._topics_sent[0][0] <= ack.step_count:
            self._topics_change_count = self._topics_sent.popleft()[1]
        while self._promises is not None and self._asked and self._asked[0][0] <= ack.step_count:
            self._promises.hear(self.member, self._asked.popleft()[1])
        if flushed >= self._marks.committed.value:
            replica.had_all_at_ms = now_ms
        self._in_sync.hear(self.member, replica.flushed_physical_offset, self._topics_change_count)
        if ack.is_leaving:
            self._in_sync.let_go(self.member)
        self._news.set()

    def sent(self, step: Step) -> Step:
        """Count a step that is sent now, and return it."""
        self._sent_step_count += 1
        if isinstance(step, Beat):
            self._beat_at_s = _now_s()
            if step.lease_ms:
                self._asked.append((self._sent_step_count, self._clock.monotonic_s()))
        if isinstance(step, State) and step.name in (TOPICS, TOPIC_CHANGES):
            self._topics_sent.append((self._sent_step_count, self._topics.change_count))
        return step

    def handshake(self) -> Handshake:
        """Return the first step."""
        return Handshake(
            history_id=self._epochs.history_id,
            epochs=tuple(self._epochs.epochs),
            common_end_physical_offset=self._common_end,
            start_physical_offset=self.start_physical_offset,
            min_physical_offset=self._chain.min_physical_offset,
            confirmed_physical_offset=self._marks.visible.value,
            is_synchronous=self._marks.is_replicated_at_once,
        )

    async def steps(self) -> AsyncGenerator[Step, None]:
        """See `Replicas.steps`."""
        while True:
            if self._failure is not None:
                raise self._failure
            if self._epochs.number != self._epoch:
                raise StaleEpoch(epoch=self._epochs.number)
            if self._sent_begins is not self._topics.begins.by_topic:
                self._sent_begins = self._topics.begins.by_topic
                yield State(TOPIC_BEGINS, TopicBeginsFile(begins=dict(self._sent_begins)).encode())
            elif self._sent_change_count != self._topics.change_count:  # after the begins, which its answer covers
                yield self._topics_state()
            elif self._has_chunk and not self._is_beat_late:
                yield await self._next_chunk()
            elif self._is_beat_late or self._has_news:
                beat = self._beat()
                self._told_physical_offset = beat.confirmed_physical_offset
                self._told_sync_physical_offset = beat.sync_to_physical_offset
                yield beat
            else:
                await self._wait()

    def _topics_state(self) -> State:
        """Return the changes since the topics that were sent last, or all topics."""
        before, self._sent_change_count = self._sent_change_count, self._topics.change_count
        changes = None
        if self.hello.topic_journal_version >= topic_journal.VERSION:
            changes = self._topics.recent.since(before)
        if changes is None:
            return State(TOPICS, topics_json.dumps(self._topics.file).encode())
        return State(TOPIC_CHANGES, changes)

    async def _next_chunk(self) -> Chunk:
        start, room_bytes = self._sent_physical_offset, self._room_bytes
        is_new, is_hurried = self._chunks.is_new(start), self.member in self._in_sync.set.hurried
        kept = self._shared.find(start) if is_new else None
        if kept is not None and self._fits(kept, room_bytes):
            room_bytes = len(kept.data)
            chunk = kept if self._tells_enough(kept, is_hurried=is_hurried) else None
        else:
            chunk = None
        if chunk is None:
            chunk = await self._chunks.read(start, room_bytes, is_hurried=is_hurried)
            if is_new:
                self._shared.keep(chunk)
            else:
                self._pace.take(len(chunk.data), _now_s())
        self._sent_physical_offset = chunk.end_physical_offset
        self._told_physical_offset = chunk.confirmed_physical_offset
        self._told_sync_physical_offset = chunk.sync_to_physical_offset
        return chunk

    def _fits(self, kept: Chunk, room_bytes: int) -> bool:
        """Return whether a kept chunk fits the window, and is as large as is worth it."""
        is_all = kept.end_physical_offset == self._marks.committed.value
        return len(kept.data) <= room_bytes and (is_all or len(kept.data) >= SHARED_SIZE_BYTES_MIN)

    def _tells_enough(self, kept: Chunk, *, is_hurried: bool) -> bool:
        """Return whether a kept chunk tells nothing older than this follower knows, and hurries it if it should."""
        sync_to, wanted = kept.sync_to_physical_offset, self._marks.replicated.wanted
        if is_hurried:
            is_asked_right = sync_to >= kept.end_physical_offset
        else:
            is_asked_right = self._told_sync_physical_offset <= sync_to <= wanted
        return is_asked_right and kept.confirmed_physical_offset >= self._told_physical_offset

    @property
    def _room_bytes(self) -> int:
        """Free bytes of the window."""
        return self.hello.window_bytes - (self._sent_physical_offset - self.replica.received_physical_offset)

    @property
    def _pause_s(self) -> float:
        """Seconds until old data may be read."""
        return 0.0 if self._chunks.is_new(self._sent_physical_offset) else self._pace.wait_s(_now_s())

    @property
    def _may_send(self) -> bool:
        """Whether the window has enough room for a chunk."""
        return self._room_bytes >= min(self.hello.window_bytes, CHUNK_SIZE_BYTES_WORTH) and self._pause_s == 0

    @property
    def _has_chunk(self) -> bool:
        return self._sent_physical_offset < self._marks.committed.value and self._may_send

    @property
    def _has_news(self) -> bool:
        """Whether offsets have changed that the follower needs."""
        marks = self._marks
        return (
            marks.visible.value > self._told_physical_offset
            or marks.replicated.wanted > self._told_sync_physical_offset
        )

    @property
    def _is_beat_late(self) -> bool:
        return self._beat_age_s >= BEAT_S - EARLY_S

    @property
    def _beat_age_s(self) -> float:
        return _now_s() - self._beat_at_s

    async def _wait(self) -> None:
        """Wait for data to send, or until a beat is due."""
        self._news.clear()
        marks = self._marks
        more = [marks.committed.reached(self._sent_physical_offset + 1)] if self._may_send else []
        visible = marks.visible.reached(self._told_physical_offset + 1)
        timeout_s = min(BEAT_S - self._beat_age_s, self._pause_s or BEAT_S)
        await first_of(self._news.wait(), visible, *more, timeout_s=timeout_s)

    def _beat(self) -> Beat:
        is_in_sync = self.look().is_in_sync
        # a follower with the whole log joins once it is flushed
        is_hurried = not is_in_sync or self.member in self._in_sync.set.hurried
        return Beat(
            epoch=self._epoch,
            max_physical_offset=self._marks.committed.value,
            confirmed_physical_offset=self._marks.visible.value,
            min_physical_offset=self._chain.min_physical_offset,
            sync_to_physical_offset=self._sent_physical_offset if is_hurried else self._marks.replicated.wanted,
            is_in_sync=is_in_sync,
            replicated_physical_offset=self._in_sync.shared_physical_offset,
            lease_ms=0 if self._promises is None else self._promises.lease_ms,
        )


def _now_s() -> float:
    return asyncio.get_running_loop().time()
