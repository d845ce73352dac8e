# SPDX-License-Identifier: Apache-2.0
"""CommitLog: the whole engine behind one door.

States: made -> `open` -> in use -> `close`. A sync that fails seals it: reads go on, appends do not, and `on_failure`
hears of it so that the process can end. The confirmed offset is the end of what readers and followers see: what is in
the files with asynchronous flushing, what is synced with synchronous flushing (RocketMQ since 5.3.1).
Callers: one asyncio loop, which is the one that called `open`; worker threads only sync, delete and write small files.
Not handled: protobuf, streams and their limits (rpc), replication.
"""

import asyncio
import contextlib
import dataclasses
import logging
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from libs.formats.records.host import Host
from libs.formats.state.queue_snapshot import QueueSnapshot
from libs.log import directories as log_directories
from libs.machine.clock import Clock
from libs.machine.fs import DiskUsage, Fs
from libs.machine.loop import SupervisedLoop
from libs.segments.chain import SegmentChain
from services.commitlog.config import CommitLogConfig
from services.commitlog.engine.durable.commit_loop import CommitLoop
from services.commitlog.engine.durable.flush import Flusher
from services.commitlog.engine.durable.notice import EndNotice
from services.commitlog.engine.follow.common_history import common_end
from services.commitlog.engine.follow.dispatch import DispatchTail
from services.commitlog.engine.follow.progress import IndexerReport, Progress
from services.commitlog.engine.follow.queue_offset_check import QueueOffsetCheck
from services.commitlog.engine.follow.reader import RecordReader
from services.commitlog.engine.keep import queue_snapshot
from services.commitlog.engine.keep.disk_guard import DiskGuard
from services.commitlog.engine.keep.epochs import EpochHistory
from services.commitlog.engine.keep.segments import SegmentKeeper
from services.commitlog.engine.keep.store_time import StoreTimeWatch
from services.commitlog.engine.start.meter import RecoveryProgress
from services.commitlog.engine.start.opening import OpenStore, open_store
from services.commitlog.engine.start.recovery import RecoveryReport
from services.commitlog.engine.write.append import AppendedBatch, AppendPipeline
from services.commitlog.engine.write.gate import WriteGate
from services.commitlog.engine.write.topics import TopicRegistry
from services.commitlog.engine.write.writers import WriterTable
from services.commitlog.errors import BadArgument, RecordDamaged, StaleEpoch, StoreSealed

DURABILITY_STORE, DURABILITY_MEMORY, DURABILITY_LOCAL_DISK = 0, 1, 2

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Handshake:
    """Where a follower's history and the log's agree, and where its stream goes on."""

    common_end_physical_offset: int
    epoch: int
    history_id: str
    min_physical_offset: int
    confirmed_physical_offset: int
    start_physical_offset: int


@dataclass(frozen=True, slots=True)
class LogDirectory:
    """A directory of segments. `is_full` keeps new ones away while there are others, `is_read_only` always."""

    path: Path
    usage: DiskUsage
    segment_count: int
    is_read_only: bool
    is_full: bool


@dataclass(frozen=True, slots=True)
class CommitLogStatistics:
    """Counters and gauges for telemetry."""

    appended_messages_total: int
    appended_batches_total: int
    repeated_batches_total: int
    syncs_total: int
    rolls_total: int
    deleted_segments_total: int
    dispatch_stops_by_damage_total: int
    min_physical_offset: int
    max_physical_offset: int
    committed_physical_offset: int
    flushed_physical_offset: int
    confirmed_physical_offset: int
    indexed_physical_offset: int
    segment_count: int
    topic_count: int
    epoch: int
    disk_total_bytes: int
    disk_free_bytes: int
    disk_used_percent: int
    data_disk_free_bytes: int
    evicted_segments_total: int
    is_writable: int
    raised_queues_total: int
    contradicting_queues_total: int
    store_time_ahead_ms: int


