# SPDX-License-Identifier: Apache-2.0
"""PlanScan: cuts the entries that a bulk read matches into partitions, each for a task of the reader.

Invariants: every entry of the requested ranges is in exactly a single partition; ends are fixed when the plan is made;
there are at least `partition_count_min` partitions if there are as many rows; a partition has at most `row_count_max`
rows. Ranges much smaller than a partition are packed together, because a task costs more than reading them.
Callers: the event loop's thread. A plan may have very many queues, ranges and partitions, so it yields to other tasks.
"""

import asyncio
import heapq
import itertools
from collections.abc import AsyncGenerator, Iterable, Iterator
from fractions import Fraction
from typing import NamedTuple, TypeAlias

import numpy as np
from msgspec import Struct

from libs.formats.limits import INT64_MAX
from libs.machine.loop import in_steps
from libs.requests.errors import BadArgument, TopicNotFound
from services.indexer.engine.answer.query import TIME_MAX_MS, TIME_MIN_MS
from services.indexer.engine.answer.time_search import first_at_or_after
from services.indexer.engine.log.source import RecordSource
from services.indexer.engine.tables.queue import ConsumeQueue
from services.indexer.engine.tables.queues import STEP_QUEUE_COUNT, ConsumeQueueTable
from services.indexer.errors import OffsetBeyondEnd

SAMPLE_COUNT, SAMPLE_UNIT_COUNT = 8, 64
"""An average record size is estimated from this number of places, with this number of units each."""

PIECE_COUNT_MAX = 100_000
"""A plan never has more pieces of ranges than this, or than it has ranges, so that no request fills the memory."""

PARTITION_RANGE_COUNT_MAX = 10_000
"""Ranges packed into a partition, at most: its reader sends them all back."""

PACKED_SHARE = 4
"""A range with less than 1/PACKED_SHARE of a partition's rows is packed with other ranges."""


class ScanRange(NamedTuple):
    """Entries [start, end) of a queue."""

    topic: str
    queue_id: int
    start_queue_offset: int
    end_queue_offset: int

    @property
    def row_count(self) -> int:
        """Entries in it."""
        return self.end_queue_offset - self.start_queue_offset


Cuts: TypeAlias = dict[tuple[str, int], list[ScanRange]]


async def ranges_by_queue(ranges: Iterable[ScanRange]) -> Cuts:
    """Group ranges by topic and queue id. The ranges of a queue keep the given order."""
    found: Cuts = {}
    async for step in in_steps(ranges):
        for scan_range in step:
            found.setdefault((scan_range.topic, scan_range.queue_id), []).append(scan_range)
    return found


async def check_reach(queues: ConsumeQueueTable, ranges: Iterable[ScanRange], *, field: str) -> None:
    """Raise OffsetBeyondEnd for a range whose end is not indexed, or not indexed again after a restart.

    A caller that names an end has seen it, perhaps at another member's Indexer. INT64_MAX means the end of the queue.
    """
    async for step in in_steps(ranges):
        for scan_range in step:
            if scan_range.start_queue_offset < scan_range.end_queue_offset < INT64_MAX:
                queue = queues.find(scan_range.topic, scan_range.queue_id)
                end = 0 if queue is None else queue.max_queue_offset
                if scan_range.end_queue_offset > end:
                    raise OffsetBeyondEnd(scan_range.end_queue_offset, end=end, field=field)


class ScanPartition(Struct, frozen=True):
    """The work of a task: ranges, or keys of a topic (within the ranges, if there are any)."""

    ranges: tuple[ScanRange, ...] = ()
    key_topic: str = ""
    keys: tuple[str, ...] = ()
    row_count: int = 0
    size_bytes: int = 0


class ScanScope(Struct, frozen=True):
    """The scope of a plan: checked values. `ranges` limit the queues that they name. Other queues are read whole."""

    topics: tuple[str, ...]
    queue_ids: frozenset[int] = frozenset()
    ranges: tuple[ScanRange, ...] = ()
    keys: tuple[str, ...] = ()
    start_time_ms: int = TIME_MIN_MS
    end_time_ms: int = TIME_MAX_MS
    partition_count_min: int = 1
    row_count_max: int = 1_000_000
    size_bytes_max: int = 128 << 20


class _Sized(Struct):
    """A range with the estimated size of its records."""

    range: ScanRange
    record_size_bytes: Fraction

    @property
    def size_bytes(self) -> int:
        return int(self.record_size_bytes * self.range.row_count)


