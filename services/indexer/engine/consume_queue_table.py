# SPDX-License-Identifier: Apache-2.0
"""ConsumeQueueTable: all consume queues, by topic and queue id, under one directory.

Invariants: a queue exists from its first unit on; a name from the log becomes a path only after it was checked.
Callers: the event loop's thread; `sync` of what `take_dirty` gave may run in a worker thread.
Layout: `<directory>/<topic>/<queueId>/`; other names are left alone. RocketMQ's counterpart is ConsumeQueueStore.
"""

import asyncio
import contextlib
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from libs.formats.dispatch_columns import DispatchBatch
from libs.machine.fs import Fs
from libs.store.map_budget import MapBudget
from services.indexer.engine.consume_queue import ConsumeQueue, DispatchRows, check_consecutive
from services.indexer.engine.names import QUEUE_ID_MAX, is_topic, queue_id_of
from services.indexer.errors import Inapplicable


class ConsumeQueueTable:
    """The queues of a store. Make it, then `load` it once."""

    def __init__(self, fs: Fs, directory: Path, *, file_size_bytes: int, mapped_file_count_max: int) -> None:
        self._fs = fs
        self._directory = directory
        self._file_size_bytes = file_size_bytes
        self._maps = MapBudget(mapped_file_count_max)
        self._topics: dict[str, dict[int, ConsumeQueue]] = {}
        self._dirty: set[ConsumeQueue] = set()
        self.min_physical_offset = 0
        """First byte of the log that is kept, as last heard; units below it no longer count."""

    def load(self, *, bound_physical_offset: int, is_clean: bool) -> None:
        """Open the queues that are on disk, without their units of records at or past the bound.

        After a clean stop the files are only listed. Otherwise every queue is read and cut now, so that nothing of
        another history can come back later. Raises SegmentSizeWrong and SegmentMissing.
        """
        self._fs.make_directory(self._directory)
        for topic in filter(is_topic, self._fs.list(self._directory)):
            if self._fs.is_directory(self._directory / topic):
                for name in self._fs.list(self._directory / topic):
                    if (queue_id := queue_id_of(name)) is not None:
                        self._open(topic, queue_id, bound_physical_offset, is_clean=is_clean)
        if not is_clean:
            self.truncate(bound_physical_offset)

    def find(self, topic: str, queue_id: int) -> ConsumeQueue | None:
        """Return the queue, its min offset up to date; None if there never was a message for it."""
        queue = self._topics.get(topic, {}).get(queue_id)
        if queue is not None:
            queue.correct_min(self.min_physical_offset)
        return queue

    def topics(self) -> list[str]:
        """Names of the topics that have queues, sorted."""
        return sorted(self._topics)

    def queue_ids(self, topic: str) -> list[int]:
        """Ids of the topic's queues, ascending; empty for an unknown topic."""
        return sorted(self._topics.get(topic, ()))

    @property
    def queue_count(self) -> int:
        """Number of queues."""
        return sum(map(len, self._topics.values()))

    @property
    def file_count(self) -> int:
        """Number of files of all queues."""
        return sum(queue.file_count for queue in self._all())

    def check(self, batch: DispatchBatch) -> None:
        """Raise Inapplicable for the first record that can't be entered; changes nothing."""
        columns = _columns(batch)
        errors: list[Inapplicable] = []
        for topic, queue_id, rows in _groups(batch):
            try:
                queue = self._topics.get(topic, {}).get(queue_id)
                if queue is not None:
                    queue.check(rows, columns, min_physical_offset=self.min_physical_offset)
                else:
                    _check_name(topic, queue_id, physical_offset=int(batch.physical_offsets[rows[0]]))
                    check_consecutive(topic, queue_id, rows, columns)
            except Inapplicable as error:
                errors.append(error)
        if errors:
            raise min(errors, key=lambda error: error.physical_offset)

    async def prepare(self, batch: DispatchBatch) -> None:
        """Make the files of the queues that a batch begins, in threads: each costs syncs of itself and its directories.

        Leaves out what `check` will refuse. Raises StoreFull.
        """
        names = []
        for topic, queue_id, rows in _groups(batch):
            if queue_id not in self._topics.get(topic, {}):
                with contextlib.suppress(Inapplicable):
                    _check_name(topic, queue_id, physical_offset=int(batch.physical_offsets[rows[0]]))
                    names.append((topic, queue_id))
        for queue in await asyncio.gather(*(asyncio.to_thread(self._begin, *name) for name in names)):
            self._topics.setdefault(queue.topic, {})[queue.queue_id] = queue

    def append(self, batch: DispatchBatch) -> list[tuple[str, int]]:
        """Enter the records of a batch that `check` passed; return the queues that it touched.

        Makes nothing durable. May be repeated with the same batch after any error. Raises StoreFull.
        """
        columns = _columns(batch)
        touched: list[tuple[str, int]] = []
        for topic, queue_id, rows in _groups(batch):
            queue = self._topics.get(topic, {}).get(queue_id) or self._open(topic, queue_id, 0, is_clean=True)
            self._dirty.add(queue)
            queue.append(rows, columns, min_physical_offset=self.min_physical_offset)
            touched.append((topic, queue_id))
        return touched

    def truncate(self, bound_physical_offset: int) -> None:
        """Drop the units of all records at or past this offset, durably."""
        self.min_physical_offset = min(self.min_physical_offset, bound_physical_offset)
        for queue in self._all():
            queue.truncate(bound_physical_offset)

    def trim(self, min_physical_offset: int) -> int:
        """Forget the records below this offset and remove files that hold nothing else; return how many."""
        self.min_physical_offset = max(self.min_physical_offset, min_physical_offset)
        count = 0
        for queue in self._all():
            if queue.file_count > 1:
                count += queue.drop_expired_files(self.min_physical_offset)
        return count

    def take_dirty(self, page_count_min: int) -> list[ConsumeQueue]:
        """Return the queues with at least so many dirty pages (0: all that changed) and stop counting them as dirty.

        The caller syncs them.
        """
        taken = [queue for queue in self._dirty if queue.dirty_page_count >= page_count_min]
        self._dirty.difference_update(taken)
        return taken

    def close(self) -> None:
        """Let go of all files. Makes nothing durable."""
        for queue in self._all():
            queue.close()

    def _all(self) -> Iterator[ConsumeQueue]:
        for queues in self._topics.values():
            yield from queues.values()

    def _begin(self, topic: str, queue_id: int) -> ConsumeQueue:
        queue = self._make(topic, queue_id, 0, is_clean=True)
        queue.prepare()
        return queue

    def _open(self, topic: str, queue_id: int, bound_physical_offset: int, *, is_clean: bool) -> ConsumeQueue:
        queue = self._make(topic, queue_id, bound_physical_offset, is_clean=is_clean)
        self._topics.setdefault(topic, {})[queue_id] = queue
        return queue

    def _make(self, topic: str, queue_id: int, bound_physical_offset: int, *, is_clean: bool) -> ConsumeQueue:
        return ConsumeQueue(
            self._fs,
            self._directory / topic / str(queue_id),
            topic=topic,
            queue_id=queue_id,
            file_size_bytes=self._file_size_bytes,
            maps=self._maps,
            bound_physical_offset=bound_physical_offset,
            is_clean=is_clean,
        )


def _columns(batch: DispatchBatch) -> DispatchRows:
    return DispatchRows(batch.queue_offsets, batch.physical_offsets, batch.record_sizes, batch.tags_codes)


def _groups(batch: DispatchBatch) -> Iterator[tuple[str, int, NDArray[np.int32]]]:
    """Topic, queue id and the numbers of its rows, for each queue that has any."""
    order = np.argsort(batch.queue_indexes, kind="stable").astype(np.int32)
    bounds = np.searchsorted(batch.queue_indexes[order], np.arange(len(batch.queues) + 1))
    for index, (topic, queue_id) in enumerate(batch.queues):
        rows = order[bounds[index] : bounds[index + 1]]
        if len(rows):
            yield topic, queue_id, rows


def _check_name(topic: str, queue_id: int, *, physical_offset: int) -> None:
    if not is_topic(topic):
        raise Inapplicable(f"{topic[:300]!r} can't be a topic", physical_offset=physical_offset)
    if not 0 <= queue_id <= QUEUE_ID_MAX:
        raise Inapplicable(f"{queue_id} can't be a queue", physical_offset=physical_offset)
