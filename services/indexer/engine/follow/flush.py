# SPDX-License-Identifier: Apache-2.0
"""FlushLoop: makes the indexes durable, saves their progress, and reports it to the log.

Invariants: progress is saved after the data that it describes was synced; syncs run in worker threads, a single round
at a time, and a round waits for all its threads. Each round syncs queues with enough dirty pages and finished index
files; a thorough round syncs all files and saves the progress file. After a failed sync the content of the disk is
unknown, so indexing stops and the owner is notified, which ends the process; the next start uses the files on the disk.
Callers: the event loop's thread.
Rules: RocketMQ's FlushConsumeQueueService; unlike there an index file is synced also before it is full.
"""

import asyncio
import logging
from collections.abc import Callable, Sequence

from libs.formats.state.index_progress import IndexProgress
from libs.machine.clock import Clock
from libs.machine.failpoints import failpoint
from libs.machine.loop import SupervisedLoop
from libs.machine.uninterrupted import uninterrupted
from libs.requests.errors import DependencyUnavailable
from libs.segments.ballast import Ballast
from libs.segments.errors import StoreError
from services.indexer.config import IndexerConfig
from services.indexer.engine.follow.indexes import Indexes
from services.indexer.engine.log.source import LogRole, LogSource, ProgressReport
from services.indexer.engine.tables.index_file import IndexFile
from services.indexer.engine.tables.queue import ConsumeQueue

SYNC_THREAD_COUNT_MAX, QUEUE_COUNT_OF_A_THREAD = 4, 16
"""Threads that sync many queues: a disk makes the syncs of several files durable together. Other work in threads keeps
the rest of asyncio's threads."""

_log = logging.getLogger(__name__)


