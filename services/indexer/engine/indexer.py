# SPDX-License-Identifier: Apache-2.0
"""Indexer: the indexes of a store from their recovery to their last sync. `build` creates it with all of its parts.

Recovery: after a clean stop the files are as the progress file states. Otherwise queues are cut to their synced end,
index files after the last finished file are dropped, and the log is read from there on; existing entries are recognised
and not entered again, and calls that need the indexes are refused meanwhile (Completeness). Without a progress file all
indexes are built anew. Index files that RocketMQ has changed since a clean stop are dropped as after an unclean stop.
When the files hold less than was synced for certain, all of them are dropped and built anew.
Callers: the event loop's thread, except `open`, which blocks and may run in a worker thread before anything else.
"""

import asyncio

from msgspec import Struct

from libs.formats import store_layout
from libs.log.state.set_apart import SetApart
from libs.machine.fs import Fs, Lock
from libs.machine.loop import SupervisedLoop
from libs.segments.ballast import Ballast
from services.indexer.config import IndexerConfig
from services.indexer.engine.answer.answers import Answers
from services.indexer.engine.answer.topic_expiry import TopicExpiry
from services.indexer.engine.follow.completeness import Completeness
from services.indexer.engine.follow.flush import FlushLoop
from services.indexer.engine.follow.indexes import Indexes
from services.indexer.engine.follow.live_end import LiveEnd
from services.indexer.engine.follow.long_poll import LongPolls
from services.indexer.engine.follow.queue_end_check import check_queue_ends
from services.indexer.engine.follow.reput_loop import ReputLoop
from services.indexer.engine.follow.reput_state import ReputStates
from services.indexer.engine.groups.consumer_offsets import ConsumerOffsets
from services.indexer.engine.groups.delay_offsets import DelayOffsets
from services.indexer.engine.groups.group_configs import GroupConfigs
from services.indexer.engine.groups.timer_wheel import TimerWheel
from services.indexer.engine.measure.topic_measures import TopicMeasures
from services.indexer.engine.share.shared_state import SharedState
from services.indexer.engine.upkeep.filter_loop import FilterLoop
from services.indexer.engine.upkeep.online_rebuild import OnlineRebuild
from services.indexer.engine.upkeep.queue_removal import QueueRemoval
from services.indexer.engine.upkeep.trim import Trim


class Follow(Struct, frozen=True):
    """The parts that follow the log."""

    states: ReputStates
    reput: ReputLoop
    flush: FlushLoop
    completeness: Completeness
    polls: LongPolls
    live: LiveEnd
    shared_state: SharedState


class Upkeep(Struct, frozen=True):
    """The operations for operators, the Janitor and Delivery."""

    trim: Trim
    removal: QueueRemoval
    rebuild: OnlineRebuild
    group_configs: GroupConfigs
    timer_wheel: TimerWheel
    filters: FilterLoop
    measures: TopicMeasures
    expiry: TopicExpiry


class Indexer:
    """The indexes of a store. `open` it, `start` it, `close` it, each once."""

    def __init__(
        self,
        fs: Fs,
        config: IndexerConfig,
        ballast: Ballast,
        *,
        indexes: Indexes,
        follow: Follow,
        answers: Answers,
        groups: ConsumerOffsets,
        delay_offsets: DelayOffsets,
        upkeep: Upkeep,
    ) -> None:
        self.indexes = indexes
        self.follow = follow
        self.answers = answers
        self.groups = groups
        self._delay_offsets = delay_offsets
        self.upkeep = upkeep
        self._fs = fs
        self._data_dir = config.data_dir
        self._ballast = ballast
        self._end_check: asyncio.Task[None] | None = None
        self._group_loop = SupervisedLoop(
            "offsets", groups.run_maintenance, interval_ms=config.consumer_offset_interval_ms
        )
        self._lock: Lock | None = None
        self._is_open = False

    def open(self, *, anew: bool = False) -> None:
        """Lock the directory and recover. Blocks. Raises StoreLocked, StoreError, FormatError and OSError.

        With `anew` the progress is forgotten, so that all indexes are dropped.
        """
        self._fs.make_directory(self._data_dir / store_layout.REPUT)
        self._lock = self._fs.lock(self._data_dir / store_layout.INDEXER_LOCK)
        self.indexes.queues.set_apart = SetApart.load(self._fs, self._data_dir)
        self.groups.load()
        self._delay_offsets.load()
        self.upkeep.group_configs.load()
        self.indexes.recover(anew=anew)
        self.follow.shared_state.load()
        self.indexes.progress.mark_running()
        self._ballast.occupy()
        self._is_open = True

    def start(self) -> None:
        """Begin to follow the log."""
        self.follow.live.start()
        self.follow.reput.start()
        self.follow.flush.start()
        checking = check_queue_ends(self.indexes.queues, self.follow.states)
        self._end_check = asyncio.create_task(checking, name="check of the queues' ends")
        self._group_loop.start()
        self.follow.shared_state.start()
        self.upkeep.filters.start()
        self.upkeep.measures.start()

    def drain(self) -> None:
        """End all waiting pulls."""
        self.follow.polls.close()

    async def close(self) -> None:
        """Stop the loops, make everything durable, mark the stop as clean. Raises errors that prevent a clean stop."""
        if self._is_open:
            await self.follow.shared_state.hand_over()
        await self._stop_loops()
        try:
            if self._is_open:
                await self.follow.shared_state.finish()
                await self.groups.save()
                await self.follow.flush.finish()
        finally:
            self._let_go()

    async def abandon(self) -> None:
        """End without the last steps: nothing is made durable or saved."""
        await self._stop_loops()
        self._let_go()

    async def _stop_loops(self) -> None:
        if self._end_check is not None:
            self._end_check.cancel()
            await asyncio.wait([self._end_check])
        await self.upkeep.filters.stop()
        await self.upkeep.measures.stop()
        await self.upkeep.rebuild.stop()
        await self.follow.reput.stop()
        await self.follow.live.loop.stop()
        await self.upkeep.removal.stop()
        await self._group_loop.stop()
        await self.follow.shared_state.stop()
        await self.follow.flush.stop()

    def _let_go(self) -> None:
        self.indexes.queues.close()
        self.indexes.index.close()
        if self._lock is not None:
            self._lock.release()
