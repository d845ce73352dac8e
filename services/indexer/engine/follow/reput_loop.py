# SPDX-License-Identifier: Apache-2.0
"""ReputLoop: enters the log's records into the indexes, in order, and follows the log's live end.

States: RECOVERING -> CONNECTING -> CATCHING_UP <-> LIVE, back to CONNECTING whenever the log goes away, and STOPPED for
good when the indexes contradict the log: an operator decides. A record that fits no queue is stepped over with a note.
A rebuild drops everything between two steps, from any of these states, and is REBUILDING until the indexes are complete
again.
Invariants: a batch is entered only if it begins where the last one ended; `indexed_physical_offset` moves after the
effect; entering a batch again changes nothing, so any failure may be answered by asking for it again.
Callers: the event loop's thread. Not handled: making things durable (FlushLoop).
RocketMQ's counterpart is ReputMessageService, which skips what it can't read.
"""

import asyncio
import contextlib
import dataclasses
import enum
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

import msgspec
import numpy as np

from libs.formats.records.dispatch_columns import DispatchBatch, Handshake, Heartbeat
from libs.formats.state.index_progress import QueueBegin
from libs.log.agreement import (
    Adopt,
    AskAgain,
    Change,
    Continue,
    DropAll,
    Mine,
    Refuse,
    SkipTo,
    Theirs,
    Undo,
    agree,
)
from libs.machine.failpoints import failpoint
from libs.machine.loop import SupervisedLoop
from libs.machine.uninterrupted import uninterrupted
from libs.segments.errors import IndexDamaged, StoreError, StoreFull, SyncFailed
from services.indexer.engine.follow.completeness import Completeness
from services.indexer.engine.follow.deleted_topics import DeletedTopics
from services.indexer.engine.follow.history import LogHistory
from services.indexer.engine.follow.long_poll import LongPolls
from services.indexer.engine.follow.queue_end_report import QueueEndReport
from services.indexer.engine.log.source import LogSource
from services.indexer.engine.tables.index import IndexTable
from services.indexer.engine.tables.progress import ProgressKeeper
from services.indexer.engine.tables.queues import ConsumeQueueTable
from services.indexer.errors import DependencyUnavailable, Inapplicable, NotARecord, RecordDamaged, SyncNeeded

_log = logging.getLogger(__name__)


