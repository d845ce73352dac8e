# SPDX-License-Identifier: Apache-2.0
"""TopicExpiry: finds which messages of a topic a rule of retention lets expire, from the units of its queues.

By age: the messages that are stored before a time. By size: the oldest messages of all queues, as long as the other
records have more bytes than the limit. The result is a physical offset: below it all messages of the topic expire.
Invariants: store times and physical offsets rise together within the log, so a single offset fits all queues. A look
without an expired message reads one record of each queue. Sums of sizes are kept, so a look reads new units only.
Callers: the event loop's thread; other tasks run in between. Memory: three numbers for each queue of a topic that was
asked about with a limit by size.
"""

import asyncio
from collections.abc import Sequence

import numpy as np
from msgspec import Struct

from services.indexer.engine.answer.time_search import first_at_or_after
from services.indexer.engine.log.record_reader import store_times_ms
from services.indexer.engine.log.source import RecordSource
from services.indexer.engine.tables.queue import ConsumeQueue
from services.indexer.engine.tables.queues import ConsumeQueueTable

UNIT_COUNT = 65_536
"""Units that are read in a turn of the event loop."""


class Expiry(Struct, frozen=True):
    """The messages of a topic that expire, and the messages that stay. Offsets and sizes are in bytes."""

    begin_physical_offset: int = 0
    expired_message_count: int = 0
    kept_message_count: int = 0
    kept_bytes: int = 0
    first_store_time_ms: int | None = None


class _Sum(Struct):
    """The bytes of the records of a queue from one queue offset up to another."""

    start: int
    end: int
    size_bytes: int = 0


class TopicExpiry:
    """Looks for expired messages of topics."""

    def __init__(self, queues: ConsumeQueueTable, records: RecordSource) -> None:
        self._queues, self._records = queues, records
        self._sums: dict[str, dict[int, _Sum]] = {}

    async def of(self, topic: str, *, min_store_time_ms: int | None, size_bytes_max: int) -> Expiry:
        """Return which messages of a topic expire. Raises DependencyUnavailable and IndexDamaged."""
        queues = self._filled(topic)
        if not queues:
            self._sums.pop(topic, None)
            return Expiry()
        count, begin = _count(queues), min(queue.place_at(queue.min_queue_offset)[0] for queue in queues)
        if min_store_time_ms is not None:
            begin = max(begin, await self._first_stored(queues, min_store_time_ms))
        kept_bytes = 0
        if size_bytes_max:
            begin, kept_bytes = await self._fitting(topic, queues, begin, size_bytes_max)
        kept = sum(queue.max_queue_offset - queue.first_kept(begin) for queue in queues)
        if (first := _first_place(queues, begin)) is None:
            return Expiry(begin, count)
        offset, size = np.array([first[0]], np.int64), np.array([first[1]], np.int32)
        (time_ms,) = await store_times_ms(self._records, offset, size)
        return Expiry(first[0], max(0, count - kept), kept, kept_bytes, time_ms)

    def _filled(self, topic: str) -> list[ConsumeQueue]:
        found = (self._queues.find(topic, queue_id) for queue_id in self._queues.queue_ids(topic))
        return [queue for queue in found if queue is not None and queue.min_queue_offset < queue.max_queue_offset]

    async def _first_stored(self, queues: Sequence[ConsumeQueue], time_ms: int) -> int:
        """Return the physical offset of the first message that is not older, or the end of the last message."""
        places = [queue.place_at(queue.min_queue_offset) for queue in queues]
        offsets, sizes = (np.array(column) for column in zip(*places, strict=True))
        times = await store_times_ms(self._records, offsets.astype(np.int64), sizes.astype(np.int32))
        firsts = []
        for queue, (offset, _), found_ms in zip(queues, places, times, strict=True):
            if found_ms is not None and found_ms >= time_ms:
                firsts.append(offset)
                continue
            first = await first_at_or_after(queue, self._records, time_ms)
            if first < queue.max_queue_offset:
                firsts.append(queue.place_at(first)[0])
        return min(firsts, default=_end(queues))

    async def _fitting(
        self, topic: str, queues: Sequence[ConsumeQueue], begin: int, size_bytes_max: int
    ) -> tuple[int, int]:
        """Return the first offset from `begin` on whose records fit into a size, and their bytes."""
        sums, kept = self._sums.get(topic, {}), dict[int, _Sum]()
        for queue in queues:
            kept[queue.queue_id] = await _counted(queue, queue.first_kept(begin), sums.get(queue.queue_id))
        self._sums[topic] = kept
        total = sum(one.size_bytes for one in kept.values())
        if total <= size_bytes_max:
            return begin, total
        begin, passed_bytes = await _passed(queues, begin, total - size_bytes_max)
        return begin, total - passed_bytes


