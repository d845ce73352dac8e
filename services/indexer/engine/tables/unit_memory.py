# SPDX-License-Identifier: Apache-2.0
"""UnitMemory: units at the end of a queue that its file does not have yet, with room for more.

A queue has one while no further file may have unsynced bytes (UnsyncedFiles): so its file need not stay mapped. A sync
writes the units into the file. A process that ends before loses them, and the next start enters their records again,
like the records of all units behind the saved progress.
Invariants: the first unit follows the last unit of the file, and the file has blocks for all units; the memories of a
store take at most `MEMORY_BYTES_MAX` and what one batch adds.
Callers: the event loop's thread.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from libs.formats.indexes.consume_queue import UNIT_SIZE_BYTES
from libs.formats.records.dispatch_columns import DispatchBatch
from libs.kernel.scan.index_cy import encode_queue_units
from libs.kernel.scan.tails_cy import Tail
from libs.segments.segment import Segment

MEMORY_BYTES_MAX = 64 << 20
"""Memory of the units of all queues; 3.3 million units. When it is full, all queues are synced."""

UNIT_COUNT_MIN = 32
"""Room of a new memory: 640 bytes, so that 100,000 queues fit."""


class MemoryBudget:
    """The bytes of all memories of a store."""

    def __init__(self, bytes_max: int = MEMORY_BYTES_MAX) -> None:
        self.used_bytes = 0
        self.bytes_max = bytes_max

    @property
    def has_room(self) -> bool:
        """Whether a queue may take more memory before all queues are synced."""
        return self.used_bytes < self.bytes_max


class UnitMemory:
    """Units from queue offset `first` on. `tail` has their end and the room behind them.

    `units` are there at once; the room is four times as much, and ends at `room_end`, where the blocks of the file end.
    """

    def __init__(
        self, budget: MemoryBudget, units: bytes, *, first: int, room_end: int, last_physical_offset: int
    ) -> None:
        count = len(units) // UNIT_SIZE_BYTES
        room = min(max(UNIT_COUNT_MIN, 4 * count), room_end - first)
        assert count <= room
        self.first = first
        self.buffer = bytearray(room * UNIT_SIZE_BYTES)
        self.buffer[: len(units)] = units
        self.tail = Tail(first + count, last_physical_offset, first, first + room, self.buffer)
        self._budget = budget
        budget.used_bytes += len(self.buffer)

    def units(self) -> bytes:
        """Return a copy of all units."""
        return bytes(memoryview(self.buffer)[: (self.tail.end - self.first) * UNIT_SIZE_BYTES])

    def close(self) -> None:
        """Give the memory back. No record is entered any more."""
        self.tail.close()
        self._budget.used_bytes -= len(self.buffer)


class Taken(NamedTuple):
    """Units in memory that a sync writes into their file. The cursor of the file is behind them already."""

    segment: Segment
    position: int
    units: bytes

    @contextmanager
    def in_file(self) -> Iterator[None]:
        """Write the units, and keep the file mapped within the block, so that a failed write is seen."""
        if not self.segment.hold():  # it was deleted
            yield
            return
        try:
            self.segment.buffer[self.position : self.position + len(self.units)] = self.units
            yield
        finally:
            self.segment.release()


def encoded(rows: NDArray[np.int32], batch: DispatchBatch) -> bytearray:
    """Return the units of these rows of a batch."""
    out = bytearray(len(rows) * UNIT_SIZE_BYTES)
    offsets, sizes, codes = batch.physical_offsets.data, batch.record_sizes.data, batch.tags_codes.data
    encode_queue_units(rows.data, offsets, sizes, codes, memoryview(out))
    return out
