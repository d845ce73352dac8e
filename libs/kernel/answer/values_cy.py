# SPDX-License-Identifier: Apache-2.0
# cython: boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False
"""Reads the values of a few properties from many records, without any other objects.

Records are read as hostile bytes; a damaged record stops the call.
Format: docs/formats/commit_log.md section 5.
"""

from array import array
from itertools import accumulate

import cython
from cython.cimports.libs.kernel._bytes import copy, equal, finish_bytes, new_bytes, new_bytes_target, source_of
from cython.cimports.libs.kernel.answer.encode_cy import read_listed
from cython.cimports.libs.kernel.scan.record_cy import Record
from cython.cimports.libs.kernel.text_cy import Property, next_property


def property_values(records, positions, sizes, names):
    """Return a list for each name, with the stored value of every record, or None. The last of equal names is used.

    positions: int64, sizes: int32, in bytes of `records`. No name is empty.
    Raises ValueError, naming the position, for a record that is damaged or has another size.
    """
    view: cython.const[cython.uchar][::1] = records
    position_view: cython.const[cython.longlong][::1] = memoryview(positions)
    size_view: cython.const[cython.int][::1] = memoryview(sizes)
    name_view: cython.const[cython.uchar][::1] = b"".join(names) + b"\0"
    ends = array("q", accumulate(map(len, names), initial=0))
    end_view: cython.longlong[::1] = ends
    name_count: cython.Py_ssize_t = len(names)
    record: Record = Record()
    piece: Property = Property()
    end: cython.Py_ssize_t = len(view)
    index: cython.Py_ssize_t
    number: cython.Py_ssize_t
    at: cython.Py_ssize_t
    stop: cython.Py_ssize_t
    if len(position_view) != len(size_view):
        raise ValueError("columns have different lengths")
    columns: list = [[None] * len(position_view) for _ in names]
    source = source_of(view)
    name_source = source_of(name_view)
    for index in range(len(position_view)):
        if not read_listed(source, end, position_view, size_view, index, record):
            raise ValueError(f"no whole record at position {position_view[index]}")
        at = record.properties_start
        stop = at + record.properties_size
        while at < stop:
            at = next_property(source, at, stop, piece)
            for number in range(name_count):
                if piece.name_size == end_view[number + 1] - end_view[number] and equal(
                    source, piece.name_start, name_source, end_view[number], piece.name_size
                ):
                    columns[number][index] = piece_value(source, piece)
    return columns


def piece_value(source, piece):
    """Return the value of a property as bytes."""
    made = new_bytes(piece.value_size)
    copy(new_bytes_target(made), 0, source, piece.value_start, piece.value_size)
    return finish_bytes(made)
