# SPDX-License-Identifier: Apache-2.0
"""Scan: reads the records of a partition in bulk, in chunks. Each chunk becomes a frame.

Invariants: ranges are read in their order; a chunk is of a single topic and queue; its range tells which entries are
done, including the entries that the filter dropped, so a reader resumes without loss or repetition; at most
READ_AHEAD_COUNT chunks are read before the reader requests them. Chunks of a partition of keys have no ranges: a reader
reads such a partition again as a whole.
Callers: the event loop's thread. Not handled: the bytes of a frame (FrameEncoder).
"""

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Callable, Iterator
from typing import NamedTuple

import numpy as np
from msgspec import Struct, field
from numpy.typing import NDArray

from libs.filters.property_filter import EVERYTHING, PropertyFilter
from libs.formats.limits import READ_COUNT_MAX
from libs.log.answer_sizes import answer_sizes
from libs.machine.loop import in_steps
from libs.requests.errors import WindowFull
from services.indexer.engine.answer.damage import UNREADABLE
from services.indexer.engine.answer.frames import FrameEncoder
from services.indexer.engine.answer.many_keys import KeysQuery, ManyKeysEngine
from services.indexer.engine.answer.plan import ScanPartition, ScanRange, check_reach
from services.indexer.engine.answer.query import TIME_MAX_MS, TIME_MIN_MS
from services.indexer.engine.answer.tags import TagFilter
from services.indexer.engine.answer.where import passing
from services.indexer.engine.log.record_reader import chosen, copy, join
from services.indexer.engine.log.record_view import RecordView
from services.indexer.engine.log.source import RecordBlock, RecordSource
from services.indexer.engine.tables.queues import ConsumeQueueTable
from services.indexer.engine.tables.unit_scan import Units
from services.indexer.errors import OffsetBeyondEnd, OffsetTrimmed

READ_AHEAD_COUNT = 2

KEY_PAGE_SIZE = 1_024

LOOP_FRAME_SIZE_BYTES_MAX = 2 << 20
"""A thread encodes a frame of more bytes of records."""

CHUNK_ROW_COUNT = 4_096
"""A chunk of a partition of keys is ready with this number of records, however small they are."""


class ScanFilter(Struct, frozen=True):
    """The filter of a scan: tags as text, properties, store times [start, end), and the keys of the whole plan, if any.

    A message with several of the keys belongs to the first of them, and so to a single partition of the plan.
    """

    tags: TagFilter = field(default_factory=TagFilter)
    start_time_ms: int = TIME_MIN_MS
    end_time_ms: int = TIME_MAX_MS
    keys: tuple[str, ...] = ()
    where: PropertyFilter = EVERYTHING

    @property
    def needs_records(self) -> bool:
        """Whether records must be read to decide which of them pass, before `where` is applied."""
        return not self.tags.passes_all or self.start_time_ms > TIME_MIN_MS or self.end_time_ms < TIME_MAX_MS

    def passes(self, view: RecordView) -> bool:
        """Return whether a record passes, before `where` is applied."""
        return self.start_time_ms <= view.store_time_ms < self.end_time_ms and (
            self.tags.passes_all or self.tags.passes(view.tag)
        )


class ScanChunk(Struct, frozen=True):
    """Records of a queue, and the entries that are done with them. Chunks of keys have no range."""

    found: RecordBlock
    range: ScanRange | None


class ScanFrame(NamedTuple):
    """A chunk as an Arrow frame."""

    data: memoryview
    row_count: int
    range: ScanRange | None


