# SPDX-License-Identifier: Apache-2.0
"""Reads records for queries: the units of a queue become records, what is gone and what does not pass drops out.

Callers: the event loop's thread. Memory is bounded by one answer of the log (8 MiB and one record).
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from services.indexer.engine.log.record_view import RecordView, view_record
from services.indexer.engine.log.source import RecordBlock, RecordSource

"""Records that the log returns at most for one request."""


class FoundRecords(NamedTuple):
    """Records in one buffer: what kernel.encode_messages takes."""

    records: bytes
    positions: NDArray[np.int64]
    sizes: NDArray[np.int32]

    @classmethod
    def none(cls) -> "FoundRecords":
        """Return no records; one and the same for all, because each pull that waits holds it."""
        return _NONE

    def views(self) -> list[RecordView]:
        """Look at each record."""
        pairs = zip(self.positions.tolist(), self.sizes.tolist(), strict=True)
        return [view_record(self.records, position, size) for position, size in pairs]


_NONE = FoundRecords(b"", np.empty(0, np.int64), np.empty(0, np.int32))


def select(block: RecordBlock, indexes: list[int] | NDArray[np.intp]) -> FoundRecords:
    """Take some of the records of a block."""
    chosen = np.asarray(indexes, np.intp)
    return FoundRecords(block.records, block.positions[chosen], block.sizes[chosen])


def copy(found: FoundRecords, indexes: list[int]) -> FoundRecords:
    """Take some of the records without keeping the memory of the others."""
    pairs = [(int(found.positions[index]), int(found.sizes[index])) for index in indexes]
    sizes = found.sizes[indexes]
    records = b"".join([found.records[position : position + size] for position, size in pairs])
    return FoundRecords(records, np.cumsum(sizes, dtype=np.int64) - sizes, sizes)


def join(parts: list[FoundRecords]) -> FoundRecords:
    """Put records of several buffers into one."""
    if len(parts) == 1:
        return parts[0]
    if not parts:
        return FoundRecords.none()
    starts = np.cumsum([0, *(len(part.records) for part in parts[:-1])])
    return FoundRecords(
        b"".join(part.records for part in parts),
        np.concatenate([part.positions + start for part, start in zip(parts, starts, strict=True)]),
        np.concatenate([part.sizes for part in parts]),
    )


async def store_times_ms(
    source: RecordSource, physical_offsets: NDArray[np.int64], record_sizes: NDArray[np.int32]
) -> list[int | None]:
    """Store time of each record; None for one that is no longer kept."""
    times: list[int | None] = []
    while len(times) < len(physical_offsets):
        done = len(times)
        block = await source.read(physical_offsets[done:], record_sizes[done:])
        for position, size in zip(block.positions.tolist(), block.sizes.tolist(), strict=True):
            times.append(view_record(block.records, position, size).store_time_ms if size else None)
    return times
