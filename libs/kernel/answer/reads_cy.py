# SPDX-License-Identifier: Apache-2.0
# cython: boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False
"""What an answer reads: the units of a queue, and the runs of the log in which their records lie.

Columns are int64 and int32 buffers in the machine's byte order; files are big-endian. Numbers of a file are judged, and
none of them is used as a place. Layout of units: docs/formats/consume_queue.md.
"""

import cython
from cython.cimports.libs.kernel._bytes import get_int32, get_int64, source_of
from cython.cimports.libs.kernel.layout import *

RUN_OFFSET_MAX = cython.declare(cython.longlong, 0x7FFFFFFFFFFFFFFF - 0x7FFFFFFF - 0x7FFFFFFF)
"""An offset up to it has room for a size and a gap behind it."""


def read_units(file, position, last_physical_offset, physical_offsets, record_sizes, tags_codes):
    """Read units from a position of a file on, as many as the columns have places.

    Returns the number of units before the first impossible unit. A unit is impossible without a size, or with a
    physical offset that is not above that of the unit before; for the first this is `last_physical_offset`.
    Raises ValueError if the file has fewer units, or the columns have different lengths.
    """
    view: cython.const[cython.uchar][::1] = file
    offsets: cython.longlong[::1] = memoryview(physical_offsets)
    sizes: cython.int[::1] = memoryview(record_sizes)
    codes: cython.longlong[::1] = memoryview(tags_codes)
    count: cython.Py_ssize_t = len(offsets)
    at: cython.Py_ssize_t = position
    last: cython.longlong = last_physical_offset
    index: cython.Py_ssize_t = 0
    if not len(sizes) == len(codes) == count:
        raise ValueError("columns have different lengths")
    if not 0 <= position <= len(view) or count > (len(view) - position) // UNIT_SIZE:
        raise ValueError(f"a file of {len(view)} bytes has no {count} units from position {position} on")
    if count == 0:
        return 0
    source = source_of(view)
    with cython.nogil:
        while index < count:
            offsets[index] = get_int64(source, at)
            sizes[index] = get_int32(source, at + 8)
            codes[index] = get_int64(source, at + 12)
            if sizes[index] <= 0 or offsets[index] <= last:
                break
            last = offsets[index]
            at += UNIT_SIZE
            index += 1
    return index


def find_runs(physical_offsets, record_sizes, bases, gap_size_max, run_size_max):
    """Group records that ascend, lie near each other and are in the same file: (first, last, start, size in bytes).

    A run has at least one record, at most `run_size_max` bytes with more, and no more than `gap_size_max` bytes between
    two records. `bases` (ascending) are the first bytes of the files. Raises ValueError for columns of different
    lengths, and for a size or an offset that is negative or too large.
    """
    offsets: cython.const[cython.longlong][::1] = memoryview(physical_offsets)
    sizes: cython.const[cython.int][::1] = memoryview(record_sizes)
    starts: cython.const[cython.longlong][::1] = memoryview(bases)
    count: cython.Py_ssize_t = len(offsets)
    gap_max: cython.longlong = gap_size_max
    run_max: cython.longlong = run_size_max
    start: cython.longlong
    end: cython.longlong
    file_number: cython.Py_ssize_t
    first: cython.Py_ssize_t = 0
    index: cython.Py_ssize_t
    if len(sizes) != count:
        raise ValueError(f"{count} offsets, {len(sizes)} sizes")
    for index in range(count):
        if offsets[index] < 0 or sizes[index] < 0 or offsets[index] > RUN_OFFSET_MAX:
            raise ValueError(f"no record of {sizes[index]} bytes is at {offsets[index]}")
    runs: list = []
    while first < count:
        start = offsets[first]
        end = start + sizes[first]
        file_number = file_of(starts, start)
        index = first + 1
        while (
            index < count
            and end <= offsets[index] <= end + gap_max
            and offsets[index] + sizes[index] - start <= run_max
            and file_of(starts, offsets[index]) == file_number
        ):
            end = offsets[index] + sizes[index]
            index += 1
        runs.append((first, index, start, end - start))
        first = index
    return runs


def file_of(bases, physical_offset):
    """Return the number of files that begin at or before a byte."""
    low: cython.Py_ssize_t = 0
    high: cython.Py_ssize_t = len(bases)
    middle: cython.Py_ssize_t
    while low < high:
        middle = (low + high) // 2
        if bases[middle] <= physical_offset:
            low = middle + 1
        else:
            high = middle
    return low
