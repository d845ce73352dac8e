# SPDX-License-Identifier: Apache-2.0
"""ReputLoop: enters the log's records into the indexes, in order, and follows the log's live end.

States: RECOVERING -> CONNECTING -> CATCHING_UP <-> LIVE, back to CONNECTING whenever the log goes away, and STOPPED for
good when a record can't be entered: nothing is ever skipped, an operator decides.
Invariants: a batch is entered only if it begins where the last one ended; `indexed_physical_offset` moves after the
effect; entering a batch again changes nothing, so any failure may be answered by asking for it again.
Callers: the event loop's thread. Not handled: making things durable (FlushLoop).
RocketMQ's counterpart is ReputMessageService, which skips what it can't read.
"""

import asyncio
import contextlib
import enum
import logging
from dataclasses import dataclass

import msgspec
import numpy as np

from libs.formats.dispatch_columns import DispatchBatch, Handshake, Heartbeat
from libs.machine.loop import SupervisedLoop
from libs.machine.uninterrupted import uninterrupted
from libs.store.errors import StoreFull
from services.indexer.engine.consume_queue_table import ConsumeQueueTable
from services.indexer.engine.index_table import IndexTable
from services.indexer.engine.log_source import LogSource
from services.indexer.engine.long_poll import LongPolls
from services.indexer.engine.progress import ProgressKeeper
from services.indexer.errors import DependencyUnavailable, Inapplicable

_log = logging.getLogger(__name__)


class ReputState(enum.IntEnum):
    """What the loop does; the numbers are those of the protocol."""

    RECOVERING = 1
    CONNECTING = 2
    CATCHING_UP = 3
    LIVE = 4
    STOPPED = 5


@dataclass(frozen=True, slots=True)
class Gap:
    """Records [start, end) were gone from the log before they were entered."""

    start_physical_offset: int
    end_physical_offset: int


