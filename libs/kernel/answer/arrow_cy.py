# SPDX-License-Identifier: Apache-2.0
# cython: boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False
"""Fills Arrow buffers from records: a first pass lays out the rows, then a loop per variable column copies.

Callers: arrow.py only, which allocates every buffer from the sizes of the first pass and passes the same records again.
The first pass reads records as hostile bytes; the other loops repeat no checks.
Format: Arrow columnar format, variable-size binary and map layouts; docs/formats/commit_log.md for the records.
"""

import cython
from cython.cimports.libs.kernel._bytes import copy, matches, source_of, target_of
from cython.cimports.libs.kernel.answer.encode_cy import is_listed, put_message_id, read_listed
from cython.cimports.libs.kernel.layout import *
from cython.cimports.libs.kernel.scan.record_cy import Record
from cython.cimports.libs.kernel.text_cy import Property, is_utf8, next_property


def arrow_layout(records, positions, sizes, rows):
    """First pass: fill a row of the layout per record. rows: int64, ARROW_STRIDE for each position.

    Starts in a row are places in the records; a size of -1 means null.
    Raises ValueError, naming the position, for a record that is damaged or has another size.
    """
    view: cython.const[cython.uchar][::1] = records
    position_view: cython.const[cython.longlong][::1] = memoryview(positions)
    size_view: cython.const[cython.int][::1] = memoryview(sizes)
    row_view: cython.longlong[::1] = memoryview(rows)
    record: Record = Record()
    piece: Property = Property()
    end: cython.Py_ssize_t = len(view)
    index: cython.Py_ssize_t = 0
    if len(position_view) != len(size_view) or len(row_view) < ARROW_STRIDE * len(size_view):
        raise ValueError("columns have different lengths")
    source = source_of(view)
    with cython.nogil:
        while index < len(position_view) and read_listed(source, end, position_view, size_view, index, record):
            layout_row(row_view, index * ARROW_STRIDE, record)
            layout_properties(source, row_view, index * ARROW_STRIDE, record, piece)
            index += 1
    if index < len(position_view):
        raise ValueError(f"no whole record at position {position_view[index]}")


def layout_row(rows, row, record):
    """Fill the values that do not come from the properties."""
    rows[row + ARROW_VALUE_START] = record.body_start
    rows[row + ARROW_VALUE_SIZE] = record.body_size
    rows[row + ARROW_TOPIC_START] = record.topic_start
    rows[row + ARROW_TOPIC_SIZE] = record.topic_size
    rows[row + ARROW_PROPERTIES_START] = record.properties_start
    rows[row + ARROW_PROPERTIES_SIZE] = record.properties_size
    rows[row + ARROW_RECORD_START] = record.start
    rows[row + ARROW_MESSAGE_ID_SIZE] = 2 * (record.store_host_size + 8)
    rows[row + ARROW_QUEUE_ID] = record.queue_id
    rows[row + ARROW_QUEUE_OFFSET] = record.queue_offset
    rows[row + ARROW_PHYSICAL_OFFSET] = record.physical_offset
    rows[row + ARROW_STORE_TIME] = record.store_time_ms
    rows[row + ARROW_BORN_TIME] = record.born_time_ms
    rows[row + ARROW_FLAG] = record.flag
    rows[row + ARROW_SYS_FLAG] = record.sys_flag


def layout_properties(source, rows, row, record, piece):
    """Fill the values that come from the properties. All of them are null if the properties are not UTF-8."""
    at: cython.Py_ssize_t = record.properties_start
    end: cython.Py_ssize_t = at + record.properties_size
    rows[row + ARROW_KEY_START] = 0
    rows[row + ARROW_KEY_SIZE] = -1
    rows[row + ARROW_TAG_START] = 0
    rows[row + ARROW_TAG_SIZE] = -1
    rows[row + ARROW_NAMES_SIZE] = 0
    rows[row + ARROW_VALUES_SIZE] = 0
    rows[row + ARROW_PROPERTY_COUNT] = -1
    if not is_utf8(source, at, record.properties_size):
        return
    rows[row + ARROW_PROPERTY_COUNT] = 0
    while at < end:
        at = next_property(source, at, end, piece)
        if not is_listed(source, piece):
            continue
        rows[row + ARROW_PROPERTY_COUNT] += 1
        rows[row + ARROW_NAMES_SIZE] += piece.name_size
        rows[row + ARROW_VALUES_SIZE] += piece.value_size
        if piece.name_size == 4 and matches(source, piece.name_start, b"KEYS", 4):
            rows[row + ARROW_KEY_START] = piece.value_start
            rows[row + ARROW_KEY_SIZE] = piece.value_size
        elif piece.name_size == 4 and matches(source, piece.name_start, b"TAGS", 4):
            rows[row + ARROW_TAG_START] = piece.value_start
            rows[row + ARROW_TAG_SIZE] = piece.value_size