class Scanner:
    """The runner of scans, at most `count_max` at once."""

    def __init__(
        self, queues: ConsumeQueueTable, records: RecordSource, many_keys: ManyKeysEngine, *, count_max: int
    ) -> None:
        self._queues = queues
        self._records = records
        self._many_keys = many_keys
        self.count_max = count_max
        self.count = 0
        """Scans that run now."""
        self.row_count = 0
        """Rows that scans have yielded."""
        self.frame_bytes = 0
        """Bytes of the frames of these rows."""

    async def scan(
        self, partition: ScanPartition, scan_filter: ScanFilter, *, chunk_size_bytes: int
    ) -> AsyncGenerator[ScanChunk, None]:
        """Yield the partition's records in chunks of about `chunk_size_bytes`. A larger record may fill a chunk.

        The first chunks are smaller (answer_sizes), so that a scan without an active reader uses little memory.

        Raises WindowFull when too many scans run, OffsetTrimmed when entries of a range expired, OffsetBeyondEnd when
        entries are not indexed (or not indexed again after a restart), and the errors of RecordSource.
        """
        if self.count >= self.count_max:
            raise WindowFull("scans", limit=self.count_max)
        self.count += 1
        try:
            if partition.keys:
                chunks = self._scan_keys(partition, scan_filter, answer_sizes(chunk_size_bytes))
            else:
                chunks = self._scan_ranges(partition, scan_filter, answer_sizes(chunk_size_bytes))
            async with contextlib.aclosing(_read_ahead(chunks)) as ready:
                async for chunk in ready:
                    self.row_count += len(chunk.found.sizes)
                    yield chunk
        finally:
            self.count -= 1

    async def frames(
        self, partition: ScanPartition, scan_filter: ScanFilter, encoder: FrameEncoder, *, chunk_size_bytes: int
    ) -> AsyncGenerator[ScanFrame, None]:
        """Yield the chunks of `scan` as frames. Raises RecordDamaged and the errors of `scan`."""
        chunks = self.scan(partition, scan_filter, chunk_size_bytes=chunk_size_bytes)
        async with contextlib.aclosing(chunks):
            async for chunk in chunks:
                data = await _encoded(encoder, chunk.found)
                self.frame_bytes += len(data)
                yield ScanFrame(data, len(chunk.found.sizes), chunk.range)

    async def _scan_ranges(
        self, partition: ScanPartition, scan_filter: ScanFilter, sizes_bytes: Iterator[int]
    ) -> AsyncGenerator[ScanChunk, None]:
        chunk_size_bytes = next(sizes_bytes)
        for scan_range in partition.ranges:
            await asyncio.sleep(0)  # many ranges in a row may be empty
            queue = self._queues.find(scan_range.topic, scan_range.queue_id)
            done = position = scan_range.start_queue_offset
            while position < scan_range.end_queue_offset:
                if queue is None or scan_range.end_queue_offset > queue.max_queue_offset:
                    end = 0 if queue is None else queue.max_queue_offset
                    raise OffsetBeyondEnd(scan_range.end_queue_offset, end=end, field="partition.ranges")
                queue.correct_min(self._queues.kept_from(scan_range.topic))
                if position < queue.min_queue_offset:
                    raise OffsetTrimmed(position, start=queue.min_queue_offset, field="partition.ranges")
                units = queue.read(position, min(READ_COUNT_MAX, scan_range.end_queue_offset - position))
                ends = np.cumsum(units.record_sizes, dtype=np.int64)
                count = max(1, int(np.searchsorted(ends, chunk_size_bytes, side="right")))
                rows = np.flatnonzero(scan_filter.tags.may_pass(units.tags_codes[:count]))
                await asyncio.sleep(0)  # many units in a row may have nothing to read
                found, unread = await self._read_rows(units, rows, scan_filter, queue_offset=position)
                position += count if unread is None else unread
                if len(found.sizes) or position == scan_range.end_queue_offset or unread is not None:
                    yield ScanChunk(found, ScanRange(scan_range.topic, scan_range.queue_id, done, position))
                    done, chunk_size_bytes = position, next(sizes_bytes)

    async def _read_rows(
        self, units: Units, rows: NDArray[np.intp], scan_filter: ScanFilter, *, queue_offset: int
    ) -> tuple[RecordBlock, int | None]:
        """Read the records of these rows of the units. The first of the units has this queue offset.

        Returns also the number of the unit that can't be read, if it is not the first; later units were not read.
        """
        parts: list[RecordBlock] = []
        while len(rows):
            try:
                block = await self._records.read(units.physical_offsets[rows], units.record_sizes[rows])
            except UNREADABLE:
                if not rows[0]:
                    raise
                return join(parts), int(rows[0])
            if not block.sizes.all():
                kept_from = int(np.searchsorted(units.physical_offsets, block.min_physical_offset))
                gone = int(rows[block.sizes.argmin()])
                raise OffsetTrimmed(queue_offset + gone, start=queue_offset + kept_from, field="partition.ranges")
            rows = rows[len(block.sizes) :]
            if scan_filter.needs_records:
                block = block.select(await _chosen(block, scan_filter.passes))
            if not scan_filter.where.passes_all:
                block = block.select(await passing(scan_filter.where, block, np.arange(len(block.sizes))))
            parts.append(block)
        return join(parts), None

    async def _scan_keys(
        self, partition: ScanPartition, scan_filter: ScanFilter, sizes_bytes: Iterator[int]
    ) -> AsyncGenerator[ScanChunk, None]:
        await check_reach(self._queues, partition.ranges, field="partition.ranges")
        is_inside = await _inside(partition.ranges)
        order = {key.encode(): place for place, key in enumerate(dict.fromkeys(scan_filter.keys or partition.keys))}
        parts: list[RecordBlock] = []
        size_bytes, row_count, chunk_size_bytes = 0, 0, next(sizes_bytes)
        query = KeysQuery(
            partition.key_topic,
            tuple(dict.fromkeys(partition.keys)),
            scan_filter.start_time_ms,
            scan_filter.end_time_ms,
            where=scan_filter.where,
        )
        async for key, found in self._many_keys.all_pages(query, page_size=KEY_PAGE_SIZE):
            place = order[key.encode()]
            kept = await _chosen(
                found,
                lambda view: is_inside(view) and scan_filter.passes(view) and _first_place(view, order) == place,  # noqa: B023 - called at once
            )
            if not kept:
                continue
            part = copy(found, kept)
            parts.append(part)
            size_bytes += len(part.records)
            row_count += len(kept)
            if size_bytes >= chunk_size_bytes or row_count >= CHUNK_ROW_COUNT:
                for chunk in await _by_queue(join(parts)):
                    yield chunk
                parts, size_bytes, row_count, chunk_size_bytes = [], 0, 0, next(sizes_bytes)
        for chunk in await _by_queue(join(parts)):
            yield chunk