class ScanPlanner:
    """The planner: reads the queues, and the log only for time bounds and for topics without queues."""

    def __init__(self, queues: ConsumeQueueTable, records: RecordSource, *, partition_key_count: int) -> None:
        self._queues = queues
        self._records = records
        self._partition_key_count = partition_key_count

    async def plan(self, scope: ScanScope) -> list[ScanPartition]:
        """Return the partitions, or an empty list if nothing matches.

        Raises TopicNotFound for a topic that has no queue and that the log does not know either, OffsetBeyondEnd for a
        range that ends behind the last indexed entry, BadArgument for a plan of too many partitions, and the errors of
        RecordSource.
        """
        for topic in scope.topics:
            if not self._queues.queue_ids(topic) and not await self._records.has_topic(topic):
                raise TopicNotFound(topic, is_empty=True)
        await check_reach(self._queues, scope.ranges, field="ranges")
        if scope.keys:
            return await self._plan_keys(scope)
        cuts = await ranges_by_queue(scope.ranges)
        ranges = [found for topic in scope.topics for found in await self._resolve(topic, scope, cuts)]
        sized = []
        for found in ranges:
            sized.append(_Sized(found, self._record_size_bytes(found)))
            await asyncio.sleep(0)  # there may be many thousands of ranges
        return await asyncio.to_thread(lambda: _pack(_cut(sized, scope), scope))

    async def _plan_keys(self, scope: ScanScope) -> list[ScanPartition]:
        keys = tuple(dict.fromkeys(scope.keys))
        step = self._partition_key_count
        is_bounded, cuts = bool(scope.queue_ids or scope.ranges), await ranges_by_queue(scope.ranges)
        partitions = []
        for topic in scope.topics:
            ranges = tuple([scan_range async for scan_range in self._ranges(topic, scope, cuts)]) if is_bounded else ()
            if is_bounded and not ranges:
                continue
            partitions += [
                ScanPartition(ranges=ranges, key_topic=topic, keys=keys[first : first + step])
                for first in range(0, len(keys), step)
            ]
        return partitions

    async def _ranges(self, topic: str, scope: ScanScope, cuts: Cuts) -> AsyncGenerator[ScanRange, None]:
        """Yield the requested ranges of a topic's queues, cut to the existing entries, without empty ranges."""
        async for step in in_steps(self._asked(topic, scope, cuts), count=STEP_QUEUE_COUNT):
            for queue, scan_range in step:
                start = max(queue.min_queue_offset, scan_range.start_queue_offset)
                end = min(queue.max_queue_offset, scan_range.end_queue_offset)
                if start < end:
                    yield ScanRange(topic, queue.queue_id, start, end)

    def _asked(self, topic: str, scope: ScanScope, cuts: Cuts) -> Iterator[tuple[ConsumeQueue, ScanRange]]:
        """Yield the topic's queues with each requested range."""
        for queue_id in self._queues.queue_ids(topic):
            if scope.queue_ids and queue_id not in scope.queue_ids:
                continue
            queue = self._queues.find(topic, queue_id)
            if queue is not None:  # else it was removed meanwhile
                whole = ScanRange(topic, queue_id, 0, INT64_MAX)
                yield from ((queue, scan_range) for scan_range in cuts.get((topic, queue_id), [whole]))

    async def _resolve(self, topic: str, scope: ScanScope, cuts: Cuts) -> list[ScanRange]:
        """Return the requested ranges of a topic, cut to the time bounds."""
        bounds: dict[int, tuple[int, int]] = {}
        resolved = []
        async for scan_range in self._ranges(topic, scope, cuts):
            if scan_range.queue_id not in bounds:
                queue = self._queues.find(topic, scan_range.queue_id)
                bounds[scan_range.queue_id] = (0, 0) if queue is None else await self._time_bounds(queue, scope)
            low, high = bounds[scan_range.queue_id]
            start, end = max(low, scan_range.start_queue_offset), min(high, scan_range.end_queue_offset)
            if start < end:
                resolved.append(ScanRange(topic, scan_range.queue_id, start, end))
        return resolved

    async def _time_bounds(self, queue: ConsumeQueue, scope: ScanScope) -> tuple[int, int]:
        low, high = queue.min_queue_offset, queue.max_queue_offset
        if scope.start_time_ms > TIME_MIN_MS:
            low = await first_at_or_after(queue, self._records, scope.start_time_ms)
        if scope.end_time_ms < TIME_MAX_MS:
            high = await first_at_or_after(queue, self._records, scope.end_time_ms)
        return low, high

    def _record_size_bytes(self, found: ScanRange) -> Fraction:
        queue = self._queues.find(found.topic, found.queue_id)
        if queue is None:  # it was removed meanwhile; a scan will report it
            return Fraction(0)
        last_start = max(found.start_queue_offset, found.end_queue_offset - SAMPLE_UNIT_COUNT)
        starts = np.unique(np.linspace(found.start_queue_offset, last_start, SAMPLE_COUNT, dtype=np.int64))
        samples = [queue.read(int(start), SAMPLE_UNIT_COUNT).record_sizes for start in starts]
        sizes = np.concatenate(samples)
        return Fraction(int(sizes.sum(dtype=np.int64)), max(1, len(sizes)))