def fill_bytes(records, rows, start_column, size_column, out):
    """Copy the pieces that two columns of the layout describe, without gaps. Nulls have no bytes."""
    view: cython.const[cython.uchar][::1] = records
    row_view: cython.const[cython.longlong][::1] = memoryview(rows)
    out_view: cython.uchar[::1] = out
    starts: cython.Py_ssize_t = start_column
    sizes: cython.Py_ssize_t = size_column
    row: cython.Py_ssize_t = 0
    at: cython.Py_ssize_t = 0
    size: cython.Py_ssize_t
    source = source_of(view)
    target = target_of(out_view)
    with cython.nogil:
        while row < len(row_view):
            size = row_view[row + sizes]
            if size > 0:
                copy(target, at, source, row_view[row + starts], size)
                at += size
            row += ARROW_STRIDE


def fill_properties(records, rows, name_ends, value_ends, names, values):
    """Fill the children of the map column: int32 ends of every name and value, and their bytes."""
    view: cython.const[cython.uchar][::1] = records
    row_view: cython.const[cython.longlong][::1] = memoryview(rows)
    name_end_view: cython.int[::1] = memoryview(name_ends)
    value_end_view: cython.int[::1] = memoryview(value_ends)
    name_view: cython.uchar[::1] = names
    value_view: cython.uchar[::1] = values
    piece: Property = Property()
    row: cython.Py_ssize_t = 0
    number: cython.Py_ssize_t = 0
    name_at: cython.Py_ssize_t = 0
    value_at: cython.Py_ssize_t = 0
    at: cython.Py_ssize_t
    end: cython.Py_ssize_t
    source = source_of(view)
    name_target = target_of(name_view)
    value_target = target_of(value_view)
    with cython.nogil:
        while row < len(row_view):
            at = row_view[row + ARROW_PROPERTIES_START]
            end = at + row_view[row + ARROW_PROPERTIES_SIZE] if row_view[row + ARROW_PROPERTY_COUNT] > 0 else at
            while at < end:
                at = next_property(source, at, end, piece)
                if not is_listed(source, piece):
                    continue
                copy(name_target, name_at, source, piece.name_start, piece.name_size)
                copy(value_target, value_at, source, piece.value_start, piece.value_size)
                name_at += piece.name_size
                value_at += piece.value_size
                name_end_view[number] = name_at
                value_end_view[number] = value_at
                number += 1
            row += ARROW_STRIDE


def fill_message_ids(records, rows, out):
    """Write the offset message ids of all rows, without gaps."""
    view: cython.const[cython.uchar][::1] = records
    row_view: cython.const[cython.longlong][::1] = memoryview(rows)
    out_view: cython.uchar[::1] = out
    record: Record = Record()
    row: cython.Py_ssize_t = 0
    at: cython.Py_ssize_t = 0
    source = source_of(view)
    target = target_of(out_view)
    with cython.nogil:
        while row < len(row_view):
            record.start = row_view[row + ARROW_RECORD_START]
            record.store_host_size = row_view[row + ARROW_MESSAGE_ID_SIZE] // 2 - 8
            # The properties end the record; before the topic and the body lie 16 bytes and then the store host.
            record.store_host_start = row_view[row + ARROW_VALUE_START] - 16 - record.store_host_size
            at = put_message_id(target, at, source, record)
            row += ARROW_STRIDE
