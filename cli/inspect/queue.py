# SPDX-License-Identifier: Apache-2.0
"""Inspection of a consume queue file: unit validity, order of physical offsets, alignment.

Layout: docs/formats/consume_queue.md. Runs over slices of the mapped file, so memory is bounded. Only a comparison
with the log can show whether a unit points to the right record.
"""

from __future__ import annotations

from contextlib import closing

import numpy as np
import numpy.typing as npt

from cli.inspect.inspection import Data, Finding, Inspection, Item, Steps, Window
from cli.verify.files import Files
from libs.formats import store_layout
from libs.formats.indexes import consume_queue, consume_queue_ext
from libs.formats.indexes.consume_queue import PRE_BLANK_RECORD_SIZE, UNIT, UNIT_SIZE_BYTES
from libs.formats.limits import INT32_MAX, RECORD_SIZE_BYTES_MIN
from libs.formats.records.delay_level import SCHEDULE_TOPIC

_CHUNK_UNIT_COUNT = 1 << 17
_FIELD_AT = {"physical offset": 0, "record size": consume_queue.RECORD_SIZE_AT, "tags code": consume_queue.TAGS_CODE_AT}

Numbers = npt.NDArray[np.int64]


def inspect_consume_queue(data: Data, inspection: Inspection) -> Steps:
    """Yield units and findings of a file. Its name is its position in the queue, its path has the topic."""
    base, path = inspection.base, inspection.path.absolute()
    may_be_delayed = store_layout.QUEUES not in path.parts or path.parent.parent.name == SCHEDULE_TOPIC
    yield from _alignment(data, base)
    total = len(data) // UNIT_SIZE_BYTES
    with closing(Files()) as files:  # a unit of zeros before the last unit is damage
        count = -(-files.content_end(inspection.path, 0, total * UNIT_SIZE_BYTES) // UNIT_SIZE_BYTES)
    blank_count = _pre_blank_count(data, count)
    yield from _items(data, (base or 0) // UNIT_SIZE_BYTES, inspection.window, count)
    for start in range(0, count, _CHUNK_UNIT_COUNT):
        inspection.progress(start * UNIT_SIZE_BYTES)
        end = min(count, start + _CHUNK_UNIT_COUNT)
        yield from _values(data, start, end, blank_count, may_be_delayed=may_be_delayed)
        yield from _order(data, max(start, blank_count), end, blank_count, count)
    inspection.summary.update(
        base_position=base,
        unit_capacity=total,
        unit_count=count,
        pre_blank_count=blank_count,
        min_queue_offset=None if base is None else base // UNIT_SIZE_BYTES + blank_count,
        max_queue_offset=None if base is None else base // UNIT_SIZE_BYTES + count,
    )


def _alignment(data: Data, base: int | None) -> Steps:
    spare = len(data) % UNIT_SIZE_BYTES
    if spare or not data:
        yield Finding(len(data) - spare, "file", "size", f"{len(data)} bytes are not a number of whole units")
    elif base is not None and base % len(data):
        yield Finding(0, "file", "name", f"{base} is not a multiple of the file's size of {len(data)} bytes")


def _units(data: Data, start: int, end: int) -> npt.NDArray[np.void]:
    # A copy, so that no array keeps the mapping alive.
    return np.frombuffer(data[start * UNIT_SIZE_BYTES : end * UNIT_SIZE_BYTES], UNIT)


def _pre_blank_count(data: Data, count: int) -> int:
    for start in range(0, count, _CHUNK_UNIT_COUNT):
        units = _units(data, start, min(count, start + _CHUNK_UNIT_COUNT))
        is_blank = (units["record_size_bytes"] == PRE_BLANK_RECORD_SIZE) & (units["physical_offset"] == 0)
        others = np.flatnonzero(~is_blank)
        if len(others):
            return start + int(others[0])
    return count


def _items(data: Data, first_queue_offset: int, window: Window, count: int) -> Steps:
    for number in window.clip(count):
        unit = consume_queue.decode_unit(data, number * UNIT_SIZE_BYTES)
        fields: dict[str, object] = {"queue_offset": first_queue_offset + number, **unit._asdict()}
        if unit.is_pre_blank:
            fields["is_pre_blank"] = True
        yield Item("unit", number, number * UNIT_SIZE_BYTES, fields)


def _finding(number: int, field: str, message: str) -> Finding:
    return Finding(number * UNIT_SIZE_BYTES + _FIELD_AT[field], f"unit {number}", field, message)


def _values(data: Data, start: int, end: int, blank_count: int, *, may_be_delayed: bool) -> Steps:
    """Yield findings about values that no unit has, at most one per unit."""
    units = _units(data, start, end)
    sizes = units["record_size_bytes"].astype(np.int64)
    physical_offsets = units["physical_offset"].astype(np.int64)
    codes = units["tags_code"].astype(np.int64)
    is_blank = np.arange(start, end) < blank_count
    bad_size = ~is_blank & ((sizes < RECORD_SIZE_BYTES_MIN) | (sizes == PRE_BLANK_RECORD_SIZE))
    bad_offset = physical_offsets < 0
    is_hash = (codes >= -INT32_MAX - 1) & (codes <= INT32_MAX)
    is_other = codes <= consume_queue_ext.ADDRESS_MAX
    if may_be_delayed:
        is_other |= codes > INT32_MAX
    bad_code = np.where(is_blank, codes != 0, ~(is_hash | is_other))
    for index in np.flatnonzero(bad_size | bad_offset | bad_code):
        number = start + int(index)
        if bad_offset[index]:
            yield _finding(number, "physical offset", f"it is {physical_offsets[index]}")
        elif bad_size[index]:
            yield _finding(number, "record size", f"it is {sizes[index]}")
        else:
            yield _finding(number, "tags code", f"{codes[index]} is neither a tag's hash nor a delivery time")


def _order(data: Data, start: int, end: int, first: int, count: int) -> Steps:
    """Check that each record of a queue starts at or after the end of the record before it in the log."""
    low, high = max(first, start - 2), min(count, end + 1)
    units = _units(data, low, high)
    starts = units["physical_offset"].astype(np.int64)
    sizes = units["record_size_bytes"].astype(np.int64)
    is_valid = (starts >= 0) & (sizes >= RECORD_SIZE_BYTES_MIN) & (sizes < PRE_BLANK_RECORD_SIZE)
    ends = starts + sizes
    pairs = np.flatnonzero((starts[1:] < ends[:-1]) & is_valid[1:] & is_valid[:-1])
    for left in pairs.tolist():
        if start <= low + left + 1 < end:
            yield _overlap(starts, ends, left, low)


def _overlap(starts: Numbers, ends: Numbers, left: int, low: int) -> Finding:
    """Return a finding about that of two overlapping units that does not fit its other neighbour, or about both."""
    right = left + 1
    message = f"unit {low + right} starts at {starts[right]}, before unit {low + left} ends at {ends[left]}"
    is_size = starts[left] < starts[right]
    fits_without_left = left == 0 or starts[right] >= ends[left - 1]
    if not fits_without_left:
        return _finding(low + right, "physical offset", message)
    if right + 1 < len(starts):
        fits_without_right = starts[right + 1] >= ends[left]
        number = right if fits_without_right else left
        return _finding(low + number, "record size" if is_size and number == left else "physical offset", message)
    item = f"unit {low + left} or unit {low + right}"
    return Finding((low + left) * UNIT_SIZE_BYTES, item, "physical offset or record size", message)
