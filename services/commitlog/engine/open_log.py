# SPDX-License-Identifier: Apache-2.0
"""OpenLog: an open log, all parts of it, each made after those that it needs."""

from collections.abc import Callable
from dataclasses import dataclass

from libs.formats.records.host import Host
from libs.machine.clock import Clock
from libs.machine.fs import Fs
from libs.machine.loop import SupervisedLoop
from libs.segments.chain import SegmentChain
from services.commitlog.config import CommitLogConfig
from services.commitlog.engine.durable.acknowledge import Acknowledgements
from services.commitlog.engine.durable.syncer import Syncer
from services.commitlog.engine.follow.followers import Followers
from services.commitlog.engine.follow.queue_offset_check import QueueOffsetCheck
from services.commitlog.engine.follow.reader import RecordReader
from services.commitlog.engine.keep.checkpoint import CheckpointKeeper
from services.commitlog.engine.keep.disk_guard import DiskGuard
from services.commitlog.engine.keep.epochs import EpochHistory
from services.commitlog.engine.keep.progress import Progress
from services.commitlog.engine.keep.segments import SegmentKeeper
from services.commitlog.engine.keep.small_files import SmallFiles
from services.commitlog.engine.keep.snapshot import SnapshotKeeper
from services.commitlog.engine.keep.store_time import StoreTimeWatch
from services.commitlog.engine.start.meter import RecoveryProgress
from services.commitlog.engine.start.opening import recover_store
from services.commitlog.engine.start.recovery import RecoveryReport
from services.commitlog.engine.start.store_files import StoreFiles
from services.commitlog.engine.write.append import AppendPipeline
from services.commitlog.engine.write.gate import Reason, WriteGate
from services.commitlog.engine.write.marks import Marks
from services.commitlog.engine.write.seal import Seal
from services.commitlog.engine.write.state import LogState
from services.commitlog.engine.write.tail import LogTailWriter
from services.commitlog.engine.write.topics import TopicRegistry


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, repr=False)
class OpenLog:
    """The parts. Nothing runs by itself before the loops are started."""

    store_host: Host
    """Stands in records."""
    recovery: RecoveryReport
    files: StoreFiles
    chain: SegmentChain
    epochs: EpochHistory
    topics: TopicRegistry
    state: LogState
    gate: WriteGate
    marks: Marks
    seal: Seal
    tail: LogTailWriter
    pipeline: AppendPipeline
    flusher: Syncer
    committer: Syncer
    acknowledgements: Acknowledgements
    progress: Progress
    small_files: SmallFiles
    disk: DiskGuard
    store_time: StoreTimeWatch
    checkpoint: CheckpointKeeper
    snapshot: SnapshotKeeper
    segments: SegmentKeeper
    reader: RecordReader
    followers: Followers
    queue_offsets: QueueOffsetCheck

    @property
    def keepers(self) -> tuple[SupervisedLoop, ...]:
        """Loops that write small files and look at the disk."""
        return self.disk.loop, self.checkpoint.loop, self.snapshot.loop

    @property
    def syncers(self) -> tuple[SupervisedLoop, ...]:
        """Loops that make the log durable. Without a pool there is nothing to commit."""
        has_pool = self.marks.committed is not self.marks.wrote
        return (self.committer.loop, self.flusher.loop) if has_pool else (self.flusher.loop,)

    async def abandon(self) -> None:
        """End all that runs, without the last steps of a stop: the files stay as a killed process leaves them."""
        for loop in (*self.keepers, *self.syncers):
            await loop.stop()
        for thread in (self.committer, self.flusher, self.small_files):
            await thread.end()


def open_log(
    fs: Fs,
    config: CommitLogConfig,
    clock: Clock,
    meter: RecoveryProgress,
    *,
    listen_host: Host,
    on_failure: Callable[[BaseException], None],
) -> OpenLog:
    """Recover the store and build all parts. `on_failure` hears of the failure that seals the log, if one does.

    `listen_host` stands in records unless the configuration has another. Blocks. Raises what `recover_store` does.
    """
    store_host = Host.parse(config.store_host) if config.store_host else listen_host
    ballast, directories = config.ballast(fs), config.segment_directories()
    store = recover_store(fs, config, directories, ballast, clock, meter)
    chain, state, topics, epochs, progress = store.chain, store.state, store.topics, store.epochs, store.progress
    gate = WriteGate()
    gate.put(Reason.QUEUE_OFFSETS_UNKNOWN, holds=store.recovery.are_queue_offsets_unknown)
    marks = Marks.of(chain, config)
    seal = Seal(gate, (marks.committed, marks.flushed), chain.directory, on_set=on_failure)
    tail = LogTailWriter(chain, state, marks, gate, seal, config)
    flusher = Syncer.flusher(chain, marks, state, seal, clock, config)
    small_files = SmallFiles(ballast)
    store_time = StoreTimeWatch(clock, state, ahead_ms_max=config.store_time_ahead_ms_max)
    checkpoint = CheckpointKeeper(progress, flusher, marks, seal, store_time, small_files, config)
    known_end = store.recovery.snapshot_physical_offset
    snapshot = SnapshotKeeper(fs, chain, state, marks, gate, small_files, config, end_physical_offset=known_end)
    reader = RecordReader(chain, marks.visible)
    return OpenLog(
        store_host=store_host,
        recovery=store.recovery,
        files=store.files,
        chain=chain,
        epochs=epochs,
        topics=topics,
        state=state,
        gate=gate,
        marks=marks,
        seal=seal,
        tail=tail,
        pipeline=AppendPipeline(tail, state, topics, gate, clock, config, store_host=store_host),
        flusher=flusher,
        committer=Syncer.committer(chain, marks, state, seal, clock, config),
        acknowledgements=Acknowledgements(marks, config),
        progress=progress,
        small_files=small_files,
        disk=DiskGuard(fs, clock, config, directories, gate, small_files),
        store_time=store_time,
        checkpoint=checkpoint,
        snapshot=snapshot,
        segments=SegmentKeeper(
            fs, chain, directories, epochs, progress, snapshot, checkpoint, small_files, clock, config
        ),
        reader=reader,
        followers=Followers(chain, epochs, marks, reader, progress, config),
        queue_offsets=QueueOffsetCheck(chain, topics, state, gate),
    )
