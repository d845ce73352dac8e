# SPDX-License-Identifier: Apache-2.0
"""Replicas: the followers of this log, with a stream for each.

Invariants: a stream begins at the end of the common history, so a follower gets exactly the bytes behind its own. At
most a window of bytes is in flight to a follower; a slow follower costs this memory, several followers also that of
SharedChunks, and nothing else. The leader stores no position per follower: each follower reports its own. A second
stream of the same follower ends the first, and a new epoch ends all streams.
Callers: the loop that owns the log. RocketMQ's counterpart is HAConnection.
"""

import asyncio
import logging
from collections.abc import AsyncGenerator
from dataclasses import dataclass, field

from libs.formats import store_layout
from libs.log.common_history import common_end
from libs.machine.clock import Clock
from libs.machine.fs import Fs
from libs.requests.errors import BadArgument, Stopping
from libs.segments.chain import SegmentChain
from services.commitlog.config import CommitLogConfig
from services.commitlog.engine.keep.epochs import EpochHistory
from services.commitlog.engine.keep.queue_snapshot import SnapshotKeeper
from services.commitlog.engine.replicate.catch_up import CatchUpPace
from services.commitlog.engine.replicate.in_sync_keeper import InSyncKeeper
from services.commitlog.engine.replicate.ledger import LeasePromises
from services.commitlog.engine.replicate.shared_chunks import SharedChunks
from services.commitlog.engine.replicate.steps import PROMISED_EPOCH, QUEUE_OFFSETS, Hello, State, Step
from services.commitlog.engine.replicate.stream import Replica, ReplicaStream
from services.commitlog.engine.write.gate import WriteGate
from services.commitlog.engine.write.marks import Marks
from services.commitlog.engine.write.topics import TopicRegistry
from services.commitlog.errors import HistoryDiffers, QueueOffsetsUnknown, StaleEpoch

_log = logging.getLogger(__name__)


@dataclass(slots=True, eq=False)
class Replicas:
    """The followers of a log."""

    _fs: Fs
    _chain: SegmentChain
    _epochs: EpochHistory
    _marks: Marks
    _topics: TopicRegistry
    _snapshot: SnapshotKeeper
    _gate: WriteGate
    _in_sync: InSyncKeeper | None
    """None at a follower."""
    _clock: Clock
    _config: CommitLogConfig
    _promises: LeasePromises | None = None
    _streams: dict[str, ReplicaStream] = field(default_factory=dict)
    _is_draining: bool = False
    _pace: CatchUpPace = field(init=False)
    _shared: SharedChunks = field(default_factory=SharedChunks)

    def __post_init__(self) -> None:
        self._pace = CatchUpPace(self._config.catch_up_bytes_per_s)

    @property
    def connected(self) -> list[Replica]:
        """Connected followers, by replica id."""
        return [self._streams[name].look() for name in sorted(self._streams)]

    @property
    def lag_bytes(self) -> int:
        """Lag of the slowest connected follower in bytes."""
        low = min((stream.replica.received_physical_offset for stream in self._streams.values()), default=None)
        return 0 if low is None else max(self._marks.committed.value - low, 0)

    def wake(self) -> None:
        """Wake all streams to check for data to send."""
        for stream in self._streams.values():
            stream.wake()

    def stream_of(self, replica_id: str) -> ReplicaStream | None:
        """Return the stream of a follower, or None."""
        return self._streams.get(replica_id)

    def follow(self, hello: Hello) -> ReplicaStream:
        """Start a follower's stream. Raises NotLeader, Stopping, HistoryDiffers, StaleEpoch and BadArgument."""
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
            self._chain, self._epochs, self._marks, self._topics, self._in_sync, self._pace, self._shared,
            self._clock, hello, self._promises, common_end_physical_offset=at,
        )  # fmt: skip
        self._shared.note_followers(len(self._streams))
        self._in_sync.join(stream.member, stream.replica.flushed_physical_offset)
        return stream

    def _check_store(self, hello: Hello) -> None:
        """Raise BadArgument if another stream has this replica id or this store: a copied directory is no member."""
        assert self._in_sync is not None
        stores = {name: stream.hello.store_id for name, stream in self._streams.items()}
        if stores.pop(hello.replica_id, hello.store_id) != hello.store_id:
            reason = "another log follows under this name"
            raise BadArgument(reason, field="hello.replica_id", value=hello.replica_id)
        if hello.store_id in {self._in_sync.store_id, *stores.values()}:
            reason = "another member has this store: one of the two directories is a copy, whose reput/replica must go"
            raise BadArgument(reason, field="hello.store_id", value=hello.store_id)

    async def steps(self, stream: ReplicaStream) -> AsyncGenerator[Step, None]:
        """Yield the handshake of a stream, then its steps, without an end.

        Raises OffsetTrimmed if the follower is slower than deletion, RecordDamaged, Stopping, StaleEpoch after a new
        epoch of the log or a second stream of the follower, and the error of an invalid acknowledgement.
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
                self._shared.note_followers(len(self._streams))
                assert self._in_sync is not None
                self._in_sync.leave(stream.member)

    def drain(self) -> None:
        """End all streams and refuse new ones."""
        self._is_draining = True
        for stream in self._streams.values():
            stream.end(Stopping())

    async def _queue_offsets(self) -> bytes:
        """Return a snapshot of the queue offsets up to the end of the log. Raises QueueOffsetsUnknown."""
        await self._snapshot.save()
        if self._snapshot.end_physical_offset is None:
            raise QueueOffsetsUnknown
        return await asyncio.to_thread(self._fs.read, self._config.data_dir / store_layout.QUEUE_SNAPSHOT)
