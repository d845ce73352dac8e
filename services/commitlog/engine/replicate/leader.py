# SPDX-License-Identifier: Apache-2.0
"""Replicas: who follows this log, each with a stream: what is sent, and what the other side says that it has.

Invariants: a stream begins where the histories part, so that nobody gets other bytes than those that follow his own;
not more than his window is under way to anybody, so that a slow one costs that much memory and nothing else; the log
keeps no place for anybody: what he has, he says himself. A second stream under a name ends the first one, and a new
epoch ends all.
Callers: the loop that owns the log. RocketMQ's counterpart is HAConnection.
"""

import asyncio
import logging
from collections.abc import AsyncGenerator
from dataclasses import dataclass, field, replace

from libs.formats import store_layout
from libs.formats.config import topics_json
from libs.formats.config.topics_json import TopicsFile
from libs.formats.state.replication import Member
from libs.log.common_history import common_end
from libs.machine.clock import Clock
from libs.machine.first_of import first_of
from libs.machine.fs import Fs
from libs.requests.errors import BadArgument, Stopping
from libs.segments.chain import SegmentChain
from services.commitlog.config import CommitLogConfig
from services.commitlog.engine.keep.epochs import EpochHistory
from services.commitlog.engine.keep.queue_snapshot import SnapshotKeeper
from services.commitlog.engine.replicate.chunks import ChunkReader
from services.commitlog.engine.replicate.in_sync_keeper import InSyncKeeper
from services.commitlog.engine.replicate.steps import QUEUE_OFFSETS, TOPICS, Ack, Beat, Handshake, Hello, State, Step
from services.commitlog.engine.write.gate import WriteGate
from services.commitlog.engine.write.marks import Marks
from services.commitlog.engine.write.topics import TopicRegistry
from services.commitlog.errors import HistoryDiffers, QueueOffsetsUnknown, StaleEpoch

BEAT_S = 0.5
"""Longest silence on a stream."""
CHUNK_SIZE_BYTES_WORTH = 1 << 20
"""For less room in a window than this no step is made."""
EARLY_S = 0.001
"""A timer may ring so much too early."""
PROMISED_EPOCH = "hello.promised_epoch"

_log = logging.getLogger(__name__)


@dataclass(slots=True, eq=False)
class Replica:
    """One that follows over a stream, as the leader knows it. Times in milliseconds."""

    replica_id: str
    connected_at_ms: int
    received_physical_offset: int
    flushed_physical_offset: int
    heard_at_ms: int
    had_all_at_ms: int
    """When it last had synced all that there was."""
    is_in_sync: bool = False


