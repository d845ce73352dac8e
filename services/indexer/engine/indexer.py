# SPDX-License-Identifier: Apache-2.0
"""Indexer: the facade that rpc/ sees. Opens and recovers the indexes, runs the loops, trims, counts.

Recovery: after a clean stop everything is as the progress file says. Otherwise queues are cut to what was synced for
certain, index files after the last finished one are dropped, and the log is asked for everything from there on; what is
there already is recognised and not entered again, and calls that need the indexes wait for it (Completeness). Without a
progress file everything is built anew. Index files that RocketMQ has changed since a clean stop are dropped as after an
unclean one. When the files hold less than was synced for certain, all of them are dropped and built anew.
Callers: the event loop's thread, except `open`, which blocks and may run in a worker thread before anything else.
"""

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass

from libs.formats import store_layout
from libs.formats.state.index_progress import IndexProgress
from libs.log.set_apart import SetApart
from libs.machine.clock import Clock
from libs.machine.fs import DiskUsage, Fs, Lock
from libs.machine.loop import SupervisedLoop
from libs.segments.errors import SegmentMissing
from services.indexer.config import IndexerConfig
from services.indexer.engine.answer.plan import ScanPlanner
from services.indexer.engine.answer.pull import Puller
from services.indexer.engine.answer.query import QueryEngine
from services.indexer.engine.answer.scan import Scanner
from services.indexer.engine.deliver.delay_delivery import DelayDelivery
from services.indexer.engine.follow.deleted_topics import DeletedTopics
from services.indexer.engine.follow.flush import FlushLoop
from services.indexer.engine.follow.history import LogHistory
from services.indexer.engine.follow.long_poll import LongPolls
from services.indexer.engine.follow.queue_end_check import QueueEndCheck
from services.indexer.engine.follow.reput_loop import ReputLoop, ReputState
from services.indexer.engine.groups.consumer_offsets import ConsumerOffsets
from services.indexer.engine.log.local_records import LocalRecords
from services.indexer.engine.log.sink import LogSink
from services.indexer.engine.log.source import LogSource, RecordSource
from services.indexer.engine.tables.disk_share import allocated_bytes
from services.indexer.engine.tables.index import IndexTable, NewestFile
from services.indexer.engine.tables.progress import ProgressFile, ProgressKeeper
from services.indexer.engine.tables.queues import ConsumeQueueTable
from services.indexer.engine.upkeep.online_rebuild import OnlineRebuild
from services.indexer.engine.upkeep.queue_removal import QueueRemoval
from services.indexer.errors import FilesMissing, OffsetBeyondEnd, TopicSetApart

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class IndexerStatistics:
    """A snapshot of the counters for the telemetry room. Offsets are in bytes of the log."""

    state: int
    indexed_physical_offset: int
    flushed_physical_offset: int
    confirmed_physical_offset: int
    lag_bytes: int
    min_physical_offset: int
    epoch: int
    queue_count: int
    index_file_count: int
    consumer_offset_count: int
    waiting_pull_count: int
    running_scan_count: int
    stopped: int
    applied_records_total: int
    locally_read_records_total: int
    scanned_rows_total: int
    scanned_frames_bytes_total: int
    sync_rounds_total: int
    gaps_total: int
    history_changes_total: int
    removed_queues_total: int
    stepped_over_record_count: int


@dataclass(frozen=True, slots=True)
class Trimmed:
    """What a trim removed, or would."""

    queue_file_count: int
    index_file_count: int
    freed_bytes: int
    own_bytes: int = 0
    """Bytes of all files of the indexes, if nothing was removed."""


