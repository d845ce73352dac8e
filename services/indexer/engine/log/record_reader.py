# SPDX-License-Identifier: Apache-2.0
"""Functions on blocks of records for queries: choose, copy and join records, and read their store times.

Callers: the event loop's thread. Memory is bounded by an answer of the log (8 MiB and a record).
"""

import asyncio
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from libs.requests.errors import RecordDamaged
from services.indexer.engine.log.record_view import RecordView, view_record
from services.indexer.engine.log.source import NO_RECORDS, RecordBlock, RecordSource
from services.indexer.errors import NotARecord

STEP_SIZE_BYTES_MAX = 256 << 10
"""Bytes of records that are read before other tasks run: a record may have thousands of keys."""

LOOK_SIZE_BYTES = 2 << 10
"""The cost of a record beside its bytes, in bytes."""


async def chosen(block: RecordBlock, is_wanted: Callable[[RecordView], bool]) -> list[int]:
    """Return the numbers of the records that are kept and wanted. Other tasks run in between."""
    found: list[int] = []
    seen_bytes = 0
    for index, (position, size) in enumerate(zip(block.positions.tolist(), block.sizes.tolist(), strict=True)):
        seen_bytes += size + LOOK_SIZE_BYTES
        if seen_bytes > STEP_SIZE_BYTES_MAX:
            seen_bytes = 0
            await asyncio.sleep(0)
        if size and is_wanted(view_record(block.records, position, size)):
            found.append(index)
    return found


def copy(found: RecordBlock, indexes: list[int]) -> RecordBlock:
    """Return some of the records without keeping the memory of the others."""
    pairs = [(int(found.positions[index]), int(found.sizes[index])) for index in indexes]
    sizes = found.sizes[indexes]
    records = b"".join([found.records[position : position + size] for position, size in pairs])
    return RecordBlock(records, np.cumsum(sizes, dtype=np.int64) - sizes, sizes)


def join(parts: list[RecordBlock]) -> RecordBlock:
    """Join the records of several buffers in a single buffer."""
    if len(parts) == 1:
        return parts[0]
    if not parts:
        return NO_RECORDS
    starts = np.cumsum([0, *(len(part.records) for part in parts[:-1])])
    return RecordBlock(
        b"".join(part.records for part in parts),
        np.concatenate([part.positions + start for part, start in zip(parts, starts, strict=True)]),
        np.concatenate([part.sizes for part in parts]),
    )


async def known_store_times_ms(
    source: RecordSource, physical_offsets: NDArray[np.int64], record_sizes: NDArray[np.int32]
) -> list[int | None]:
    """Return the store time of each record, None for a record that is damaged or no longer kept."""
    try:
        return await store_times_ms(source, physical_offsets, record_sizes)
    except (RecordDamaged, NotARecord):
        middle = len(physical_offsets) // 2
        if not middle:
            return [None]
        halves = (slice(middle), slice(middle, None))
        return [
            time
            for half in halves
            for time in await known_store_times_ms(source, physical_offsets[half], record_sizes[half])
        ]


async def store_times_ms(
    source: RecordSource, physical_offsets: NDArray[np.int64], record_sizes: NDArray[np.int32]
) -> list[int | None]:
    """Return the store time of each record, None for a record that is no longer kept."""
    times: list[int | None] = []
    while (done := len(times)) < len(physical_offsets):
        block = await source.read(physical_offsets[done:], record_sizes[done:])
        places = zip(block.positions.tolist(), block.sizes.tolist(), strict=True)
        times += [view_record(block.records, *place).store_time_ms if place[1] else None for place in places]
    return times