class ReputLoop:
    """Feeds the tables from a LogSource. Make it, `recover` it, `start` it; each once."""

    def __init__(
        self,
        source: LogSource,
        queues: ConsumeQueueTable,
        index: IndexTable,
        polls: LongPolls,
        progress: ProgressKeeper,
        *,
        reconnect_ms_max: int,
    ) -> None:
        self.state = ReputState.RECOVERING
        self.indexed_physical_offset = 0
        self.history_change_count = 0
        """How often the log turned out to have another history; FlushLoop writes progress after each change."""
        self.epoch = 0
        self.confirmed_physical_offset = 0
        self.applied_record_count = 0
        self.last_store_time_ms = 0
        self.last_error = ""
        self.last_gap: Gap | None = None
        self.gap_count = 0
        self._source = source
        self._queues = queues
        self._index = index
        self._polls = polls
        self._progress = progress
        self._loop = SupervisedLoop(
            "reput loop",
            self._follow,
            backoff_ms_min=min(100, reconnect_ms_max),
            backoff_ms_max=reconnect_ms_max,
            expected_errors=(DependencyUnavailable, StoreFull),
        )

    def recover(self, *, indexed_physical_offset: int, epoch: int) -> None:
        """Tell where to go on."""
        self.indexed_physical_offset = indexed_physical_offset
        self.epoch = epoch

    def start(self) -> None:
        """Begin to follow the log."""
        self.state = ReputState.CONNECTING
        self._loop.start()

    async def stop(self) -> None:
        """End the stream; what was entered stays."""
        await self._loop.stop()

    def halt(self, error: Exception) -> None:
        """Stop for good: the indexes can't go on. The reason shows in the status until the service is restarted."""
        self.state = ReputState.STOPPED
        self.last_error = str(error)
        _log.critical("indexing has stopped, an operator must decide: %s", error)

    async def _follow(self) -> None:
        """Follow one stream to its end. Raises what ended it, except for what nobody can repair by trying again."""
        if self.state == ReputState.STOPPED:
            await asyncio.Event().wait()
        self.state = ReputState.CONNECTING
        try:
            async with contextlib.aclosing(self._source.follow(self.indexed_physical_offset, self.epoch)) as steps:
                async for step in steps:
                    if not await self._take(step):
                        break
        except Inapplicable as error:
            self.halt(error)
        except Exception as error:
            self.state = ReputState.CONNECTING
            is_expected = isinstance(error, DependencyUnavailable | StoreFull)
            self.last_error = str(error) if is_expected else f"{type(error).__name__}: {error}"
            raise

    async def _take(self, step: Handshake | DispatchBatch | Heartbeat) -> bool:
        """Do one step; False if the stream must be asked for again from another offset."""
        if self.state == ReputState.STOPPED:
            return False
        if isinstance(step, DispatchBatch):
            await self._queues.prepare(step)
            self.apply(step)
        else:
            if isinstance(step, Handshake) and not await self._shake(step):
                return False
            self.confirmed_physical_offset = step.confirmed_physical_offset
            self._queues.min_physical_offset = max(self._queues.min_physical_offset, step.min_physical_offset)
        is_behind = self.indexed_physical_offset < self.confirmed_physical_offset
        self.state = ReputState.CATCHING_UP if is_behind else ReputState.LIVE
        return True

    def apply(self, batch: DispatchBatch) -> None:
        """Enter one batch. May be repeated after any error. Raises Inapplicable and StoreFull.

        With Inapplicable everything before the record that is at fault was entered, and nothing from there on.
        """
        self._check(batch)
        try:
            self._queues.check(batch)
            self._index.check(batch)
        except Inapplicable as error:
            if error.physical_offset > batch.start_physical_offset:
                self.apply(_before(batch, error.physical_offset))
            raise
        touched = self._queues.append(batch)
        self._index.put(batch)
        self.indexed_physical_offset = batch.end_physical_offset
        self.confirmed_physical_offset = max(self.confirmed_physical_offset, batch.end_physical_offset)
        self.applied_record_count += len(batch.physical_offsets)
        if len(batch.store_times_ms):
            self.last_store_time_ms = int(batch.store_times_ms[-1])
        self._polls.wake(touched)

    def _check(self, batch: DispatchBatch) -> None:
        """Refuse what does not continue the log: the stream comes from outside."""
        start, end = batch.start_physical_offset, batch.end_physical_offset
        if start != self.indexed_physical_offset:
            raise Inapplicable(f"expected {self.indexed_physical_offset} next", physical_offset=start)
        starts, sizes = batch.physical_offsets, batch.record_sizes
        ends = starts + sizes
        is_sound = (
            end >= start
            and (not len(starts) or (starts[0] >= start and ends[-1] <= end))
            and bool((sizes > 0).all())
            and bool((starts[1:] >= ends[:-1]).all())
        )
        if not is_sound:
            raise Inapplicable(f"the records up to {end} do not follow each other", physical_offset=start)

    async def _shake(self, handshake: Handshake) -> bool:
        """Agree on where the histories part; False if the records to enter next lie before the stream's."""
        common_end = min(self.indexed_physical_offset, handshake.common_end_physical_offset)
        if common_end < self.indexed_physical_offset:
            _log.warning("the log lost its tail: dropping what was indexed from %d on", common_end)
            await uninterrupted(self._take_back(common_end))
        if handshake.epoch != self.epoch:
            self.history_change_count += 1
        self.epoch = handshake.epoch
        if self.indexed_physical_offset < handshake.min_physical_offset:
            self._skip_to(handshake.min_physical_offset)
        elif self.indexed_physical_offset < common_end:
            return False
        return True

    async def _take_back(self, end_physical_offset: int) -> None:
        """Forget all records at or past this offset. Progress is lowered first: a crash in between loses nothing."""
        async with self._progress.turn:
            finished_file, replay_physical_offset = self._index.after_truncation(end_physical_offset)
            known = self._progress.value
            lowered = msgspec.structs.replace(
                known,
                queue_physical_offset=min(known.queue_physical_offset, end_physical_offset),
                index_physical_offset=min(known.index_physical_offset, replay_physical_offset),
                index_replay_physical_offset=min(known.index_replay_physical_offset, replay_physical_offset),
                index_finished_file=min(known.index_finished_file, finished_file),
            )
            await self._progress.save(lowered)
            self._queues.truncate(end_physical_offset)
            self._index.truncate(end_physical_offset)
            self.indexed_physical_offset = self._index.next_physical_offset
            self.history_change_count += 1

    def _skip_to(self, min_physical_offset: int) -> None:
        """Go on at the log's first byte: what was before it is gone, so nobody can index it any more."""
        if self.indexed_physical_offset > 0:
            self.last_gap = Gap(self.indexed_physical_offset, min_physical_offset)
            self.gap_count += 1
            _log.error(
                "the records from %d to %d were deleted before they were indexed",
                self.indexed_physical_offset,
                min_physical_offset,
            )
        self.indexed_physical_offset = min_physical_offset
        self._index.next_physical_offset = max(self._index.next_physical_offset, min_physical_offset)


def _before(batch: DispatchBatch, physical_offset: int) -> DispatchBatch:
    """The part of a batch whose records lie below an offset."""
    count = int(np.searchsorted(batch.physical_offsets, physical_offset))
    key_count = int(batch.key_counts[:count].sum())
    return DispatchBatch(
        start_physical_offset=batch.start_physical_offset,
        end_physical_offset=physical_offset,
        queues=batch.queues,
        physical_offsets=batch.physical_offsets[:count],
        record_sizes=batch.record_sizes[:count],
        queue_indexes=batch.queue_indexes[:count],
        queue_offsets=batch.queue_offsets[:count],
        tags_codes=batch.tags_codes[:count],
        store_times_ms=batch.store_times_ms[:count],
        key_counts=batch.key_counts[:count],
        key_hashes=batch.key_hashes[:key_count],
    )
