# SPDX-License-Identifier: Apache-2.0
"""Sizes of the records of some entries of a queue, in bytes. They are known from its units alone."""

import asyncio
from collections.abc import Iterable

import numpy as np

from libs.machine.loop import in_steps
from services.indexer.engine.tables.queue import ConsumeQueue

UNIT_COUNT = 65_536
"""Units that are summed up in a turn of the event loop."""
OFFSET_COUNT = 256


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
