# SPDX-License-Identifier: Apache-2.0
"""Indexes: the queues and the key index together. A batch of the log is entered into both, and undone in both.

Invariants: a batch is entered only if it begins where the last batch ended; `reached` changes after the effect;
entering a batch again changes nothing, so after any failure it may be requested again. Before records are undone,
progress is lowered, and calls that would miss the records are refused (Completeness).
Callers: the event loop's thread; ReputLoop, within a step. Not handled: making things durable (FlushLoop).
RocketMQ's counterpart is CommitLogDispatcher and its two implementations.
"""

import asyncio
import logging
import time
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import msgspec

from libs.formats.epoch import Epoch
from libs.formats.records.dispatch_columns import DispatchBatch
from libs.formats.state.index_progress import IndexProgress, QueueBegin
from libs.machine.failpoints import failpoint
from libs.machine.uninterrupted import uninterrupted
from libs.segments.errors import SegmentMissing, StoreFull
from services.indexer.engine.follow.completeness import Completeness
from services.indexer.engine.follow.deleted_topics import DeletedTopics
from services.indexer.engine.follow.history import LogHistory
from services.indexer.engine.follow.live_end import LiveEnd
from services.indexer.engine.follow.long_poll import LongPolls
from services.indexer.engine.log.source import RecordSource
from services.indexer.engine.tables.index import IndexTable
from services.indexer.engine.tables.progress import ProgressFile
from services.indexer.engine.tables.queues import ConsumeQueueTable
from services.indexer.errors import FilesMissing, Inapplicable, NotIndexed

_log = logging.getLogger(__name__)


class Reached(NamedTuple):
    """The progress of the indexes. Offsets are physical, ends exclusive."""

    indexed_physical_offset: int = 0
    """All records below it are entered."""
    entered_physical_offset: int = 0
    """End of the records in any of the indexes. It is past `indexed_physical_offset` while records are entered again.
    The log's history is compared at this end: the records between may be of a tail that the log has lost."""
    epoch: int = 0
    """Epoch of the log that all entered records belong to; 0 if unknown."""
    last_store_time_ms: int = 0
    """Store time of the last record entered since the start; 0 without such a record."""

    @property
    def is_ahead(self) -> bool:
        """Whether an index may hold records past `indexed_physical_offset`."""
        return self.indexed_physical_offset < self.entered_physical_offset


