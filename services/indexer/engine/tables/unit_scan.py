# SPDX-License-Identifier: Apache-2.0
"""Units of a queue as columns, and the search in a file: where its data, its valid units and its messages end or begin.

After a clean stop nothing but zeros follows the last unit, so a search reads a few units; otherwise it reads all.
Layout: docs/formats/consume_queue.md.
"""

from bisect import bisect_left
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from libs.formats.indexes.consume_queue import PRE_BLANK_RECORD_SIZE, UNIT, UNIT_SIZE_BYTES
from libs.segments.segment import Segment

_UnitOrUnits = NDArray[np.void] | np.void


class Units(NamedTuple):
    """Consecutive units as columns of native numbers. They are copies, so they stay valid when the files change."""

    physical_offsets: NDArray[np.int64]
    record_sizes: NDArray[np.int32]
    tags_codes: NDArray[np.int64]

    def first(self, count: int) -> "Units":
        """Return the first `count` units."""
        return Units(self.physical_offsets[:count], self.record_sizes[:count], self.tags_codes[:count])


def valid_count(segment: Segment, bound_physical_offset: int, *, is_clean: bool) -> int:
    """Return the number of the first unit that is none, or whose record is at or past the bound."""

    def is_none(units: _UnitOrUnits) -> Any:
        offsets = units["physical_offset"]
        return (offsets < 0) | (offsets >= bound_physical_offset) | (units["record_size_bytes"] <= 0)

    end = _data_end(segment)
    count = first_unit(segment, is_none, end=end, is_clean=is_clean)
    is_last = count == end // UNIT_SIZE_BYTES and end % UNIT_SIZE_BYTES > 0
    return count + (is_last and not is_none(unit_at(segment, count)))


def first_unit(segment: Segment, holds: Callable[[_UnitOrUnits], Any], *, end: int, is_clean: bool) -> int:
    """Return the number of a file's first unit before `end` with `holds`, or else the number of its units.

    After a clean stop it must hold for all units behind it, too.
    """
    units = np.frombuffer(segment.buffer, UNIT, end // UNIT_SIZE_BYTES)
    if is_clean:
        return bisect_left(range(len(units)), True, key=lambda number: bool(holds(units[number])))
    found = holds(units)
    return int(found.argmax()) if found.any() else len(units)


def unit_at(segment: Segment, number: int) -> np.void:
    """Return a unit, with zeros as far as it lies behind the data."""
    position = number * UNIT_SIZE_BYTES
    data = bytes(segment.buffer[position : min(position + UNIT_SIZE_BYTES, max(position, _data_end(segment)))])
    unit: np.void = np.frombuffer(data.ljust(UNIT_SIZE_BYTES, b"\0"), UNIT)[0]
    return unit


def is_message(units: _UnitOrUnits) -> Any:
    """Return whether units are no pre-blanks."""
    return (units["physical_offset"] != 0) | (units["record_size_bytes"] != PRE_BLANK_RECORD_SIZE)


def _data_end(segment: Segment) -> int:
    """Return the end of the data in a file. A read behind it may use a block, and end the process on a full disk."""
    return min(max((end for _, end in segment.data_ranges(0)), default=0), segment.wrote_position)