class Indexer:
    """The indexes of one store. Make it, `open` it, `start` it, `close` it; each once."""

    def __init__(
        self,
        config: IndexerConfig,
        fs: Fs,
        clock: Clock,
        *,
        source: LogSource,
        records: RecordSource,
        on_failure: Callable[[Exception], None],
        sink: LogSink | None = None,
    ) -> None:
        """Delayed messages are delivered through the sink; without one they are not."""
        self._config, self._fs = config, fs
        self._lock: Lock | None = None
        self.start_time_ms = clock.now_ms()
        self.polls = LongPolls(config.long_poll_count_max)
        self.queues, self.index = _tables(config, fs, clock)
        self._local_records = self._local(records)
        records = self._local_records or records
        self._ballast = config.ballast(fs)
        small_files = self._ballast.roomy_fs()
        self.offsets = _offsets(config, small_files, clock)
        self.queries = QueryEngine(self.queues, self.index, records, page_size_bytes_max=config.query_size_bytes_max)
        self.puller = Puller(self.queues, records, self.polls)
        self.scanner = Scanner(self.queues, records, self.queries, count_max=config.scan_count_max)
        self.planner = ScanPlanner(self.queues, records, partition_key_count=config.scan_partition_key_count)
        self.records = records
        self._progress = ProgressKeeper(ProgressFile(small_files, config.data_dir / store_layout.INDEX_PROGRESS))
        self._history = LogHistory(small_files, config.data_dir / store_layout.LOG_HISTORY)
        self.queues.before_removal = self._history.keep_all
        self.queues.spared = self._ballast.spared
        self.reput = ReputLoop(
            source,
            self.queues,
            self.index,
            self.polls,
            self._progress,
            self._history,
            DeletedTopics(self.queues, records, self._progress),
            reconnect_ms_max=config.reconnect_ms_max,
        )
        self.flush = FlushLoop(
            self.reput,
            self.queues,
            self.index,
            self._progress,
            self._ballast,
            source,
            clock,
            interval_ms=config.flush_interval_ms,
            page_count_min=config.flush_pages_min,
            thorough_interval_ms=config.flush_thorough_interval_ms,
            on_failure=on_failure,
        )
        self.reput.sync_queues = self.flush.sync_queues
        self.completeness = self.reput.completeness
        self.removal = QueueRemoval(self.reput, self.queues, records, self._progress, self._history, self.flush, source)
        self.rebuild = OnlineRebuild(self.reput, self.flush, self.completeness, clock)
        self._queue_end_check = QueueEndCheck(self.queues, self.reput)
        self._offset_loop = SupervisedLoop("offsets", self.offsets.tend, interval_ms=config.consumer_offset_interval_ms)
        self.delivery = None if sink is None else self._delivery(sink, small_files, clock)
        self._is_open = False

    def open(self, *, anew: bool = False) -> None:
        """Take the directory's lock and recover. Blocks. Raises StoreLocked, StoreError, FormatError and OSError.

        With `anew` nothing on the disk is believed, so that all indexes are dropped; so it is when files are missing.
        """
        self._fs.make_directory(self._config.data_dir / store_layout.REPUT)
        self._lock = self._fs.lock(self._config.data_dir / store_layout.INDEXER_LOCK)
        self.queues.set_apart = SetApart.load(self._fs, self._config.data_dir)
        self.offsets.load()
        self._history.load()
        progress = self._progress.forget() if anew else self._progress.load()
        try:
            self._load(progress)
        except (FilesMissing, SegmentMissing) as error:
            _log.error("all indexes are built anew: %s", error)
            self.queues.detach()
            progress = self._progress.forget()
            self._load(progress)
        if self.delivery is not None:
            self.delivery.load()
        self._progress.mark_running()
        self.reput.recover(
            indexed_physical_offset=min(progress.queue_physical_offset, self.index.next_physical_offset),
            entered_physical_offset=max(
                progress.queue_physical_offset, self.index.next_physical_offset, *self.queues.begins.values()
            ),
            epoch=progress.epoch,
        )
        if not progress.is_clean or self.index.next_physical_offset < progress.index_physical_offset:
            self.completeness.lose()
        self._ballast.occupy()
        self._is_open = True

    def _load(self, progress: IndexProgress) -> None:
        self.queues.load(
            bound_physical_offset=progress.queue_physical_offset,
            is_clean=progress.is_clean and progress.queue_end_sum >= 0,
            start_sum_max=progress.queue_start_sum,
            end_sum=progress.queue_end_sum,
            file_count_min=progress.queue_file_count,
        )
        self.queues.stepped_over.restore(progress.stepped_over)
        self.queues.begins = {(topic, queue_id): end for topic, queue_id, end in progress.queue_begins}
        self.index.load(
            next_physical_offset=progress.index_physical_offset,
            replay_physical_offset=progress.index_replay_physical_offset,
            finished_file=progress.index_finished_file,
            finished_count=progress.index_finished_count,
            newest=NewestFile(progress.index_newest_file, progress.index_newest_entry),
            is_clean=progress.is_clean,
        )

    def start(self) -> None:
        """Begin to follow the log."""
        self.reput.start()
        self.flush.start()
        self._queue_end_check.start()
        self._offset_loop.start()
        if self.delivery is not None:
            self.delivery.start()

    def drain(self) -> None:
        """End all waiting pulls."""
        self.polls.close()

    async def close(self) -> None:
        """Stop the loops, make everything durable, mark the stop as clean. Raises what keeps it from being clean."""
        await self._queue_end_check.stop()
        await self.rebuild.stop()
        await self.reput.stop()
        await self.removal.stop()
        await self._offset_loop.stop()
        try:
            if self._is_open:
                if self.delivery is not None:
                    await self.delivery.stop()
                await self.offsets.save()
                await self.flush.stop()
        finally:
            self.queues.close()
            self.index.close()
            if self._lock is not None:
                self._lock.release()

    def served(self, topic: str, field: str = "topic") -> str:
        """The topic, if it is served. Raises TopicSetApart."""
        if why := self.queues.set_apart.why(topic):
            raise TopicSetApart(topic, why=why, field=field)
        return topic

    def trim(self, min_physical_offset: int) -> Trimmed:
        """Forget all records below an offset, at most up to what is indexed. Raises OffsetBeyondEnd.

        The files are removed by the next round of FlushLoop.
        """
        self._check_indexed(min_physical_offset)
        return self._trimmed(self.queues.trim(min_physical_offset), self.index.trim(min_physical_offset))

    async def would_trim(self, min_physical_offset: int) -> Trimmed:
        """What `trim` would remove, and what there is; removes nothing. Raises OffsetBeyondEnd."""
        self._check_indexed(min_physical_offset)
        leaving = self.queues.expired_paths() | self.index.expired_paths()
        directories = (self.queues.directory, self.index.directory)
        own_bytes = await asyncio.to_thread(allocated_bytes, self._fs, directories, leaving)
        queue_file_count = self.queues.trimmable_count(min_physical_offset)
        return self._trimmed(queue_file_count, self.index.trimmable_count(min_physical_offset), own_bytes)

    def _check_indexed(self, min_physical_offset: int) -> None:
        end = self.reput.indexed_physical_offset
        if min_physical_offset > end:
            raise OffsetBeyondEnd(min_physical_offset, end=end, field="min_physical_offset")

    def _trimmed(self, queue_file_count: int, index_file_count: int, own_bytes: int = 0) -> Trimmed:
        queue_bytes = queue_file_count * self.queues.file_size_bytes
        index_bytes = index_file_count * self.index.file_size_bytes
        return Trimmed(queue_file_count, index_file_count, queue_bytes + index_bytes, own_bytes)

    async def disk_usage(self) -> DiskUsage:
        """The file system of the indexes; zeros if it can't be told."""
        try:
            return await asyncio.to_thread(self._fs.disk_usage, self._config.data_dir)
        except OSError:
            return DiskUsage(total_bytes=0, free_bytes=0, used_bytes=0)

    def _delivery(self, sink: LogSink, small_files: Fs, clock: Clock) -> DelayDelivery:
        return DelayDelivery(
            self.reput,
            self.queues,
            self.polls,
            self.records,
            sink,
            small_files,
            self._config.data_dir,
            clock,
            delay_levels_ms=self._config.delay_levels_ms(),
        )

    def _local(self, records: RecordSource) -> LocalRecords | None:
        """The log's own files with the log behind them, if the settings name them."""
        if self._config.commitlog_data_dir is None:
            return None
        return LocalRecords(
            self._fs,
            self._config.commitlog_data_dir,
            records,
            history_id=lambda: self.reput.history_id,
            min_physical_offset=lambda: self.queues.min_physical_offset,
        )

    def statistics(self) -> IndexerStatistics:
        """Return a snapshot of the counters. Quick; may be called from any thread."""
        reput = self.reput
        return IndexerStatistics(
            state=reput.state,
            indexed_physical_offset=reput.indexed_physical_offset,
            flushed_physical_offset=self.flush.flushed_physical_offset,
            confirmed_physical_offset=reput.confirmed_physical_offset,
            lag_bytes=max(0, reput.confirmed_physical_offset - reput.indexed_physical_offset),
            min_physical_offset=self.queues.min_physical_offset,
            epoch=reput.epoch,
            queue_count=self.queues.queue_count,
            index_file_count=self.index.file_count,
            consumer_offset_count=self.offsets.count,
            waiting_pull_count=self.polls.count,
            running_scan_count=self.scanner.count,
            stopped=int(reput.state is ReputState.STOPPED),
            applied_records_total=reput.applied_record_count,
            locally_read_records_total=self._local_records.read_count if self._local_records is not None else 0,
            scanned_rows_total=self.scanner.row_count,
            scanned_frames_bytes_total=self.scanner.frame_bytes,
            sync_rounds_total=self.flush.sync_round_count,
            gaps_total=reput.gap_count,
            history_changes_total=reput.history_change_count,
            removed_queues_total=self.removal.removed_queue_count,
            stepped_over_record_count=self.queues.stepped_over.record_count,
        )


def _tables(config: IndexerConfig, fs: Fs, clock: Clock) -> tuple[ConsumeQueueTable, IndexTable]:
    queues = ConsumeQueueTable(
        fs,
        config.data_dir / store_layout.QUEUES,
        file_size_bytes=config.queue_file_size_bytes,
        mapped_file_count_max=config.queue_mapped_file_count_max,
    )
    index = IndexTable(
        fs,
        config.data_dir / store_layout.INDEX,
        clock,
        slot_count=config.index_slot_count,
        entry_capacity=config.index_entry_capacity,
    )
    return queues, index


def _offsets(config: IndexerConfig, fs: Fs, clock: Clock) -> ConsumerOffsets:
    return ConsumerOffsets(
        fs,
        config.data_dir / store_layout.CONSUMER_OFFSETS,
        clock,
        count_max=config.consumer_offset_count_max,
        expire_s=config.consumer_offset_expire_hours * 3600,
    )