class CommitLog:
    """See the module. Attributes other than `gate`, `recovery_progress` and `is_open` exist after `open`."""

    chain: SegmentChain
    topics: TopicRegistry
    writers: WriterTable
    segments: SegmentKeeper
    reader: RecordReader
    progress: Progress
    recovery: RecoveryReport

    def __init__(
        self, config: CommitLogConfig, fs: Fs, clock: Clock, *, on_failure: Callable[[BaseException], None]
    ) -> None:
        self.config = config
        self.gate = WriteGate()
        self.store_host = Host.parse("127.0.0.1:0")
        self.started_at_ms = clock.now_ms()
        self.recovery_progress = RecoveryProgress(clock)
        self.is_open = False
        self._fs = fs
        self._clock = clock
        self._on_failure = on_failure
        self._notice = EndNotice()
        self._store: OpenStore | None = None
        self._dispatch_damage_count = 0
        self._snapshot_end: int | None = None
        self._snapshot_forgotten_count = 0  # of numbers that have gone without a record
        # One thread for the small files: a loop that was stopped may still be writing when the last save comes.
        self._writer = ThreadPoolExecutor(max_workers=1, thread_name_prefix="small files")
        self._ballast = config.ballast(fs)
        self._directories = config.segment_directories()
        self._disk = DiskGuard(
            fs, clock, config, self._directories, self.gate, take_ballast=lambda: self._write(self._ballast.take)
        )
        self._checkpoint_loop = SupervisedLoop(
            "checkpoint", self._look_and_save, interval_ms=config.checkpoint_interval_ms
        )
        self._snapshot_loop = SupervisedLoop(
            "queue offset snapshot", self._save_snapshot, interval_ms=config.snapshot_interval_ms
        )

    async def open(self, listen_host: Host) -> None:
        """Recover and start. `listen_host` stands in records unless the configuration has another. See `open_store`."""
        store = await asyncio.to_thread(
            open_store, self._fs, self.config, self._directories, self._clock, self.recovery_progress
        )
        self._store = store
        self.store_host = Host.parse(self.config.store_host) if self.config.store_host else listen_host
        self.chain, self.topics, self.writers, self.progress, self.recovery = (
            store.chain,
            store.topics,
            store.writers,
            store.progress,
            store.recovery,
        )
        self.flusher = Flusher(
            self.chain,
            self._clock,
            self.config,
            last_store_time_ms=lambda: self.pipeline.last_appended_time_ms,
            on_flushed=self._flushed,
            on_sealed=self._sealed,
        )
        self.commit_loop = CommitLoop(
            self.chain,
            self._clock,
            self.config,
            on_committed=self._notice.notify,
            on_failed=self.flusher.seal,
        )
        self.pipeline = AppendPipeline(
            self.chain,
            self.topics,
            self.writers,
            self.gate,
            self._clock,
            self.config,
            store_host=self.store_host,
            last_store_time_ms=store.recovery.last_store_time_ms,
            on_append=self._appended,
            on_roll=self._snapshot_loop.wake,
            wait_for_commit=self.commit_loop.wait,
            on_failed=self.flusher.seal,
        )
        self.store_time = StoreTimeWatch(
            self._clock,
            lambda: self.pipeline.last_appended_time_ms,
            ahead_ms_max=self.config.store_time_ahead_ms_max,
        )
        self.gate.are_queue_offsets_unknown = self.recovery.are_queue_offsets_unknown
        self.queue_offsets = QueueOffsetCheck(self.chain, self.topics, self.gate, on_known=self._snapshot_loop.wake)
        self.reader = RecordReader(self.chain, lambda: self.confirmed_physical_offset)
        self.segments = SegmentKeeper(
            self._fs,
            self.chain,
            self._clock,
            indexed=lambda: self.progress.indexed_flushed_physical_offset,
            remember=self._remember,
            tidy=lambda: self._tidy(store.epochs),
            release_timeout_ms=self.config.segment_release_timeout_ms,
        )
        self._snapshot_end = self.recovery.snapshot_physical_offset
        await self._disk.look()
        self.flusher.start()
        if self.config.transient_store_pool:
            self.commit_loop.start()
        self._disk.start()
        self._checkpoint_loop.start()
        self._snapshot_loop.start()
        self.is_open = True

    async def close(self) -> None:
        """Sync, write the small files, and mark the stop as clean, unless the store is sealed or was never open."""
        store, self._store, self.is_open = self._store, None, False
        if store is None:
            return
        self.gate.is_stopping = True
        try:
            for loop in (self._disk, self._checkpoint_loop, self._snapshot_loop):
                await loop.stop()
            await self.topics.finish()
            await self.segments.finish()
            await self.commit_loop.stop()
            await self.flusher.stop()
            if not self.gate.is_sealed:
                assert self.chain.max_physical_offset == self.flusher.flushed_physical_offset
                await self._write(self._ballast.give_way)
                await self._save_snapshot()
                await self._save_checkpoint()
                await self._write(store.files.mark_clean)
        finally:
            await self._write(self._ballast.take)
            await asyncio.to_thread(self._writer.shutdown)
            await asyncio.to_thread(store.chain.close)
            store.files.release()

    @property
    def confirmed_physical_offset(self) -> int:
        """End of what readers and followers may see, exclusive."""
        if self.config.flush_mode == "sync":
            return self.flusher.flushed_physical_offset
        return self.chain.committed_physical_offset

    @property
    def epoch(self) -> int:
        """Number of the current epoch, from 1."""
        assert self._store is not None
        return self._store.epochs.number

    @property
    def history_id(self) -> str:
        """Name of the history that the epochs belong to; empty if unknown."""
        assert self._store is not None
        return self._store.epochs.history_id

    @property
    def disk_usage(self) -> DiskUsage:
        """The emptiest file system that takes new segments, as of the last look."""
        return self._disk.usage

    def log_directories(self) -> list[LogDirectory]:
        """The directories of the segments, as of the last look at their disks."""
        return [
            LogDirectory(
                path=directory,
                usage=usage,
                segment_count=self._directories.counts[directory],
                is_read_only=directory in self._directories.read_only or directory in self._disk.unusable,
                is_full=directory in self._directories.full,
            )
            for directory, usage in self._disk.usages.items()
        ]

    async def append(self, request: bytes, born_host: bytes) -> AppendedBatch:
        """See `AppendPipeline.append`."""
        return await self.pipeline.append(request, born_host)

    def sync_of(self, batch: AppendedBatch) -> asyncio.Future[None] | None:
        """What the batch's durability has to wait for; None if memory is enough. Raises StoreSealed, now or later."""
        wanted = batch.requested_durability
        if wanted == DURABILITY_STORE:
            wanted = DURABILITY_LOCAL_DISK if self.config.flush_mode == "sync" else DURABILITY_MEMORY
        if wanted == DURABILITY_MEMORY:
            return None
        # Those who wait stand in the order of the log, and a repeated batch comes late.
        return self.flusher.flushed(self.chain.max_physical_offset if batch.is_repeated else batch.end_physical_offset)

    async def wait_sync(self, sync: asyncio.Future[None] | None) -> int:
        """Wait for a sync, at most the sync time-out; the durability reached. Without replicas that is the disk's.

        The batch is stored whatever the answer. Raises StoreSealed.
        """
        if sync is None:
            return DURABILITY_MEMORY
        done, _ = await asyncio.wait([sync], timeout=self.config.sync_timeout_ms / 1000)
        if not done:
            return DURABILITY_MEMORY
        sync.result()
        return DURABILITY_LOCAL_DISK

    def handshake(self, *, follower_epoch: int, follower_physical_offset: int) -> Handshake:
        """Tell a follower where to go on. Raises NotARecord when that is in the middle of a record."""
        assert self._store is not None
        end = common_end(
            self._store.epochs.epochs,
            max_physical_offset=self.confirmed_physical_offset,
            follower_epoch=follower_epoch,
            follower_physical_offset=follower_physical_offset,
        )
        start = max(end, self.chain.min_physical_offset)
        self.reader.check_boundary(start, "start_physical_offset")
        return Handshake(
            common_end_physical_offset=end,
            epoch=self.epoch,
            history_id=self.history_id,
            min_physical_offset=self.chain.min_physical_offset,
            confirmed_physical_offset=self.confirmed_physical_offset,
            start_physical_offset=start,
        )

    def tail(self, *, start_physical_offset: int, record_count_max: int) -> DispatchTail:
        """Follow the log from the first byte of a record."""
        return DispatchTail(
            self.chain,
            lambda: self.confirmed_physical_offset,
            self._notice,
            self.config,
            start_physical_offset=start_physical_offset,
            record_count_max=record_count_max,
            on_damage=self._dispatch_stopped,
        )

    def check_follower(self, epoch: int, history_id: str) -> None:
        """Raise StaleEpoch or BadArgument for a follower of another epoch, or of another history (empty: unknown)."""
        if history_id and self.history_id and history_id != self.history_id:
            raise StaleEpoch(epoch=self.epoch, field="history_id")
        if 0 < epoch < self.epoch:
            raise StaleEpoch(epoch=self.epoch)
        if epoch != self.epoch:
            raise BadArgument("the log has no such epoch", field="epoch", value=epoch, limit=self.epoch)

    def report_progress(self, report: IndexerReport) -> None:
        """See `Progress.report`. Raises also what `check_follower` raises."""
        self.check_follower(report.epoch, report.history_id)
        self.progress.report(report, max_physical_offset=self.confirmed_physical_offset)

    def report_disk(self, *, is_full: bool, used_ratio: float) -> None:
        """Take the Janitor's verdict: a full disk refuses appends until a later report says otherwise."""
        self._disk.report(is_full=is_full, used_ratio=used_ratio)

    def wake_followers(self) -> None:
        """Make every tail look, so that it sees that it should end."""
        self._notice.notify()

    def statistics(self) -> CommitLogStatistics:
        """A snapshot; zeros before `open`. Quick, and safe from any thread."""
        store = self._store
        if store is None:
            return CommitLogStatistics(**dict.fromkeys((f.name for f in dataclasses.fields(CommitLogStatistics)), 0))
        return CommitLogStatistics(
            appended_messages_total=self.pipeline.message_count,
            appended_batches_total=self.pipeline.batch_count,
            repeated_batches_total=self.pipeline.repeated_batch_count,
            syncs_total=self.flusher.sync_count,
            rolls_total=self.pipeline.roll_count,
            deleted_segments_total=self.segments.deleted_count,
            dispatch_stops_by_damage_total=self._dispatch_damage_count,
            min_physical_offset=self.chain.min_physical_offset,
            max_physical_offset=self.chain.max_physical_offset,
            committed_physical_offset=self.chain.committed_physical_offset,
            flushed_physical_offset=self.flusher.flushed_physical_offset,
            confirmed_physical_offset=self.confirmed_physical_offset,
            indexed_physical_offset=self.progress.indexed_physical_offset,
            segment_count=len(self.chain.segments),
            topic_count=self.topics.topic_count,
            epoch=store.epochs.number,
            disk_total_bytes=self.disk_usage.total_bytes,
            disk_free_bytes=self.disk_usage.free_bytes,
            disk_used_percent=self.disk_usage.used_percent,
            data_disk_free_bytes=self._disk.data_usage.free_bytes,
            evicted_segments_total=self.segments.evicted_count,
            is_writable=int(self.gate.is_open),
            raised_queues_total=self.queue_offsets.raised_count,
            contradicting_queues_total=self.queue_offsets.contradicting_count,
            store_time_ahead_ms=self.store_time.ahead_ms,
        )

    def _appended(self) -> None:
        if self.config.flush_mode == "sync":
            self.flusher.wake()
        elif not self.config.transient_store_pool:
            self._notice.notify()

    def _flushed(self, store_time_ms: int) -> None:
        self.progress.note_flushed(store_time_ms, self.flusher.flushed_physical_offset)
        if self.config.flush_mode == "sync" or self.config.transient_store_pool:
            self._notice.notify()

    def _sealed(self, error: BaseException) -> None:
        self.gate.is_sealed = True
        self._on_failure(error)

    def _dispatch_stopped(self, error: RecordDamaged) -> None:
        del error
        self._dispatch_damage_count += 1

    async def _look_and_save(self) -> None:
        self.store_time.look()
        await self._save_checkpoint()

    async def _save_checkpoint(self) -> None:
        if self.gate.is_sealed:
            return
        self.progress.note_confirmed(self.confirmed_physical_offset)
        await self._write(self.progress.save)

    async def _remember(self, end_physical_offset: int) -> None:
        """Write down what only the records below an offset tell, which are about to go, and that Reput deletes them."""
        await self._remember_queue_offsets(end_physical_offset)

        def save() -> None:
            with self._ballast.given_way():
                self.progress.save()

        self.progress.note_start(end_physical_offset)
        try:
            await self._write(save)
        except OSError as error:  # the deletion makes the room that it lacks; the next save comes within a second
            _log.warning("the checkpoint does not know yet that the log begins at %d: %s", end_physical_offset, error)

    async def _remember_queue_offsets(self, end_physical_offset: int) -> None:
        """Have a snapshot that covers these records; unless it is lost anyway."""
        if self.gate.are_queue_offsets_unknown or (self._snapshot_end or 0) >= end_physical_offset:
            return
        await self._save_snapshot(self._ballast.given_way)
        if (self._snapshot_end or 0) < end_physical_offset:
            raise StoreSealed

    async def _tidy(self, epochs: EpochHistory) -> None:
        """Let small files forget what was deleted. What there is no room for waits for the next deletion, or start."""

        def save() -> None:
            with self._ballast.given_way():
                epochs.trim(self.chain.min_physical_offset)
                log_directories.save(self._fs, self.config.data_dir, self._directories.used)

        try:
            await self._write(save)
        except OSError as error:
            _log.warning("small files still speak of deleted segments: %s", error)

    async def _save_snapshot(
        self, room: Callable[[], contextlib.AbstractContextManager[None]] = contextlib.nullcontext
    ) -> None:
        """Write the counters as of now, once everything that they count is durable; `room` is held for the write.

        The ballast is no such room in the background: what gives way on a full disk may be taken by somebody else.
        """
        end, forgotten_count = self.chain.max_physical_offset, self.queue_offsets.forgotten_count
        is_same = end == self._snapshot_end and forgotten_count == self._snapshot_forgotten_count
        if is_same or self.gate.is_sealed or self.gate.are_queue_offsets_unknown:
            return
        counters = self.topics.table.frozen_counters()
        snapshot = QueueSnapshot(
            end,
            self.pipeline.last_appended_time_ms,
            self.segments.times(),
            [],
            self.writers.batches(),
            self.writers.next_sequences(),
        )
        try:
            await self.flusher.flushed(end)
        except StoreSealed:
            return

        def save() -> None:
            with room():
                queue_snapshot.save(self._fs, self.config.data_dir, snapshot, counters)

        await self._write(save)
        self._snapshot_end, self._snapshot_forgotten_count = end, forgotten_count

    async def _write(self, save: Callable[[], None]) -> None:
        await asyncio.get_running_loop().run_in_executor(self._writer, save)