async def _encoded(encoder: FrameEncoder, found: RecordBlock) -> memoryview:
    """Encode a frame. A thread encodes a large frame, because its compression takes long."""
    if len(found.records) <= LOOP_FRAME_SIZE_BYTES_MAX:
        return encoder.encode(found)
    return await asyncio.to_thread(encoder.encode, found)


async def _inside(ranges: tuple[ScanRange, ...]) -> Callable[[RecordView], bool]:
    """Return a check whether a record lies in a range of these, all of a topic. Without ranges every record does."""
    bounds: dict[int, tuple[list[int], list[int]]] = {}
    async for step in in_steps(ranges):
        for scan_range in step:
            starts, ends = bounds.setdefault(scan_range.queue_id, ([], []))
            starts.append(scan_range.start_queue_offset)
            ends.append(scan_range.end_queue_offset)
    spans = {}
    for queue_id, found in bounds.items():  # a queue may have very many ranges
        starts, ends = np.array(found, np.int64)
        order = np.argsort(starts)
        # a range may reach beyond ranges that begin after it
        spans[queue_id] = starts[order], np.maximum.accumulate(ends[order])

    def is_inside(view: RecordView) -> bool:
        if view.queue_id not in spans:
            return not ranges
        starts, ends = spans[view.queue_id]
        before = int(np.searchsorted(starts, view.queue_offset, side="right"))
        return before > 0 and view.queue_offset < int(ends[before - 1])

    return is_inside


def _first_place(view: RecordView, order: dict[bytes, int]) -> int:
    """Return the place of the first of the keys that a record has. A record here has at least a single key of them."""
    return min(order[key] for key in view.keys if key in order)


async def _chosen(block: RecordBlock, is_wanted: Callable[[RecordView], bool]) -> list[int]:
    """Do as `chosen`, after other tasks have run: blocks that are in memory may follow each other without a wait."""
    await asyncio.sleep(0)
    return await chosen(block, is_wanted)


async def _by_queue(found: RecordBlock) -> list[ScanChunk]:
    """Return a chunk for each queue, its records by queue offset."""
    places: list[tuple[int, int]] = []

    def note(view: RecordView) -> bool:
        places.append((view.queue_id, view.queue_offset))
        return True

    numbers = await _chosen(found, note)
    queues: dict[int, list[int]] = {}
    for (queue_id, _), index in sorted(zip(places, numbers, strict=True)):
        queues.setdefault(queue_id, []).append(index)
    return [ScanChunk(found.select(indexes), None) for indexes in queues.values()]


async def _read_ahead(chunks: AsyncGenerator[ScanChunk, None]) -> AsyncGenerator[ScanChunk, None]:
    """Read the next chunks while the caller processes a chunk."""
    ready: asyncio.Queue[ScanChunk | BaseException | None] = asyncio.Queue(READ_AHEAD_COUNT - 1)

    async def read() -> None:
        try:
            async with contextlib.aclosing(chunks):
                async for chunk in chunks:
                    await ready.put(chunk)
            await ready.put(None)
        except Exception as error:  # noqa: BLE001 - raised again by the reader
            await ready.put(error)

    task = asyncio.create_task(read())
    try:
        while (item := await ready.get()) is not None:
            if isinstance(item, BaseException):
                raise item
            yield item
    finally:
        task.cancel()
        await asyncio.wait([task])