@dataclass(slots=True, eq=False)
class Replicas:
    """Of one log."""

    _fs: Fs
    _chain: SegmentChain
    _epochs: EpochHistory
    _marks: Marks
    _topics: TopicRegistry
    _snapshot: SnapshotKeeper
    _gate: WriteGate
    _in_sync: InSyncKeeper | None
    """None in a log that follows."""
    _clock: Clock
    _config: CommitLogConfig
    _streams: dict[str, "ReplicaStream"] = field(default_factory=dict)
    _is_draining: bool = False

    @property
    def connected(self) -> list[Replica]:
        """Who has a stream, by name."""
        return [self._streams[name].look() for name in sorted(self._streams)]

    @property
    def lag_bytes(self) -> int:
        """How far the furthest behind is behind the end of the log."""
        least = min((stream.replica.received_physical_offset for stream in self._streams.values()), default=None)
        return 0 if least is None else max(self._marks.committed.value - least, 0)

    def stream_of(self, replica_id: str) -> "ReplicaStream | None":
        """Return the stream of one that follows."""
        return self._streams.get(replica_id)

    def follow(self, hello: Hello) -> "ReplicaStream":
        """Begin a stream. Raises NotLeader, Stopping, HistoryDiffers, StaleEpoch and BadArgument."""
        self._gate.check_leads()
        if self._is_draining:
            raise Stopping
        assert self._in_sync is not None
        mine = self._epochs.history_id
        if mine != hello.history_id and (hello.history_id or hello.max_physical_offset > 0):
            raise HistoryDiffers(mine=mine, theirs=hello.history_id)
        if hello.promised_epoch > self._epochs.number:
            _log.error(
                "%s knows of epoch %d, this log leads in %d: another one has led since, and may lead now",
                hello.replica_id, hello.promised_epoch, self._epochs.number,
            )  # fmt: skip
            raise StaleEpoch(epoch=self._epochs.number, field=PROMISED_EPOCH)
        if hello.segment_size_bytes != self._chain.segment_size_bytes:
            raise BadArgument(
                "segments must have the size of the leader's",
                field="hello.segment_size_bytes",
                value=hello.segment_size_bytes,
                limit=self._chain.segment_size_bytes,
            )
        self._check_store(hello)
        if former := self._streams.get(hello.replica_id):
            former.end()
        at = common_end(self._epochs.epochs, self._marks.committed.value, hello.epochs, hello.max_physical_offset)
        stream = self._streams[hello.replica_id] = ReplicaStream(
            self._chain, self._epochs, self._marks, self._topics, self._in_sync, self._clock, hello,
            common_end_physical_offset=at,
        )  # fmt: skip
        self._in_sync.join(stream.member, stream.replica.flushed_physical_offset)
        return stream

    def _check_store(self, hello: Hello) -> None:
        """Raise BadArgument unless name and store belong to each other alone: a copy of a directory is no member."""
        assert self._in_sync is not None
        stores = {name: stream.hello.store_id for name, stream in self._streams.items()}
        if stores.pop(hello.replica_id, hello.store_id) != hello.store_id:
            reason = "another log follows under this name"
            raise BadArgument(reason, field="hello.replica_id", value=hello.replica_id)
        if hello.store_id in {self._in_sync.store_id, *stores.values()}:
            reason = "another member has this store: one of the two directories is a copy, whose reput/replica must go"
            raise BadArgument(reason, field="hello.store_id", value=hello.store_id)

    async def steps(self, stream: "ReplicaStream") -> AsyncGenerator[Step, None]:
        """Yield a stream's handshake, and then what the other side needs, without an end.

        Raises OffsetTrimmed when it is too slow for what is deleted, RecordDamaged, Stopping, StaleEpoch when the log
        has begun another epoch or the name another stream, and what was wrong with an acknowledgement.
        """
        try:
            yield stream.handshake()
            if stream.hello.needs_queue_offsets and stream.start_physical_offset > 0:
                yield stream.sent(State(QUEUE_OFFSETS, await self._queue_offsets()))
            async for step in stream.steps():
                yield stream.sent(step)
        finally:
            if self._streams.get(stream.replica.replica_id) is stream:
                del self._streams[stream.replica.replica_id]
                assert self._in_sync is not None
                self._in_sync.leave(stream.member)

    def drain(self) -> None:
        """End all streams, and begin none."""
        self._is_draining = True
        for stream in self._streams.values():
            stream.end(Stopping())

    async def _queue_offsets(self) -> bytes:
        """Return a snapshot of the queue offsets that covers all that is written. Raises QueueOffsetsUnknown."""
        await self._snapshot.save()
        if self._snapshot.end_physical_offset is None:
            raise QueueOffsetsUnknown
        return await asyncio.to_thread(self._fs.read, self._config.data_dir / store_layout.QUEUE_SNAPSHOT)