class ReputState(enum.IntEnum):
    """What the loop does; the numbers are those of the protocol."""

    RECOVERING = 1
    CONNECTING = 2
    CATCHING_UP = 3
    LIVE = 4
    STOPPED = 5
    REBUILDING = 6


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
        history: LogHistory,
        deleted_topics: DeletedTopics,
        *,
        reconnect_ms_max: int,
    ) -> None:
        self.state = ReputState.RECOVERING
        self.indexed_physical_offset = 0
        self.entered_physical_offset = 0
        """End of what any of the indexes holds; past the other while records are entered again. The log's history is
        compared with this one: what lies between may be from a tail that the log has lost."""
        self.queue_end_sum = -1
        """Sum of the ends of all queues as far as they are indexed; -1 if unknown."""
        self.history_change_count = 0
        """How often the log turned out to have another history; FlushLoop writes progress after each change."""
        self.epoch = 0
        self.confirmed_physical_offset = 0
        self.applied_record_count = 0
        self.last_store_time_ms = 0
        self.last_error = ""
        self.completeness = Completeness()
        self.turn = asyncio.Lock()
        """Held during each step. A removal of queues holds it, too, and takes the turn of progress after it."""
        self.last_gap: Gap | None = None
        self.gap_count = 0
        self.on_history_change: Callable[[bool], None] = lambda _is_truncated: None
        """Called when the log lost its tail, or may have; tells whether the indexes were cut for it."""
        self.sync_queues: Callable[[], Awaitable[None]]
        """Makes what was entered durable, so that more can be."""
        self._source = source
        self._queues = queues
        self._index = index
        self._polls = polls
        self._progress = progress
        self._history = history
        self._deleted_topics = deleted_topics
        self._queue_ends = QueueEndReport(source, queues, history)
        self._stream_start = 0
        self._misplaced: NotARecord | None = None
        """The log has no record where the indexes end."""
        self._is_agreed = False
        """The histories were compared, and the stream is to be asked for again from where to go on."""
        self.heard = asyncio.Event()
        """Set when the log was heard for the first time and the histories agree, or the loop has stopped."""
        self.is_log_away = True
        """Whether the log was out of reach when it was last asked."""
        self.is_disk_full = False
        """Whether the last batch met a disk without room for it."""
        self._is_rebuilding = False
        self._drop_wanted = asyncio.Event()
        self._loop = SupervisedLoop(
            "reput loop",
            self._follow,
            backoff_ms_min=min(100, reconnect_ms_max),
            backoff_ms_max=reconnect_ms_max,
            expected_errors=(DependencyUnavailable, RecordDamaged, StoreError),
        )

    def recover(self, *, indexed_physical_offset: int, entered_physical_offset: int, epoch: int) -> None:
        """Tell where to go on, up to where the indexes hold anything, and the epoch that all of it is from."""
        assert indexed_physical_offset <= entered_physical_offset
        self.indexed_physical_offset = indexed_physical_offset
        self.entered_physical_offset = entered_physical_offset
        self.epoch = epoch
        self.count_units()

    @property
    def history_id(self) -> str:
        """Name of the history that the epoch belongs to; empty if unknown."""
        return self._history.history_id

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
        self.completeness.changed.set()
        self.heard.set()
        _log.critical("indexing has stopped, an operator must decide: %s", error)

    def request_rebuild(self) -> None:
        """Drop all indexes before the next step and begin at the log's first byte, also after a halt."""
        self.completeness.lose()
        self._is_rebuilding = True
        self.last_error = ""
        self._drop_wanted.set()

    async def _follow(self) -> None:
        """Follow one stream to its end. Raises what ended it, except for what nobody can repair by trying again."""
        if self.state == ReputState.STOPPED:
            await self._drop_wanted.wait()
        self.state = ReputState.CONNECTING
        try:
            if self._drop_wanted.is_set():
                await uninterrupted(self._drop_all())
            self._stream_start = self.indexed_physical_offset if self._is_agreed else self.entered_physical_offset
            if self._misplaced is not None:
                self._stream_start = 0
            self._is_agreed = False
            async with contextlib.aclosing(self._source.follow(self._stream_start, self.epoch)) as steps:
                async for step in steps:
                    self.is_log_away = False
                    if not await self.take(step):
                        break
                    self.heard.set()
                    if isinstance(step, Handshake):
                        self._queue_ends.begin(epoch=step.epoch, min_physical_offset=step.min_physical_offset)
        except Inapplicable as error:
            self.halt(error)
        except NotARecord as error:
            self._misplaced = error  # perhaps it is another log: its handshake from 0 on tells
        except IndexDamaged as error:
            _log.error("all indexes are built anew: %s", error)
            self.request_rebuild()
        except SyncFailed:
            raise  # FlushLoop has halted this one
        except Exception as error:
            self.state = ReputState.CONNECTING
            self.is_log_away = isinstance(error, DependencyUnavailable)
            is_expected = self.is_log_away or isinstance(error, StoreFull)
            self.last_error = str(error) if is_expected else f"{type(error).__name__}: {error}"
            raise
        finally:
            await self._queue_ends.stop()

    async def take(self, step: Handshake | DispatchBatch | Heartbeat) -> bool:
        """Do one step; False if the stream must be asked for again from another offset.

        Callers: the loop itself, and `rebuild`, which has no loop. Raises Inapplicable, StoreFull and SyncFailed.
        """
        async with self.turn:
            try:
                is_taken = await self._take(step)
            except StoreFull:
                self.is_disk_full = True
                raise
            self.is_disk_full &= not isinstance(step, DispatchBatch)
            return is_taken

    async def _take(self, step: Handshake | DispatchBatch | Heartbeat) -> bool:
        if self.state == ReputState.STOPPED or self._drop_wanted.is_set():
            return False
        if isinstance(step, DispatchBatch):
            self.entered_physical_offset = max(self.entered_physical_offset, step.end_physical_offset)
            self.count_units()  # if it fails a part may be in: units, or a queue's first file
            with contextlib.suppress(Inapplicable):  # `apply` will say so, and enters what lies before it
                await self._prepare(step)
            await self._enter(step)
        else:
            if isinstance(step, Handshake):
                self._queues.set_apart.learn(step.set_apart)
                if not await self._shake(step):
                    return False
            self.confirmed_physical_offset = step.confirmed_physical_offset
            self.completeness.hear(step.confirmed_physical_offset)
            self._queues.min_physical_offset = max(self._queues.min_physical_offset, step.min_physical_offset)
        if self._drop_wanted.is_set():  # a rebuild was asked for during the step: nothing is complete any more
            return False
        is_behind = self.indexed_physical_offset < self.confirmed_physical_offset
        self.completeness.reach(self.indexed_physical_offset, is_end=not is_behind)
        self._is_rebuilding &= not self.completeness.is_complete
        behind = ReputState.REBUILDING if self._is_rebuilding else ReputState.CATCHING_UP
        self.state = behind if is_behind else ReputState.LIVE
        return True

    async def _prepare(self, batch: DispatchBatch) -> None:
        """Make the room that a batch needs. Raises Inapplicable, StoreFull, DependencyUnavailable and OSError."""
        await self._deleted_topics.look_again(batch)
        while True:
            try:
                await self._begin_again(batch)
                await self._queues.prepare(batch)
            except StoreFull:
                if not await self._deleted_topics.leave_out(batch):
                    raise
            else:
                break

    async def _begin_again(self, batch: DispatchBatch) -> None:
        """Drop the units of queues that begin again with this batch. Raises Inapplicable and OSError.

        Progress says so first: that its sums are unknown, so that a crash in between costs no rebuild, and with which
        record, because the units must come back if the log loses that one.
        """
        if begins := self._queues.begins_of(batch):
            self._check(batch)
            await uninterrupted(self._drop_older(begins))

    async def _drop_older(self, begins: list[QueueBegin]) -> None:
        async with self._progress.turn:
            names = [(topic, queue_id) for topic, queue_id, _ in begins if self._queues.has_units(topic, queue_id)]
            self._queues.begins.update({(begin.topic, begin.queue_id): begin.end_physical_offset for begin in begins})
            known, all_begins = self._progress.value, self._queues.kept_begins()
            await self._progress.save(
                msgspec.structs.replace(known, queue_start_sum=-1, queue_end_sum=-1, queue_begins=all_begins)
            )
            failpoint("generation.before_remove")
            self._queues.detach_queues(names)
            self.count_units()
            await asyncio.to_thread(self._queues.remove_queues, names)
            failpoint("generation.after_remove")
        for begin in begins:
            _log.warning("queue %s/%d begins again with the record that ends at physical offset %d", *begin)

    async def _enter(self, batch: DispatchBatch) -> None:
        """Apply a batch, with as many syncs in between as its queues need: each attempt gets further."""
        while True:
            try:
                self.apply(batch)
            except SyncNeeded:
                await self.sync_queues()
            else:
                break

    def apply(self, batch: DispatchBatch) -> None:
        """Enter one batch. May be repeated after any error. Raises Inapplicable, StoreFull and SyncNeeded.

        With Inapplicable everything before the record that is at fault was entered, and nothing from there on.
        """
        self._check(batch)
        try:
            self._queues.place(batch)
            self._index.check(batch)
        except Inapplicable as error:
            if error.physical_offset > batch.start_physical_offset:
                self.apply(_before(batch, error.physical_offset))
            raise
        touched = self._queues.append(batch)
        self._index.put(batch)
        self.indexed_physical_offset = batch.end_physical_offset
        self.entered_physical_offset = max(self.entered_physical_offset, batch.end_physical_offset)
        self.count_units()
        self.confirmed_physical_offset = max(self.confirmed_physical_offset, batch.end_physical_offset)
        self.applied_record_count += len(batch.physical_offsets)
        if len(batch.store_times_ms):
            self.last_store_time_ms = int(batch.store_times_ms[-1])
        self._polls.wake(touched)

    @property
    def is_ahead(self) -> bool:
        """Whether some of the indexes may hold records past `indexed_physical_offset`."""
        return self.indexed_physical_offset < self.entered_physical_offset

    def count_units(self) -> None:
        """Take note of what the queues hold now that all below `indexed_physical_offset` is entered.

        Queues that are ahead have more units than that, nobody knows how many.
        """
        self.queue_end_sum = -1 if self.is_ahead else self._queues.end_sum

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
        """Agree with the log on what the indexes hold; False if the stream must be asked for again."""
        theirs = Theirs(
            handshake.history_id,
            handshake.epoch,
            handshake.common_end_physical_offset,
            handshake.min_physical_offset,
        )
        while isinstance(verdict := agree(self._mine(), theirs), Change):
            await uninterrupted(self._execute(verdict, theirs))
        if isinstance(verdict, Refuse):
            raise Inapplicable(verdict.why, physical_offset=self.entered_physical_offset)
        if isinstance(verdict, DropAll):
            await uninterrupted(self._change_log(theirs.history_id))
        elif self.entered_physical_offset <= theirs.min_physical_offset:
            # all that the log has will be entered; other ends past its first byte are of a lost tail
            await uninterrupted(self._history.truncate(theirs.min_physical_offset, has_queue=_any))
        self._is_agreed = verdict == AskAgain(self.indexed_physical_offset)
        return isinstance(verdict, Continue)

    def _mine(self) -> Mine:
        return Mine(
            self.history_id,
            self.epoch,
            self.indexed_physical_offset,
            self.entered_physical_offset,
            asked_physical_offset=self._stream_start,
            is_misplaced=self._misplaced is not None,
        )

    async def _execute(self, verdict: Change, theirs: Theirs) -> None:
        match verdict:
            case Undo(end):
                self._stream_start = end
                if any(begin > end for begin in self._queues.begins.values()):
                    _log.error("the log lost the begin of a queue whose older units are gone: building all again")
                    await self._lose_all(end)
                else:
                    _log.warning("the log lost its tail: dropping what was indexed from %d on", end)
                    await self._take_back(end)
                    self.on_history_change(True)
            case Adopt():
                await self._adopt(theirs)
            case SkipTo(begin):
                await self._history.skip(self.indexed_physical_offset, begin)
                self._skip_to(begin)

    async def _change_log(self, history_id: str) -> None:
        _log.error("this is another log than the one that was indexed: dropping all indexes, to build its own")
        await self._lose_all(0)
        await self._history.adopt(history_id)

    async def _adopt(self, theirs: Theirs) -> None:
        if theirs.history_id:
            await self._history.adopt(theirs.history_id)
        if theirs.epoch != self.epoch:
            self.history_change_count += 1
            self.on_history_change(False)
        self.epoch = theirs.epoch

    async def _lose_all(self, end_physical_offset: int) -> None:
        """Drop all indexes, because the log is another one from this offset on."""
        self.completeness.lose()
        await self._drop_all()
        await self._history.truncate(end_physical_offset, has_queue=_any)
        self.on_history_change(True)

    async def _take_back(self, end_physical_offset: int) -> None:
        """Forget all records at or past this offset. Progress is lowered first: a crash in between loses nothing."""
        async with self._progress.turn:
            finished_file, replay_physical_offset = self._index.after_truncation(end_physical_offset)
            self._queues.stepped_over.truncate(end_physical_offset)
            known = self._progress.value
            lowered = msgspec.structs.replace(
                known,
                queue_physical_offset=min(known.queue_physical_offset, end_physical_offset),
                index_physical_offset=min(known.index_physical_offset, replay_physical_offset),
                index_replay_physical_offset=min(known.index_replay_physical_offset, replay_physical_offset),
                index_finished_file=min(known.index_finished_file, finished_file),
                index_finished_count=-1,
                index_time_ms=0,
                queue_start_sum=-1,
                queue_end_sum=-1,
                stepped_over=self._queues.stepped_over.notes(),
            )
            await self._progress.save(lowered)
            self.completeness.lose(max(end_physical_offset, self.completeness.target_physical_offset))
            self._queues.truncate(end_physical_offset)
            self._index.truncate(end_physical_offset)
            await self._history.truncate(end_physical_offset, has_queue=self._queues.has_units)
            self.indexed_physical_offset = min(self.indexed_physical_offset, self._index.next_physical_offset)
            self.entered_physical_offset = end_physical_offset
            self.count_units()
            self.history_change_count += 1

    async def _drop_all(self) -> None:
        """Forget everything. Progress says so first: a crash in between makes the next start do the same."""
        _log.warning("dropping all indexes, to build them again")
        async with self._progress.turn:
            await asyncio.to_thread(self._progress.forget)
            self._queues.detach()
            self._index.detach()
            await asyncio.to_thread(self._queues.remove_files)
            await asyncio.to_thread(self._index.remove_files)
            self.indexed_physical_offset = self.entered_physical_offset = 0
            self.count_units()
            self.last_store_time_ms = 0
            self.history_change_count += 1
            self._misplaced = None
            self._drop_wanted.clear()

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
        self.entered_physical_offset = max(self.entered_physical_offset, min_physical_offset)
        self.count_units()
        self._index.next_physical_offset = max(self._index.next_physical_offset, min_physical_offset)


def _any(_topic: str, _queue_id: int) -> bool:
    """All that the log has comes again."""
    return True


def _before(batch: DispatchBatch, physical_offset: int) -> DispatchBatch:
    """The part of a batch whose records lie below an offset."""
    count = int(np.searchsorted(batch.physical_offsets, physical_offset))
    key_count = int(batch.key_counts[:count].sum())
    return dataclasses.replace(
        batch,
        end_physical_offset=physical_offset,
        physical_offsets=batch.physical_offsets[:count],
        record_sizes=batch.record_sizes[:count],
        queue_indexes=batch.queue_indexes[:count],
        queue_offsets=batch.queue_offsets[:count],
        tags_codes=batch.tags_codes[:count],
        store_times_ms=batch.store_times_ms[:count],
        key_counts=batch.key_counts[:count],
        key_hashes=batch.key_hashes[:key_count],
    )
