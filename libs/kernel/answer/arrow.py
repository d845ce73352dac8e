# SPDX-License-Identifier: Apache-2.0
"""Records as Arrow columns: plain buffers that `pyarrow.Array.from_buffers` accepts. This module needs no pyarrow.

Callers: the Indexer's Scan. A row whose properties are not UTF-8 (another store's record) has null properties, key
and tag. A time outside of the years 1 to 9999 is null. Equal property names stay in the map in stored order. Not
handled: filters, the schema, IPC frames.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from msgspec import Struct

from libs.kernel import layout
from libs.kernel.answer.arrow_cy import arrow_layout, fill_bytes, fill_message_ids, fill_properties

if TYPE_CHECKING:
    from collections.abc import Iterable

    from numpy.typing import NDArray
    from typing_extensions import Buffer

OFFSET_MAX = 2**31 - 1
TIME_MS_MIN = -62_135_596_800_000
"""The first millisecond of the year 1."""

_NUMBERS = {
    "partition": (layout.ARROW_QUEUE_ID, "int32"),
    "offset": (layout.ARROW_QUEUE_OFFSET, "int64"),
    "physical_offset": (layout.ARROW_PHYSICAL_OFFSET, "int64"),
    "flag": (layout.ARROW_FLAG, "int32"),
    "sys_flag": (layout.ARROW_SYS_FLAG, "int32"),
}
_TIMES = {"timestamp": layout.ARROW_STORE_TIME, "born_timestamp": layout.ARROW_BORN_TIME}
_PIECES = {
    "key": (layout.ARROW_KEY_START, layout.ARROW_KEY_SIZE, "string"),
    "value": (layout.ARROW_VALUE_START, layout.ARROW_VALUE_SIZE, "binary"),
    "tag": (layout.ARROW_TAG_START, layout.ARROW_TAG_SIZE, "string"),
    "topic": (layout.ARROW_TOPIC_START, layout.ARROW_TOPIC_SIZE, "string"),
}
COLUMN_NAMES = frozenset({*_NUMBERS, *_TIMES, *_PIECES, "properties", "message_id"})


class ArrowColumn(Struct, frozen=True):
    """A column. Buffers are in Arrow's layout: little-endian numbers, bitmaps with the lowest bit first.

    `kind` is "int32", "int64", "timestamp[us]", "string", "binary" or "map<string, string>".
    """

    kind: str
    row_count: int
    null_count: int
    validity: NDArray[np.uint8] | None
    """Bitmap of the rows that are not null; None if all are valid."""
    offsets: NDArray[np.int32] | None
    """row_count + 1 offsets of a column of variable size."""
    data: NDArray[np.uint8] | NDArray[np.int32] | NDArray[np.int64] | None
    """Values or bytes; None for the map."""
    children: tuple[ArrowColumn, ...] = ()
    """Names and values of the map."""


def record_columns(
    records: Buffer, positions: NDArray[np.int64], sizes: NDArray[np.int32], count: int, columns: Iterable[str]
) -> dict[str, ArrowColumn]:
    """Return the first `count` records, at these positions and of these sizes, as the named columns (COLUMN_NAMES).

    Raises ValueError for a damaged record (naming its position), for an unknown column, and for a column of more than
    2 GiB, which int32 offsets cannot address.
    """
    rows = np.empty((count, layout.ARROW_STRIDE), np.int64)
    arrow_layout(records, positions[:count], sizes[:count], rows.reshape(-1))
    return {name: _column(records, rows, name) for name in columns}


def _column(records: Buffer, rows: NDArray[np.int64], name: str) -> ArrowColumn:
    if name in _NUMBERS:
        column, kind = _NUMBERS[name]
        numbers = rows[:, column]
        data = numbers.astype(np.int32) if kind == "int32" else numbers.copy()
        return ArrowColumn(kind, len(rows), 0, None, None, data)
    if name in _TIMES:
        return _times(rows[:, _TIMES[name]])
    if name in _PIECES:
        start, size, kind = _PIECES[name]
        offsets, room = _room(rows[:, size])
        fill_bytes(records, rows.reshape(-1), start, size, room)
        validity, null_count = _validity(rows[:, size])
        return ArrowColumn(kind, len(rows), null_count, validity, offsets, room)
    if name == "message_id":
        offsets, room = _room(rows[:, layout.ARROW_MESSAGE_ID_SIZE])
        fill_message_ids(records, rows.reshape(-1), room)
        return ArrowColumn("string", len(rows), 0, None, offsets, room)
    if name == "properties":
        return _properties(records, rows)
    raise ValueError(f"no column {name!r}; there are {', '.join(sorted(COLUMN_NAMES))}")


def _times(times_ms: NDArray[np.int64]) -> ArrowColumn:
    """Return times. A time outside of the years 1 to 9999, which many readers can't show, is null."""
    is_known = (times_ms >= TIME_MS_MIN) & (times_ms <= layout.BORN_TIME_MS_MAX)
    validity, null_count = _validity(np.where(is_known, 0, -1))
    times_us = np.where(is_known, times_ms, 0) * 1000
    return ArrowColumn("timestamp[us]", len(times_ms), null_count, validity, None, times_us)


def _properties(records: Buffer, rows: NDArray[np.int64]) -> ArrowColumn:
    offsets = _offsets(rows[:, layout.ARROW_PROPERTY_COUNT])
    pair_count = int(offsets[-1])
    names = np.empty(_checked_size(rows[:, layout.ARROW_NAMES_SIZE]), np.uint8)
    values = np.empty(_checked_size(rows[:, layout.ARROW_VALUES_SIZE]), np.uint8)
    name_offsets, value_offsets = np.zeros(pair_count + 1, np.int32), np.zeros(pair_count + 1, np.int32)
    fill_properties(records, rows.reshape(-1), name_offsets[1:], value_offsets[1:], names, values)
    validity, null_count = _validity(rows[:, layout.ARROW_PROPERTY_COUNT])
    children = (
        ArrowColumn("string", pair_count, 0, None, name_offsets, names),
        ArrowColumn("string", pair_count, 0, None, value_offsets, values),
    )
    return ArrowColumn("map<string, string>", len(rows), null_count, validity, offsets, None, children)


def _room(sizes: NDArray[np.int64]) -> tuple[NDArray[np.int32], NDArray[np.uint8]]:
    """Return offsets of pieces of these sizes, and room for their bytes. A negative size means null."""
    offsets = _offsets(sizes)
    return offsets, np.empty(int(offsets[-1]), np.uint8)


def _offsets(sizes: NDArray[np.int64]) -> NDArray[np.int32]:
    _checked_size(sizes)
    offsets = np.zeros(len(sizes) + 1, np.int32)
    offsets[1:] = np.cumsum(np.maximum(sizes, 0))
    return offsets


def _checked_size(sizes: NDArray[np.int64]) -> int:
    total = int(np.maximum(sizes, 0).sum())
    if total > OFFSET_MAX:
        raise ValueError(f"a column of {total} bytes; int32 offsets reach {OFFSET_MAX}")
    return total


def _validity(sizes: NDArray[np.int64]) -> tuple[NDArray[np.uint8] | None, int]:
    valid = sizes >= 0
    null_count = len(sizes) - int(np.count_nonzero(valid))
    return (np.packbits(valid, bitorder="little"), null_count) if null_count else (None, 0)
