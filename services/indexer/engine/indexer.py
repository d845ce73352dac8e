# SPDX-License-Identifier: Apache-2.0
"""Indexer: one store's indexes from their recovery to their last sync. `build` makes it with all of its parts.

Recovery: after a clean stop everything is as the progress file says. Otherwise queues are cut to what was synced for
certain, index files after the last finished one are dropped, and the log is asked for everything from there on; what is
there already is recognised and not entered again, and calls that need the indexes wait for it (Completeness). Without a
progress file everything is built anew. Index files that RocketMQ has changed since a clean stop are dropped as after an
unclean one. When the files hold less than was synced for certain, all of them are dropped and built anew.
Callers: the event loop's thread, except `open`, which blocks and may run in a worker thread before anything else.
"""

import logging
from dataclasses import dataclass
from pathlib import Path

from libs.formats import store_layout
from libs.formats.state.index_progress import IndexProgress
from libs.log.state.set_apart import SetApart
from libs.machine.fs import Fs, Lock
from libs.machine.loop import SupervisedLoop
from libs.segments.ballast import Ballast
from libs.segments.errors import SegmentMissing
from services.indexer.engine.answer.answers import Answers
from services.indexer.engine.deliver.delay_delivery import DelayDelivery
from services.indexer.engine.follow.completeness import Completeness
from services.indexer.engine.follow.flush import FlushLoop
from services.indexer.engine.follow.history import LogHistory
from services.indexer.engine.follow.indexes import Indexes
from services.indexer.engine.follow.long_poll import LongPolls
from services.indexer.engine.follow.queue_end_check import QueueEndCheck
from services.indexer.engine.follow.reput_loop import ReputLoop
from services.indexer.engine.follow.reput_state import ReputStates
from services.indexer.engine.groups.consumer_offsets import ConsumerOffsets
from services.indexer.engine.tables.index import NewestFile
from services.indexer.engine.tables.progress import ProgressKeeper
from services.indexer.engine.upkeep.online_rebuild import OnlineRebuild
from services.indexer.engine.upkeep.queue_removal import QueueRemoval
from services.indexer.engine.upkeep.trim import Trim
from services.indexer.errors import FilesMissing

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Follow:
    """What happens as the log grows."""

    states: ReputStates
    reput: ReputLoop
    flush: FlushLoop
    completeness: Completeness
    polls: LongPolls
    delivery: DelayDelivery | None


@dataclass(frozen=True, slots=True)
class Upkeep:
    """What operators and the Janitor ask for."""

    trim: Trim
    removal: QueueRemoval
    rebuild: OnlineRebuild


@dataclass(frozen=True, slots=True)
class Files:
    """What an Indexer has on the disk besides the indexes."""

    fs: Fs
    data_dir: Path
    progress: ProgressKeeper
    history: LogHistory
    ballast: Ballast


class Indexer:
    """The indexes of one store. `open` it, `start` it, `close` it; each once."""

    def __init__(
        self,
        files: Files,
        *,
        indexes: Indexes,
        follow: Follow,
        answers: Answers,
        groups: ConsumerOffsets,
        upkeep: Upkeep,
        group_interval_ms: int,
    ) -> None:
        self.indexes = indexes
        self.follow = follow
        self.answers = answers
        self.groups = groups
        self.upkeep = upkeep
        self._files = files
        self._queue_end_check = QueueEndCheck(indexes.queues, follow.states)
        self._group_loop = SupervisedLoop("offsets", groups.tend, interval_ms=group_interval_ms)
        self._lock: Lock | None = None
        self._is_open = False

    def open(self, *, anew: bool = False) -> None:
        """Take the directory's lock and recover. Blocks. Raises StoreLocked, StoreError, FormatError and OSError.

        With `anew` nothing on the disk is believed, so that all indexes are dropped; so it is when files are missing.
        """
        files, queues, index = self._files, self.indexes.queues, self.indexes.index
        files.fs.make_directory(files.data_dir / store_layout.REPUT)
        self._lock = files.fs.lock(files.data_dir / store_layout.INDEXER_LOCK)
        queues.set_apart = SetApart.load(files.fs, files.data_dir)
        self.groups.load()
        files.history.load()
        progress = files.progress.forget() if anew else files.progress.load()
        try:
            self._load(progress)
        except (FilesMissing, SegmentMissing) as error:
            _log.error("all indexes are built anew: %s", error)
            queues.detach()
            progress = files.progress.forget()
            self._load(progress)
        if self.follow.delivery is not None:
            self.follow.delivery.load()
        files.progress.mark_running()
        self.indexes.recover(
            indexed_physical_offset=min(progress.queue_physical_offset, index.next_physical_offset),
            entered_physical_offset=max(
                progress.queue_physical_offset, index.next_physical_offset, *queues.begins.values()
            ),
            epoch=progress.epoch,
        )
        if not progress.is_clean or index.next_physical_offset < progress.index_physical_offset:
            self.follow.completeness.lose()
        files.ballast.occupy()
        self._is_open = True

    def _load(self, progress: IndexProgress) -> None:
        queues = self.indexes.queues
        queues.load(
            bound_physical_offset=progress.queue_physical_offset,
            is_clean=progress.is_clean and progress.queue_end_sum >= 0,
            start_sum_max=progress.queue_start_sum,
            end_sum=progress.queue_end_sum,
            file_count_min=progress.queue_file_count,
        )
        queues.stepped_over.restore(progress.stepped_over)
        queues.begins = {(topic, queue_id): end for topic, queue_id, end in progress.queue_begins}
        self.indexes.index.load(
            next_physical_offset=progress.index_physical_offset,
            replay_physical_offset=progress.index_replay_physical_offset,
            finished_file=progress.index_finished_file,
            finished_count=progress.index_finished_count,
            newest=NewestFile(progress.index_newest_file, progress.index_newest_entry),
            is_clean=progress.is_clean,
        )

    def start(self) -> None:
        """Begin to follow the log."""
        self.follow.reput.start()
        self.follow.flush.start()
        self._queue_end_check.start()
        self._group_loop.start()
        if self.follow.delivery is not None:
            self.follow.delivery.start()

    def drain(self) -> None:
        """End all waiting pulls."""
        self.follow.polls.close()

    async def close(self) -> None:
        """Stop the loops, make everything durable, mark the stop as clean. Raises what keeps it from being clean."""
        await self._stop_loops()
        try:
            if self._is_open:
                if self.follow.delivery is not None:
                    await self.follow.delivery.stop()
                await self.groups.save()
                await self.follow.flush.stop()
        finally:
            self._let_go()

    async def abandon(self) -> None:
        """End without the last steps: nothing is made durable or written down."""
        await self._stop_loops()
        if self.follow.delivery is not None:
            await self.follow.delivery.abandon()
        await self.follow.flush.abandon()
        self._let_go()

    async def _stop_loops(self) -> None:
        await self._queue_end_check.stop()
        await self.upkeep.rebuild.stop()
        await self.follow.reput.stop()
        await self.upkeep.removal.stop()
        await self._group_loop.stop()

    def _let_go(self) -> None:
        self.indexes.queues.close()
        self.indexes.index.close()
        if self._lock is not None:
            self._lock.release()