class FlushLoop:
    """The loop that flushes the indexes in rounds."""

    def __init__(
        self,
        config: IndexerConfig,
        indexes: Indexes,
        ballast: Ballast,
        source: LogSource,
        clock: Clock,
        *,
        on_failure: Callable[[Exception], None],
        on_log_role: Callable[[LogRole, int], None],
    ) -> None:
        """`on_log_role` is called with the role that the log reports, and the epoch of the report."""
        self.sync_round_count = 0
        self._config = config
        self._indexes = indexes
        self._queues, self._index, self._progress = indexes.queues, indexes.index, indexes.progress
        self._ballast = ballast
        self._source = source
        self._clock = clock
        self._on_failure = on_failure
        self._on_log_role = on_log_role
        self._thorough_at_s = clock.monotonic_s()
        self._failure: Exception | None = None
        self._loop = SupervisedLoop(
            "flush loop", self._round, interval_ms=config.flush_interval_ms, expected_errors=(StoreError,)
        )

    def start(self) -> None:
        """Begin the rounds."""
        self._loop.start()

    def wake(self) -> None:
        """Begin the next round, and report, now: the log waits for the report, or a caller waits for its answer."""
        self._loop.wake()

    async def stop(self) -> None:
        """End the rounds after the current round, and make nothing else durable."""
        await self._loop.stop()
        async with self._progress.lock:
            pass

    async def finish(self) -> None:
        """Make everything durable and mark the progress as clean, after `stop`. Raises SyncFailed and OSError.

        Indexes that are being built again are not clean: the next start must know that they lack records. Indexes with
        a batch that was entered in part are not clean either: the next start must find its units.
        The progress is reported last, if the log is available. RocketMQ's checkpoint decides which index files it keeps
        after a crash.
        """
        await self.flush(is_thorough=True, is_clean=self._indexes.completeness.is_complete)
        await self._report()

    @property
    def flushed_physical_offset(self) -> int:
        """End of the indexed records that survive a power cut, exclusive."""
        return min(self._progress.value.queue_physical_offset, self._progress.value.index_physical_offset)

    def check(self) -> None:
        """Raise the error of a failed sync, if a sync has failed."""
        if self._failure is not None:
            raise self._failure

    def fail(self, error: Exception) -> None:
        """Stop after a failed sync: the content of the disk is unknown. Progress is not saved, and the process ends."""
        self._failure = error
        self._on_failure(error)

    async def flush(self, *, is_thorough: bool, is_clean: bool = False) -> None:
        """Run a round. After a thorough round all records entered before the call are durable, and progress is saved.

        The round runs to its end even if the caller is cancelled meanwhile. Raises SyncFailed and OSError. After the
        first error every call raises the same error: a later successful sync does not cover the data of a failed sync.
        """
        await uninterrupted(self._flush(self._config.flush_pages_min, is_thorough=is_thorough, is_clean=is_clean))

    async def sync_queues(self) -> None:
        """Sync all queues, so that none of their files must stay mapped. Raises the errors of `flush`."""
        await uninterrupted(self._flush(0))

    async def _flush(self, page_count_min: int, *, is_thorough: bool = False, is_clean: bool = False) -> None:
        async with self._progress.lock:
            self.check()
            reached = self._indexes.reached
            has_expired = bool(self._queues.expired or self._index.expired)
            is_thorough = is_thorough or has_expired or reached.epoch != self._progress.value.epoch
            is_clean = is_clean and not reached.is_ahead  # a clean start assumes that there is nothing past it
            known = self._queues.described(self._known(is_clean=is_clean))
            expired_count = len(self._queues.expired)
            new = self._queues.unsynced.take_new() if is_thorough else []
            queues = self._queues.begin_sync(0 if is_thorough else page_count_min)
            files = self._index.unfinished()
            files_due = files if is_thorough else files[:-1]
            try:
                if await self._queues.together.sync(queues, new):
                    queues, new = [], []
                if queues or files_due:
                    await sync_all(queues, files_due)
                if new:
                    await asyncio.to_thread(self._queues.together.sync_names, new)
            except Exception as error:
                self.fail(error)
                raise
            self._queues.end_sync()
            self._index.mark_finished(files[:-1])
            self.sync_round_count += 1
            if is_thorough:
                await self._write_down(known, expired_count)

    async def _round(self) -> None:
        now_s = self._clock.monotonic_s()
        is_thorough = now_s - self._thorough_at_s >= self._config.flush_thorough_interval_ms / 1000
        if is_thorough:
            self._thorough_at_s = now_s
        await self.flush(is_thorough=is_thorough)
        await self._report()

    async def _report(self) -> None:
        try:
            report = self.report()
            self._on_log_role(await self._source.report(report), report.epoch)
        except DependencyUnavailable as error:
            _log.debug("progress was not reported: %s", error)

    def report(self) -> ProgressReport:
        """Return a report of the current progress of the indexes."""
        reached, written = self._indexes.reached, self._progress.value
        return ProgressReport(
            indexed_physical_offset=reached.indexed_physical_offset,
            flushed_physical_offset=self.flushed_physical_offset,
            queue_flushed_time_ms=written.queue_time_ms,
            index_flushed_time_ms=written.index_time_ms,
            epoch=reached.epoch,
            history_id=self._indexes.history.history_id,
        )

    def _known(self, *, is_clean: bool) -> IndexProgress:
        """Return the progress that will be certain once all entered records are synced."""
        reached = self._indexes.reached
        return IndexProgress(
            epoch=reached.epoch,
            is_clean=is_clean,
            queue_physical_offset=reached.indexed_physical_offset,
            index_physical_offset=self._index.next_physical_offset,  # past it if a batch fitted only in part
            queue_end_sum=-1 if reached.is_ahead else self._queues.sums.end,  # some queues may have more units
            queue_time_ms=reached.last_store_time_ms or self._progress.value.queue_time_ms,
            stepped_over=self._queues.stepped_over.notes(),
            queue_begins=self._queues.kept_begins(),
        )

    async def _write_down(self, known: IndexProgress, queue_file_count: int) -> None:
        index_file_count = len(self._index.expired)
        progress = self._index.described(known)
        failpoint("progress.before_save")
        await self._progress.save(progress)
        failpoint("progress.after_save")
        await asyncio.to_thread(self._queues.remove, self._queues.pop_expired(queue_file_count))
        await asyncio.to_thread(self._index.remove, self._index.pop_expired(index_file_count))
        await asyncio.to_thread(self._ballast.occupy)


async def sync_all(queues: list[ConsumeQueue], files: list[IndexFile]) -> None:
    """Sync all in threads, and wait for every thread. Raises the first error."""
    part_count = min(SYNC_THREAD_COUNT_MAX, 1 + len(queues) // QUEUE_COUNT_OF_A_THREAD)
    if part_count == 1:
        await asyncio.to_thread(_sync_each, [*queues, *files])
        return
    parts: list[Sequence[ConsumeQueue | IndexFile]] = [queues[start::part_count] for start in range(part_count)]
    threads = [asyncio.to_thread(_sync_each, part) for part in [*parts, files]]
    for result in await asyncio.gather(*threads, return_exceptions=True):
        if result is not None:
            raise result


def _sync_each(tables: Sequence[ConsumeQueue | IndexFile]) -> None:
    for table in tables:
        table.sync()
