# SPDX-License-Identifier: Apache-2.0
"""Measures of parts of queues: the bytes of their records, which the units of a queue tell alone, and a store time."""

import asyncio
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np

from libs.machine.loop import in_steps
from services.indexer.engine.answer.entry_times import Entry, entry_times_ms
from services.indexer.engine.log.source import RecordSource
from services.indexer.engine.tables.queue import ConsumeQueue

UNIT_COUNT = 65_536
"""Units that are summed up in a turn of the event loop."""
OFFSET_COUNT = 256


class Part(NamedTuple):
    """The entries of a queue from `start` on, and others before it. `time_offset` is the entry whose time is wanted."""

    queue: ConsumeQueue
    start: int
    others: Sequence[int]
    time_offset: int | None


class Measure(NamedTuple):
    """The bytes of a part, and the wanted time, None if there is no such entry, or its message is damaged or gone."""

    size_bytes: int = 0
    store_time_ms: int | None = None


async def measures(parts: Sequence[Part | None], records: RecordSource, *, time_size_bytes_max: int) -> list[Measure]:
    """Return the measures of the first parts, at least of one: for times at most so many bytes of the log are read.

    A part without a queue has no bytes. Raises IndexDamaged and DependencyUnavailable.
    """
    timed = await entry_times_ms([_timed(part) for part in parts], records, size_bytes_max=time_size_bytes_max)
    return [
        Measure() if part is None else Measure(await size_bytes_of(part.queue, part.start, part.others), *times)
        for part, times in zip(parts[: len(timed)], timed, strict=True)
    ]


def _timed(part: Part | None) -> list[Entry]:
    """Return the entry whose time is wanted, or nothing."""
    if part is None or part.time_offset is None:
        return []
    queue_offset = max(part.time_offset, part.queue.min_queue_offset)
    return [Entry(part.queue, queue_offset)] if queue_offset < part.queue.max_queue_offset else []


async def size_bytes_of(queue: ConsumeQueue, start: int, others: Iterable[int]) -> int:
    """Return the bytes of the records from an entry to the end, and of other entries. Deleted entries have no bytes."""
    total, position = 0, max(start, queue.min_queue_offset)
    while position < queue.max_queue_offset:
        sizes = queue.read(position, UNIT_COUNT).record_sizes
        if not len(sizes):
            break
        total += int(sizes.sum(dtype=np.int64))
        position += len(sizes)
        await asyncio.sleep(0)
    async for step in in_steps(others, count=OFFSET_COUNT):
        there = (offset for offset in step if queue.min_queue_offset <= offset < queue.max_queue_offset)
        total += sum(int(queue.read(offset, 1).record_sizes.sum(dtype=np.int64)) for offset in there)
    return total