class Indexes:
    """Both tables of a store, with their progress and history. Create it, then `recover` it once."""

    def __init__(
        self,
        queues: ConsumeQueueTable,
        index: IndexTable,
        polls: LongPolls,
        progress: ProgressFile,
        history: LogHistory,
        completeness: Completeness,
        records: RecordSource,
        live: LiveEnd,
    ) -> None:
        self.queues = queues
        self.index = index
        self.progress = progress
        self.history = history
        self.completeness = completeness
        self.reached = Reached()
        self.applied_record_count = 0
        self._polls = polls
        self._live = live
        self._deleted_topics = DeletedTopics(queues, records, progress)

    def recover(self, *, anew: bool) -> None:
        """Load the indexes from the disk. Blocks. Raises StoreError and OSError.

        With `anew`, and when files are missing, the progress is forgotten, so that all indexes are dropped.
        """
        self.history.load()
        self.queues.begin_topics(self.history.topic_begins)
        progress = self.progress.forget() if anew else self.progress.load()
        try:
            self._load(progress)
        except (FilesMissing, SegmentMissing) as error:
            _log.error("all indexes are built anew: %s", error)
            self.queues.detach()
            progress = self.progress.forget()
            self._load(progress)
        self.reached = Reached(
            min(progress.queue_physical_offset, self.index.next_physical_offset),
            max(progress.queue_physical_offset, self.index.next_physical_offset, *self.queues.begins.values()),
            progress.epoch,
        )
        if not progress.is_clean or self.index.next_physical_offset < progress.index_physical_offset:
            self.completeness.lose()

    def _load(self, progress: IndexProgress) -> None:
        self.queues.load(progress)
        self.index.load(progress)

    async def prepare(self, batch: DispatchBatch) -> None:
        """Make the room that a batch needs. Raises Inapplicable, StoreFull, DependencyUnavailable and OSError."""
        self._note_entered(batch.end_physical_offset)  # if it fails, a part may be in: units, or a queue's first file
        await self._deleted_topics.look_again(batch)
        while True:
            try:
                await self._begin_again(batch)
                await self.queues.prepare(batch)
            except StoreFull:
                if not await self._deleted_topics.leave_out(batch):
                    raise
            else:
                break

    async def _begin_again(self, batch: DispatchBatch) -> None:
        """Drop the units of queues that begin again with this batch. Raises Inapplicable and OSError.

        Progress is saved first. It says that its sums are unknown, so that a crash in between causes no rebuild, and
        with which record a queue begins again: if the log loses that record, the dropped units must come back.
        """
        if begins := self.queues.begins_of(batch):
            self._check(batch)
            await uninterrupted(self._drop_older(begins))

    async def _drop_older(self, begins: list[QueueBegin]) -> None:
        async with self.progress.lock:
            names = [(topic, queue_id) for topic, queue_id, _ in begins if self.queues.has_units(topic, queue_id)]
            self.queues.begins.update({(begin.topic, begin.queue_id): begin.end_physical_offset for begin in begins})
            known, all_begins = self.progress.value, self.queues.kept_begins()
            await self.progress.save(
                msgspec.structs.replace(known, queue_start_sum=-1, queue_end_sum=-1, queue_begins=all_begins)
            )
            failpoint("generation.before_remove")
            self.queues.detach_queues(names)
            await asyncio.to_thread(self.queues.remove_queues, names)
            failpoint("generation.after_remove")
        for begin in begins:
            _log.warning("queue %s/%d begins again with the record that ends at physical offset %d", *begin)

    def apply(self, batch: DispatchBatch) -> None:
        """Enter a batch. May be repeated after any error. Raises Inapplicable, StoreFull and SyncNeeded.

        With Inapplicable all records before the faulty record were entered, and no record from there on.
        """
        self._check(batch)
        try:
            self.queues.place(batch)
            self.index.check(batch)
        except Inapplicable as error:
            if error.physical_offset > batch.start_physical_offset:
                self.apply(batch.below(error.physical_offset))
            raise
        self._note_entered(batch.end_physical_offset)
        touched = self.queues.append(batch)
        self.index.put(batch)
        self.reached = self.reached._replace(indexed_physical_offset=batch.end_physical_offset)
        if len(batch.store_times_ms):
            self.reached = self.reached._replace(last_store_time_ms=int(batch.store_times_ms[-1]))
        self.applied_record_count += len(batch.physical_offsets)
        self._polls.wake(touched, batch.end_physical_offset)

    async def wait_for(self, physical_offset: int, wait_s: float) -> None:
        """Return once the record at this offset is indexed.

        Raises NotIndexed, WindowFull and Stopping; DependencyUnavailable at once while the log is not heard.
        """
        end_s = time.monotonic() + wait_s
        while self.reached.indexed_physical_offset <= physical_offset:
            self._live.check()
            if (left_s := end_s - time.monotonic()) <= 0:
                raise NotIndexed(physical_offset, indexed=self.reached.indexed_physical_offset)
            await self._polls.wait_indexed(physical_offset, left_s)

    def _note_entered(self, end_physical_offset: int) -> None:
        self.reached = self.reached._replace(
            entered_physical_offset=max(self.reached.entered_physical_offset, end_physical_offset)
        )

    def _check(self, batch: DispatchBatch) -> None:
        """Refuse a batch that does not continue the log: the stream comes from another process."""
        start, end = batch.start_physical_offset, batch.end_physical_offset
        if start != self.reached.indexed_physical_offset:
            raise Inapplicable(f"expected {self.reached.indexed_physical_offset} next", physical_offset=start)
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

    async def adopt(self, *, epoch: int, history_id: str, epochs: Sequence[Epoch]) -> None:
        """Adopt the log's epochs, and the name of its history if it has a name. Both are durable on return."""
        await self.history.adopt(history_id, epochs)
        self.reached = self.reached._replace(epoch=epoch)

    async def begin_topics(self, begins: Mapping[str, int]) -> None:
        """Show no message of a deleted topic below its begin. Durable on return."""
        if begins != self.history.topic_begins:
            self.queues.begin_topics(begins)
            await self.history.learn_topic_begins(begins)

    async def undo(self, end_physical_offset: int) -> None:
        """Undo all records at or past this offset. Progress is lowered first, so that a crash in between loses nothing.

        If a queue began again behind this offset, all indexes are dropped, because its earlier units are gone.
        """
        if any(begin > end_physical_offset for begin in self.queues.begins.values()):
            _log.error("the log lost the begin of a queue whose older units are gone: building all indexes again")
            await self.lose_all(end_physical_offset)
            return
        _log.warning("the log lost its tail: dropping what was indexed from %d on", end_physical_offset)
        async with self.progress.lock:
            self.queues.stepped_over.truncate(end_physical_offset)
            known = self.index.lowered(self.progress.value, end_physical_offset)
            lowered = msgspec.structs.replace(
                known,
                queue_physical_offset=min(known.queue_physical_offset, end_physical_offset),
                queue_start_sum=-1,
                queue_end_sum=-1,
                stepped_over=self.queues.stepped_over.notes(),
            )
            await self.progress.save(lowered)
            self.completeness.lose(max(end_physical_offset, self.completeness.target_physical_offset))
            self.queues.truncate(end_physical_offset)
            self.index.truncate(end_physical_offset)
            await self.history.truncate(end_physical_offset, has_queue=self.queues.has_units)
            self.reached = self.reached._replace(
                indexed_physical_offset=min(self.reached.indexed_physical_offset, self.index.next_physical_offset),
                entered_physical_offset=end_physical_offset,
            )

    async def lose_all(self, end_physical_offset: int) -> None:
        """Drop all indexes, because from this offset on the log is another log."""
        self.completeness.lose()
        await self.drop_all()
        await self.history.truncate(end_physical_offset)

    async def drop_all(self) -> None:
        """Drop all indexes. Progress is forgotten first: after a crash in between the next start does the same."""
        _log.warning("dropping all indexes, to build them again")
        async with self.progress.lock:
            await asyncio.to_thread(self.progress.forget)
            self.queues.detach()
            self.index.detach()
            await asyncio.to_thread(self.queues.remove_files)
            await asyncio.to_thread(self.index.remove_files)
            self.reached = Reached(epoch=self.reached.epoch)

    async def skip_to(self, min_physical_offset: int) -> None:
        """Continue at the log's first byte: earlier records are gone, so they can't be indexed any more."""
        await self.history.skip(self.reached.indexed_physical_offset, min_physical_offset)
        self.reached = self.reached._replace(indexed_physical_offset=min_physical_offset)
        self._note_entered(min_physical_offset)
        self.index.next_physical_offset = max(self.index.next_physical_offset, min_physical_offset)
        self._polls.wake((), min_physical_offset)

    async def begin_at(self, min_physical_offset: int) -> None:
        """Drop the kept ends of queues past the log's first byte, if no record of the log is held.

        The queues are indexed again. Ends that do not come back are of a tail that the log has lost.
        """
        if self.reached.entered_physical_offset <= min_physical_offset:
            await self.history.truncate(min_physical_offset)
