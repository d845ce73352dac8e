# SPDX-License-Identifier: Apache-2.0
"""ConsumeQueueTable: all consume queues, by topic and queue id, under a directory.

Invariants: a queue exists from its first unit on; a name from the log becomes a path only after it was checked; a file
with unsynced bytes must stay mapped, so `append` requests a sync before there are too many (UnsyncedFiles).
Callers: the event loop's thread; `sync` of unsynced queues may run in a worker thread.
Layout: `<directory>/<topic>/<queueId>/`; other names are ignored. RocketMQ's counterpart is ConsumeQueueStore.
"""

import asyncio
import contextlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path

import msgspec
import numpy as np
from numpy.typing import NDArray

from libs.formats.limits import STORED_QUEUE_ID_MAX
from libs.formats.names import is_topic
from libs.formats.records.dispatch_columns import DispatchBatch
from libs.formats.state.index_progress import IndexProgress, QueueBegin, StepReason
from libs.formats.state.log_history import QueueEnd
from libs.log.state.set_apart import SetApart
from libs.machine.errors import DiskFull
from libs.machine.failpoints import failpoint
from libs.machine.fs import Fs
from libs.machine.uninterrupted import uninterrupted
from libs.segments.errors import StoreFull
from libs.segments.map_budget import MapBudget
from libs.segments.segment import Segment
from services.indexer.engine.tables.queue import ConsumeQueue
from services.indexer.engine.tables.queue_files import listed, remove_all, remove_files, remove_queues
from services.indexer.engine.tables.queue_rows import QueueRows, all_stepped, by_queue, joined, place
from services.indexer.engine.tables.queue_sums import QueueSums
from services.indexer.engine.tables.stepped_over import SteppedOver
from services.indexer.engine.tables.tails import OpenTails, PlainTails
from services.indexer.engine.tables.together import Together
from services.indexer.engine.tables.unsynced import UnsyncedFiles
from services.indexer.errors import FilesMissing, QueueGap, SyncNeeded

STEP_QUEUE_COUNT = 100
"""Queues that are read without a pause: the first access to a queue after a start opens its files."""