class ReplicaStream:
    """What one that follows gets: topics when they change, chunks while its window has room, and a beat otherwise."""

    def __init__(
        self,
        chain: SegmentChain,
        epochs: EpochHistory,
        marks: Marks,
        topics: TopicRegistry,
        in_sync: InSyncKeeper,
        clock: Clock,
        hello: Hello,
        *,
        common_end_physical_offset: int,
    ) -> None:
        self.hello = hello
        self.member = Member(hello.replica_id, hello.store_id)
        self.start_physical_offset = at = max(common_end_physical_offset, chain.min_physical_offset)
        """Where the chunks begin."""
        now_ms = clock.now_ms()
        self.replica = Replica(
            hello.replica_id,
            connected_at_ms=now_ms,
            received_physical_offset=at,
            flushed_physical_offset=min(common_end_physical_offset, hello.flushed_physical_offset),
            heard_at_ms=now_ms,
            had_all_at_ms=now_ms,
        )
        self._common_end = common_end_physical_offset
        self._chain = chain
        self._epochs = epochs
        self._epoch = epochs.number
        self._marks = marks
        self._topics = topics
        self._in_sync = in_sync
        self._clock = clock
        self._chunks = ChunkReader(chain, epochs, marks)
        self._sent_physical_offset = at
        self._sent_topics: TopicsFile | None = None
        self._sent_step_count = 0
        self._topics_step_count = 0
        """Steps up to the last one with topics."""
        self._taken_step_count = 0
        self._told_physical_offset = marks.visible.value
        self._told_sync_physical_offset = 0
        self._spoke_at_s = asyncio.get_running_loop().time()
        self._news = asyncio.Event()
        self._failure: Exception | None = None

    def end(self, reason: Exception | None = None) -> None:
        """Let the stream end, because the name has another one unless there is a reason. The first one counts."""
        if self._failure is not None:
            return  # by now the member may have another stream
        self._failure = reason or StaleEpoch(epoch=self._epoch, field="hello.replica_id")
        self._in_sync.leave(self.member)  # at once: what is being sent may take long to fail
        self._news.set()

    def look(self) -> Replica:
        """Return the other side as it is known now."""
        self.replica.is_in_sync = self.member in self._in_sync.set.others
        return self.replica

    @property
    def has_topics(self) -> bool:
        """Whether the other side has the topics as they are now."""
        return self._sent_topics is self._topics.file and self._taken_step_count >= self._topics_step_count

    def wake(self) -> None:
        """Look again what there is to send."""
        self._news.set()

    def acknowledge(self, ack: Ack) -> None:
        """Take note of what the other side has. Raises StaleEpoch for another epoch, and BadArgument.

        After the end of the stream it counts for nothing.
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
        self._taken_step_count = ack.step_count
        if flushed >= self._marks.committed.value:
            replica.had_all_at_ms = now_ms
        self._in_sync.hear(self.member, replica.flushed_physical_offset)
        self._news.set()

    def sent(self, step: Step) -> Step:
        """Count a step that is being sent, which is returned."""
        self._sent_step_count += 1
        self._spoke_at_s = asyncio.get_running_loop().time()
        if isinstance(step, State) and step.name == TOPICS:
            self._topics_step_count = self._sent_step_count
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
            if self._sent_topics is not self._topics.file:
                self._sent_topics = self._topics.file
                yield State(TOPICS, topics_json.dumps(self._sent_topics).encode())
            elif self._sent_physical_offset < self._marks.committed.value and self._has_room:
                chunk = await self._chunks.read(self._sent_physical_offset, self._room_bytes)
                if self.member in self._in_sync.set.hurried:
                    chunk = replace(chunk, sync_to_physical_offset=chunk.end_physical_offset)
                self._sent_physical_offset = chunk.end_physical_offset
                self._told_physical_offset = chunk.confirmed_physical_offset
                self._told_sync_physical_offset = chunk.sync_to_physical_offset
                yield chunk
            elif self._is_beat_due:
                beat = self._beat()
                self._told_physical_offset = beat.confirmed_physical_offset
                self._told_sync_physical_offset = beat.sync_to_physical_offset
                yield beat
            else:
                await self._wait()

    @property
    def _room_bytes(self) -> int:
        """How much may be sent now."""
        return self.hello.window_bytes - (self._sent_physical_offset - self.replica.received_physical_offset)

    @property
    def _has_room(self) -> bool:
        """Whether so much may be sent that it is worth a step."""
        return self._room_bytes >= min(self.hello.window_bytes, CHUNK_SIZE_BYTES_WORTH)

    @property
    def _is_beat_due(self) -> bool:
        """Whether the other side has to hear of more than bytes, or has heard nothing for long."""
        marks = self._marks
        return (
            marks.visible.value > self._told_physical_offset
            or marks.replicated.wanted > self._told_sync_physical_offset
            or self._silence_s >= BEAT_S - EARLY_S
        )

    @property
    def _silence_s(self) -> float:
        return asyncio.get_running_loop().time() - self._spoke_at_s

    async def _wait(self) -> None:
        """Wait until there is something to do, or a beat is due."""
        self._news.clear()
        marks = self._marks
        more = [marks.committed.reached(self._sent_physical_offset + 1)] if self._has_room else []
        visible = marks.visible.reached(self._told_physical_offset + 1)
        await first_of(self._news.wait(), visible, *more, timeout_s=BEAT_S - self._silence_s)

    def _beat(self) -> Beat:
        is_in_sync = self.look().is_in_sync
        is_hurried = (
            not is_in_sync or self.member in self._in_sync.set.hurried
        )  # who has all comes in once it is synced
        return Beat(
            epoch=self._epoch,
            max_physical_offset=self._marks.committed.value,
            confirmed_physical_offset=self._marks.visible.value,
            min_physical_offset=self._chain.min_physical_offset,
            sync_to_physical_offset=self._sent_physical_offset if is_hurried else self._marks.replicated.wanted,
            is_in_sync=is_in_sync,
            replicated_physical_offset=self._in_sync.shared_physical_offset,
        )