def _first_place(queues: Sequence[ConsumeQueue], begin: int) -> tuple[int, int] | None:
    """Return physical offset and size of the first record from an offset on, None without one."""
    firsts = [(queue, queue.first_kept(begin)) for queue in queues]
    return min((queue.place_at(first) for queue, first in firsts if first < queue.max_queue_offset), default=None)


def _count(queues: Sequence[ConsumeQueue]) -> int:
    return sum(queue.max_queue_offset - queue.min_queue_offset for queue in queues)


def _end(queues: Sequence[ConsumeQueue]) -> int:
    """Return the end of the last message of these queues."""
    return max(sum(queue.place_at(queue.max_queue_offset - 1)) for queue in queues)


async def _counted(queue: ConsumeQueue, start: int, known: _Sum | None) -> _Sum:
    """Return the bytes of a queue from a queue offset on, from a known sum and the units that it lacks."""
    end = queue.max_queue_offset
    if known is None or not known.start <= start <= known.end <= end:
        known = _Sum(start, start)
    gone_bytes, new_bytes = await _bytes(queue, known.start, start), await _bytes(queue, known.end, end)
    return _Sum(start, end, known.size_bytes - gone_bytes + new_bytes)


async def _bytes(queue: ConsumeQueue, start: int, end: int) -> int:
    """Return the bytes of the records of a range of a queue."""
    total = 0
    while start < end:
        sizes = queue.read(start, min(UNIT_COUNT, end - start)).record_sizes
        if not len(sizes):
            break
        total, start = total + int(sizes.sum(dtype=np.int64)), start + len(sizes)
        await asyncio.sleep(0)
    return total


async def _passed(queues: Sequence[ConsumeQueue], begin: int, excess_bytes: int) -> tuple[int, int]:
    """Return the offset behind the oldest records from `begin` on that have so many bytes, and the bytes of these."""
    passed_bytes = 0
    while True:
        blocks = [(queue, queue.read(queue.first_kept(begin), UNIT_COUNT)) for queue in queues]
        filled = [(queue, block) for queue, block in blocks if len(block.record_sizes)]
        if not filled:
            return _end(queues), passed_bytes
        # All records up to the smallest end of a block are in the blocks.
        bound = min(int(block.physical_offsets[-1]) for _, block in filled)
        offsets = np.concatenate([block.physical_offsets for _, block in filled])
        sizes = np.concatenate([block.record_sizes for _, block in filled]).astype(np.int64)
        order = np.argsort(offsets)
        order = order[: np.searchsorted(offsets[order], bound, side="right")]
        totals = np.cumsum(sizes[order])
        index = int(np.searchsorted(totals, excess_bytes - passed_bytes))
        is_enough = index < len(totals)
        last = order[min(index, len(order) - 1)]
        passed_bytes += int(totals[min(index, len(totals) - 1)])
        begin = int(offsets[last] + sizes[last])
        if is_enough:
            return begin, passed_bytes
        await asyncio.sleep(0)