class ConsumeQueueTable:
    """The queues of a store. Create it, then `load` it once."""

    def __init__(
        self,
        fs: Fs,
        directory: Path,
        *,
        file_size_bytes: int,
        mapped_file_count_max: int,
        spared: Callable[[], contextlib.AbstractContextManager[None]] = contextlib.nullcontext,
        before_removal: Callable[[Iterator[QueueEnd]], None] = lambda _: None,
    ) -> None:
        """`spared` is held while threads give room to files. It raises StoreFull while the disk has no room for them.

        `before_removal` is called with the ends of the queues whose files are about to be removed.
        """
        self._fs = fs
        self.directory = directory
        self.file_size_bytes = file_size_bytes
        self._maps = MapBudget(mapped_file_count_max)
        self._topics: dict[str, dict[int, ConsumeQueue]] = {}
        self.expired: list[Segment] = []
        """Files that queues have dropped and that wait for their removal, oldest first."""
        self.unsynced = UnsyncedFiles(mapped_file_count_max)
        self.together = Together(fs, directory, mapped_file_count_max)
        self.sums = QueueSums()
        self.stepped_over = SteppedOver()
        """Records that have no unit in the queue that they name."""
        self.begins: dict[tuple[str, int], int] = {}
        """Ends of the records with which queues with units began again. Their older units are gone: if the log loses
        such a record, they must be built again."""
        self.set_apart = SetApart()
        """Topics whose records are never entered and whose files always stay unchanged."""
        self.left_out: frozenset[str] = frozenset()
        """Deleted topics whose queues are not begun, because the disk had no room for them."""
        self.tails = OpenTails()
        self._grown: dict[tuple[str, int], None] = {}
        """Queues that grew in attempts to enter a batch, since the last attempt that succeeded."""
        self._placed_batch: DispatchBatch | None = None
        self._placed: list[QueueRows] = []
        self._plain: PlainTails = []
        self.min_physical_offset = 0
        """First byte of the log that is kept, as last reported; units below it are no longer valid."""
        self._topic_begins: Mapping[str, int] = {}
        """Begins of the messages of deleted topics."""
        self._spared = spared
        self._before_removal = before_removal

    def load(self, progress: IndexProgress) -> None:
        """Open the queues on the disk, without units of records that progress does not know.

        After a clean stop the files are only listed. Otherwise every queue is read and cut now, so that no record of
        another history can come back later. When no record is known, the files are removed in any state that a crash
        left: they are not opened as queues. Raises FilesMissing, SegmentSizeWrong and SegmentMissing.
        """
        self._fs.make_directory(self.directory)
        is_clean = progress.is_clean and progress.queue_end_sum >= 0
        if progress.queue_physical_offset == 0 and not is_clean:
            self.remove_files()
        else:
            self._open_all(progress, is_clean=is_clean)
        self.stepped_over.restore(progress.stepped_over)
        self.begins = {(begin.topic, begin.queue_id): begin.end_physical_offset for begin in progress.queue_begins}

    def _open_all(self, progress: IndexProgress, *, is_clean: bool) -> None:
        for topic, name in listed(self._fs, self.directory, self.set_apart):
            self._open(topic, int(name), progress.queue_physical_offset, is_clean=is_clean)
        if not is_clean:
            self.truncate(progress.queue_physical_offset)
        self.sums.check_start(progress.queue_start_sum)
        if not is_clean:
            self.sums.check_end(progress.queue_end_sum)
            return
        self.sums.believe(list(self._all()), progress.queue_end_sum)
        if self.file_count < progress.queue_file_count:
            raise FilesMissing("files of queues", found=self.file_count, expected=progress.queue_file_count)

    def described(self, progress: IndexProgress) -> IndexProgress:
        """Return progress with the state of the queues that the next start must find."""
        return msgspec.structs.replace(
            progress,
            queue_start_sum=self.sums.start,
            queue_file_count=self.file_count if progress.is_clean else -1,
        )

    def find(self, topic: str, queue_id: int) -> ConsumeQueue | None:
        """Return the queue, with its min offset up to date, or None if no such queue exists."""
        queue = self._topics.get(topic, {}).get(queue_id)
        if queue is not None:
            queue.correct_min(self.kept_from(topic))
        return queue

    def kept_from(self, topic: str) -> int:
        """Return the physical offset below which no record of the topic is valid.

        It is the log's first byte, or the end of the log when the topic was deleted.
        """
        return max(self.min_physical_offset, self._topic_begins.get(topic, 0))

    def begin_topics(self, begins: Mapping[str, int]) -> None:
        """Hide the records of these topics below their begins, and show all records of all other topics."""
        lowered = [topic for topic, begin in self._topic_begins.items() if begins.get(topic, 0) < begin]
        self._topic_begins = dict(begins)
        for topic in lowered:  # as after a failover that lost the deletion
            for queue in self._topics.get(topic, {}).values():
                queue.forget_min()

    def has_units(self, topic: str, queue_id: int) -> bool:
        """Return whether the queue exists and has a unit."""
        return self.end_of(topic, queue_id) is not None

    def end_of(self, topic: str, queue_id: int) -> QueueEnd | None:
        """Return the end of a queue, or None if it has no unit."""
        queue = self._topics.get(topic, {}).get(queue_id)
        if queue is None or queue.is_empty:
            return None
        return QueueEnd(topic, queue_id, queue.max_queue_offset, queue.last_physical_offset)

    def topics(self) -> list[str]:
        """Return the names of the topics that have queues, sorted."""
        return sorted(self._topics)

    def queue_ids(self, topic: str) -> list[int]:
        """Return the ids of the topic's queues, ascending. The list is empty for an unknown topic."""
        return sorted(self._topics.get(topic, ()))

    @property
    def file_count(self) -> int:
        """Number of files of all queues."""
        return sum(queue.file_count for queue in self._all())

    def size_of(self, names: Sequence[tuple[str, int]]) -> tuple[int, int]:
        """Return the number of files of these queues, and their bytes of the disk. All queues must exist. Blocks."""
        queues = [self._topics[topic][queue_id] for topic, queue_id in names]
        return sum(queue.file_count for queue in queues), sum(queue.allocated_bytes() for queue in queues)

    def place(self, batch: DispatchBatch) -> list[QueueRows]:
        """Decide for each record, by queue, whether it is entered. Changes nothing. Raises QueueConflict and QueueGap.

        The decision is made once for each attempt to enter a batch. Queues whose records continue their open tail are
        not returned: all their records are entered.
        """
        if self._placed_batch is not batch:
            self._plain = self.tails.plain(batch, self.set_apart.reasons)
            others = [index for index, tail in enumerate(self._plain) if tail is None]
            placed = [self._place(*group, batch) for group in by_queue(batch, others)]
            self._placed = joined(placed) if batch.batch_queues else placed
            self._placed_batch = batch
            self._check_steps(batch)
        return self._placed

    def _place(self, index: int, rows: NDArray[np.int32], batch: DispatchBatch) -> QueueRows:
        topic, queue_id = batch.queues[index]
        reason = None
        if index in batch.batch_queues or self.set_apart.why(topic):
            reason = StepReason.SET_APART
        elif not is_topic(topic) or not 0 <= queue_id <= STORED_QUEUE_ID_MAX:
            reason = StepReason.NAME
        elif topic in self.left_out and not self.has_units(topic, queue_id):
            reason = StepReason.TOPIC_DELETED
        if reason is not None:
            return all_stepped(topic, queue_id, rows, reason)
        return place(
            *((topic, queue_id), self._topics.get(topic, {}).get(queue_id), rows, batch),
            min_physical_offset=self.min_physical_offset,
            noted=self.stepped_over,
        )

    def _check_steps(self, batch: DispatchBatch) -> None:
        """Raise QueueGap if a queue offset does not fit, and a file that has lost units may be the cause."""
        odd = [part for part in self._placed if len(part.stepped) and part.reason is StepReason.QUEUE_OFFSET]
        if odd and not self.sums.agrees(self._all()):
            self._placed_batch = None
            topic, queue_id, row = odd[0].topic, odd[0].queue_id, odd[0].stepped[0]
            end = self.end_of(topic, queue_id)
            raise QueueGap(
                topic=topic,
                queue_id=queue_id,
                end=0 if end is None else end.end_queue_offset,
                queue_offset=int(batch.queue_offsets[row]),
                physical_offset=int(batch.physical_offsets[row]),
            )

    def begins_of(self, batch: DispatchBatch) -> list[QueueBegin]:
        """Return the queues that begin again with a record of this batch. Raises the errors of `place`."""
        begun = [part for part in self.place(batch) if part.begins_again]
        if not begun:
            return []
        rows = np.array([part.entered[0] for part in begun], np.int32)
        ends = (batch.physical_offsets[rows] + batch.record_sizes[rows]).tolist()
        return [QueueBegin(part.topic, part.queue_id, end) for part, end in zip(begun, ends, strict=True)]

    def kept_begins(self) -> list[QueueBegin]:
        """Return the begins of queues that began again with a record that the log still has."""
        return [QueueBegin(*name, end) for name, end in self.begins.items() if end > self.min_physical_offset]

    async def prepare(self, batch: DispatchBatch) -> None:
        """Create the files of the queues that a batch begins, in a thread, and give room to queues that lack it.

        It does not wait for the disk: a thorough flush makes the new names durable, before progress covers the queues.
        Raises StoreFull once all files were tried: a thread that still runs would remove files of the next attempt.
        """
        names, growing = [], []
        for part in self.place(batch):
            count = len(part.entered)
            queue = self._topics.get(part.topic, {}).get(part.queue_id)
            if count and queue is None:
                names.append((part.topic, part.queue_id, count))
            elif count and queue is not None and queue.lacks_room(count):
                queue.close_tail()
                growing.append((queue, count))
        if names:
            await uninterrupted(self._begin_all(names))
        if growing:
            await uninterrupted(self._grow(growing))

    def leave_out(self, topics: frozenset[str]) -> None:
        """Begin no queues of these topics from now on. They replace the topics left out before."""
        self.left_out, self._placed_batch = topics, None

    async def _begin_all(self, names: list[tuple[str, int, int]]) -> None:
        begun, failures = await asyncio.to_thread(self._begin_each, names)
        for queue in begun:
            self._add(queue)
            self.unsynced.note_new(queue)
        if failures:
            raise failures[0]

    async def _grow(self, growing: list[tuple[ConsumeQueue, int]]) -> None:
        new = [queue for queue, _ in growing if queue.file_count == 0]
        try:
            await asyncio.to_thread(self._make_room, growing)
        finally:  # not before: a flush meanwhile would sync the directories without the new names
            for queue in new:
                self.unsynced.note_new(queue)

    def _begin_each(self, names: list[tuple[str, int, int]]) -> tuple[list[ConsumeQueue], list[Exception]]:
        begun, failures = [], []
        for name in names:
            try:
                begun.append(self._begin(*name))
            except Exception as error:  # noqa: BLE001 - raised again once the others were tried
                failures.append(error)
        return begun, failures

    def append(self, batch: DispatchBatch) -> list[tuple[str, int]]:
        """Enter the records of a batch, and note records that are stepped over. Returns the queues that grew.

        Makes nothing durable. May be repeated with the same batch after any error. Raises the errors of `place`,
        StoreFull, and SyncNeeded when all unsynced queues must be synced first; some of the records are entered then.
        """
        placed = self.place(batch)
        self._placed_batch = None  # a part may be entered before the next attempt
        self._enter_plain(batch)
        for number, (topic, queue_id, entered, stepped, _, reason) in enumerate(placed):
            if len(entered):
                if not self._append(topic, queue_id, entered, batch):
                    self._placed_batch, self._placed = batch, placed[number:]  # a sync changes no decision
                    raise SyncNeeded
                self._grown[topic, queue_id] = None
            if len(stepped):
                places = batch.physical_offsets[stepped], batch.queue_offsets[stepped]
                self.stepped_over.note(topic, queue_id, reason, *places)
        grown, self._grown = list(self._grown), {}
        return grown

    def _enter_plain(self, batch: DispatchBatch) -> None:
        """Enter the records of the queues with a tail, before a sync closes their tails."""
        plain, self._plain = self._plain, []
        count, names = self.tails.enter(plain, batch)
        self.sums.grow(count)
        self._grown.update(dict.fromkeys(names))
        if names:
            failpoint("queue.after_append")

    def _append(self, topic: str, queue_id: int, rows: NDArray[np.int32], batch: DispatchBatch) -> bool:
        """Enter the records of a queue. Returns False if all unsynced queues must be synced first."""
        queue = self._topics.get(topic, {}).get(queue_id) or self._open(topic, queue_id, 0, is_clean=True)
        start, end, file_count = queue.first_file_queue_offset, queue.max_queue_offset, queue.file_count
        if queue.was_changed:  # its number of units at the stop is unknown
            self.sums.forget_end()
        is_for_memory = queue.is_in_memory or not self.unsynced.may_pin(queue, len(rows))
        if is_for_memory and not queue.can_remember(rows, batch):
            return False
        try:
            (queue.remember if is_for_memory else queue.append)(rows, batch)
        finally:
            self.sums.move_start(start, queue)
            if queue.max_queue_offset != end:
                self.unsynced.note(queue, file_count)
                self.sums.move_end(end, queue)
        if queue.max_queue_offset != end:
            self.tails.open(queue)
        return True

    def begin_sync(self, page_count_min: int) -> list[ConsumeQueue]:
        """Return the queues that must be synced now: see UnsyncedFiles. Tails of their files are closed."""
        self._forget_plain()
        queues = self.unsynced.begin_sync(page_count_min)
        self.tails.close(queue for queue in queues if not queue.is_in_memory)
        for queue in queues:
            queue.take_units()
        return queues

    def end_sync(self) -> None:
        """Record that the queues of the last `begin_sync` are synced."""
        self._forget_plain()
        self.unsynced.mark_synced()

    def _forget_plain(self) -> None:
        """Let `place` decide again if it decided by tails, which are about to be closed."""
        self._placed_batch = None if self._plain else self._placed_batch

    def _close_tails(self, queues: Iterable[ConsumeQueue]) -> None:
        self._placed_batch = None
        self.tails.close(queues)

    def truncate(self, bound_physical_offset: int) -> None:
        """Drop the units of all records at or past this offset, durably."""
        self.min_physical_offset = min(self.min_physical_offset, bound_physical_offset)
        self.stepped_over.truncate(bound_physical_offset)
        self._close_tails(self._all())
        for queue in self._all():
            queue.truncate(bound_physical_offset)
        self.sums.recount(list(self._all()))

    def trim(self, min_physical_offset: int) -> int:
        """Drop the records below this offset, and files without other records. Returns the number of files.

        The files must be removed only after progress was saved with the new begins of the queues (`pop_expired`,
        `remove`): otherwise a missing file causes all indexes to be built anew.
        """
        self.min_physical_offset = max(self.min_physical_offset, min_physical_offset)
        self.stepped_over.trim(self.min_physical_offset)
        count = len(self.expired)
        for queue in self._all():
            if queue.file_count > 1:
                start = queue.first_file_queue_offset
                self.expired += queue.detach_expired(self.min_physical_offset)
                self.sums.move_start(start, queue)
        return len(self.expired) - count

    def trimmable_count(self, min_physical_offset: int) -> int:
        """Return how many files `trim` would drop."""
        return sum(queue.expired_file_count(min_physical_offset) for queue in self._all() if queue.file_count > 1)

    def pop_expired(self, count: int) -> list[Segment]:
        """Return the `count` oldest expired files, for `remove`."""
        files, self.expired = self.expired[:count], self.expired[count:]
        return files

    def remove(self, files: list[Segment]) -> None:
        """Remove files that the queues have dropped, durably. Blocks. May run in any thread."""
        for file in files:
            file.delete()
            self._fs.sync_directory(file.path.parent)

    def detach(self) -> None:
        """Drop all queues. Their files stay. A caller that still holds a queue finds it empty. No sync may run."""
        queues = list(self._all())
        self._close_tails(queues)
        self._topics, self.expired = {}, []
        self.stepped_over.restore([])
        self.begins = {}
        self.sums = QueueSums()
        self.unsynced.clear()
        for queue in queues:
            queue.detach()

    def detach_queues(self, names: Sequence[tuple[str, int]]) -> None:
        """Drop these queues, as if they had never existed. Their files stay.

        A caller that still holds such a queue finds it empty. No sync may run.
        """
        self._close_tails([self._topics[topic][queue_id] for topic, queue_id in names])
        directories = set()
        for topic, queue_id in names:
            queue = self._topics[topic].pop(queue_id)
            if not self._topics[topic]:
                del self._topics[topic]
            self.sums.drop(queue)
            self.unsynced.drop(queue)
            queue.detach()
            directories.add(self._directory_of(topic, queue_id))
        for file in self.expired:
            if file.path.parent in directories:
                file.close()
        self.expired = [file for file in self.expired if file.path.parent not in directories]

    def remove_queues(self, names: Sequence[tuple[str, int]]) -> None:
        """Remove the files of these queues: see `queue_files.remove_queues`. They must not be open. Blocks."""
        remove_queues(self._fs, self.directory, names)

    def remove_files(self) -> None:
        """Remove the files of all queues, durably. They must not be open. Blocks. May be repeated."""
        remove_all(self._fs, self.directory, self.set_apart, self._before_removal)

    def close(self) -> None:
        """Close all files. Makes nothing durable."""
        for queue in self._all():
            queue.close()

    def _all(self) -> Iterator[ConsumeQueue]:
        for queues in self._topics.values():
            yield from queues.values()

    def _begin(self, topic: str, queue_id: int, unit_count: int) -> ConsumeQueue:
        try:
            queue = self._make(topic, queue_id, 0, is_clean=True, is_new=True)
        except DiskFull as error:  # no room for its directory
            raise StoreFull(path=error.path, needed_bytes=error.needed_bytes) from error
        try:
            self._make_room([(queue, unit_count)])
        except StoreFull:
            queue.close()
            with contextlib.suppress(OSError):  # on a full disk an empty directory is too much
                remove_files(self._fs, self._directory_of(topic, queue_id))
            raise
        return queue

    def _make_room(self, growing: list[tuple[ConsumeQueue, int]]) -> None:
        for queue, unit_count in growing:
            with self._spared():
                queue.make_room(unit_count)

    def _open(self, topic: str, queue_id: int, bound_physical_offset: int, *, is_clean: bool) -> ConsumeQueue:
        queue = self._make(topic, queue_id, bound_physical_offset, is_clean=is_clean)
        self._add(queue)
        return queue

    def _add(self, queue: ConsumeQueue) -> None:
        queues = self._topics.setdefault(queue.topic, {})
        assert queue.queue_id not in queues
        queues[queue.queue_id] = queue
        self.sums.add(queue)

    def _directory_of(self, topic: str, queue_id: int) -> Path:
        return self.directory / topic / str(queue_id)

    def _make(
        self, topic: str, queue_id: int, bound_physical_offset: int, *, is_clean: bool, is_new: bool = False
    ) -> ConsumeQueue:
        return ConsumeQueue(
            self._fs,
            self._directory_of(topic, queue_id),
            topic=topic,
            queue_id=queue_id,
            file_size_bytes=self.file_size_bytes,
            maps=self._maps,
            memories=self.unsynced.memories,
            bound_physical_offset=bound_physical_offset,
            is_clean=is_clean,
            is_new=is_new,
        )