def _cut(ranges: list[_Sized], scope: ScanScope) -> list[_Sized]:
    """Cut each range evenly. Pieces are small enough for a partition, and at least as many as requested."""
    counts = [-(-sized.range.row_count // _row_count_max(sized, scope)) for sized in ranges]
    if sum(counts) > max(PIECE_COUNT_MAX, len(ranges)):
        by_rows = sum(-(-sized.range.row_count // scope.row_count_max) for sized in ranges)
        if by_rows > PIECE_COUNT_MAX:
            name, value, total = "partition_row_count_max", scope.row_count_max, sum(s.range.row_count for s in ranges)
        else:
            name, value, total = "partition_size_bytes_max", scope.size_bytes_max, sum(s.size_bytes for s in ranges)
        reason = f"makes {sum(counts)} partitions, a plan has at most {PIECE_COUNT_MAX}"
        raise BadArgument(reason, field=name, value=value, limit=-(-total // PIECE_COUNT_MAX))
    # The largest pieces are cut further until there are enough of them.
    pieces = [
        (-sized.range.row_count / count, index) for index, (sized, count) in enumerate(zip(ranges, counts, strict=True))
    ]
    heapq.heapify(pieces)
    missing = scope.partition_count_min - sum(counts)
    while missing > 0 and pieces:
        _, index = heapq.heappop(pieces)
        if counts[index] < ranges[index].range.row_count:
            counts[index] += 1
            missing -= 1
            heapq.heappush(pieces, (-ranges[index].range.row_count / counts[index], index))
    return [piece for sized, count in zip(ranges, counts, strict=True) for piece in _split(sized, count)]


def _row_count_max(sized: _Sized, scope: ScanScope) -> int:
    by_size = scope.size_bytes_max / max(sized.record_size_bytes, Fraction(1))
    return max(1, min(scope.row_count_max, int(by_size)))


def _split(sized: _Sized, count: int) -> list[_Sized]:
    scan_range = sized.range
    edges = [scan_range.start_queue_offset + scan_range.row_count * index // count for index in range(count + 1)]
    return [
        _Sized(ScanRange(scan_range.topic, scan_range.queue_id, start, end), sized.record_size_bytes)
        for start, end in itertools.pairwise(edges)
    ]


def _pack(pieces: list[_Sized], scope: ScanScope) -> list[ScanPartition]:
    """Put small neighbours into a common partition, as long as enough partitions remain."""
    spare = len(pieces) - scope.partition_count_min
    total_count = sum(piece.range.row_count for piece in pieces)
    packed_count_max = min(scope.row_count_max, -(-total_count // scope.partition_count_min))
    bins: list[list[_Sized]] = []
    open_bin: list[_Sized] = []
    row_room = byte_room = 0
    for piece in pieces:
        row_count, size_bytes = piece.range.row_count, piece.size_bytes
        is_small = row_count * PACKED_SHARE < _row_count_max(piece, scope)
        fits = row_count <= row_room and size_bytes <= byte_room and len(open_bin) < PARTITION_RANGE_COUNT_MAX
        if is_small and fits and spare > 0:
            open_bin.append(piece)
            spare -= 1
        else:
            bins.append([piece])
            if not is_small:
                continue
            open_bin, row_room, byte_room = bins[-1], packed_count_max, scope.size_bytes_max
        row_room -= row_count
        byte_room -= size_bytes
    return [
        ScanPartition(
            ranges=tuple(piece.range for piece in packed),
            row_count=sum(piece.range.row_count for piece in packed),
            size_bytes=sum(piece.size_bytes for piece in packed),
        )
        for packed in bins
    ]
