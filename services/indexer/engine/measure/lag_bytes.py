# SPDX-License-Identifier: Apache-2.0
"""LagBytes: bytes of the records from a group's offset to the end of a queue, without a read per message.

A sum stays between two looks: the sizes of units that came are added, those of units that the group has passed are
subtracted. A group without a lag costs nothing, and a group that stands still costs the new units of its queues.
Units beyond UNIT_COUNT_MAX of a look are estimated by the average of the units that were added, and added by the next
looks.
Callers: the event loop's thread; other tasks run in between. Memory: a row for each queue in which a group has a lag.
"""

import asyncio
from collections.abc import Hashable

from msgspec import Struct

from libs.segments.errors import IndexDamaged
from services.indexer.engine.tables.queue import ConsumeQueue

STEP_UNIT_COUNT = 1 << 16
"""Units whose sizes are added without a pause."""
UNIT_COUNT_MAX = 1 << 22
"""Units that a look reads: 80 MiB of the queues' files, some 20 ms."""


async def add_sizes(queue: ConsumeQueue, start: int, end: int) -> int:
    """Return the bytes of the records of a range of a queue, as far as their units are there and sound."""
    size_bytes = 0
    while start < end:
        try:
            sizes = queue.read(start, min(STEP_UNIT_COUNT, end - start)).record_sizes
        except IndexDamaged:
            break
        if not len(sizes):
            break
        size_bytes += int(sizes.sum())
        start += len(sizes)
        await asyncio.sleep(0)
    return size_bytes


class _Sum(Struct):
    """The bytes of the units from `start` to `end`."""

    start: int
    end: int
    size_bytes: int = 0


class LagBytes:
    """The sums of groups. A look is `begin`, then `find` for each lag, then `end`."""

    def __init__(self) -> None:
        self._former: dict[Hashable, _Sum] = {}
        self._sums: dict[Hashable, _Sum] = {}
        self._left_count = 0

    def begin(self) -> None:
        """Begin a look."""
        self._former, self._sums = self._sums, {}
        self._left_count = UNIT_COUNT_MAX

    async def find(self, place: Hashable, queue: ConsumeQueue, start: int, end: int) -> int:
        """Return the bytes from `start` to `end` of a queue. `place` names the group and the queue."""
        found = self._former.get(place)
        if found is None or not _is_near(found, queue, start):
            found = _Sum(start, start)
        elif found.start < start:
            found.size_bytes -= await self._read(queue, found.start, start)
            found.start = start
        self._sums[place] = found
        next_end = min(end, found.end + max(0, self._left_count))
        found.size_bytes += await self._read(queue, found.end, next_end)
        found.end = next_end
        if next_end == start:
            return 0
        return found.size_bytes * (end - start) // (next_end - start)

    async def _read(self, queue: ConsumeQueue, start: int, end: int) -> int:
        self._left_count -= end - start
        return await add_sizes(queue, start, end)

    def end(self) -> None:
        """End a look: forget the places that it did not name."""
        self._former = {}


def _is_near(found: _Sum, queue: ConsumeQueue, start: int) -> bool:
    """Return whether the units that the group has passed are there, and are fewer than those that it has not."""
    return queue.min_queue_offset <= found.start <= start <= found.end and 2 * start <= found.start + found.end
