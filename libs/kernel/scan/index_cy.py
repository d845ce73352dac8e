# SPDX-License-Identifier: Apache-2.0
# cython: boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False
"""Writes consume queue units and index entries from dispatch columns.

Columns are int64 and int32 buffers in the machine's byte order; files are big-endian. Every number that comes from a
column or a file is checked before it is used as a place. A file has a single writer at a time. Readers see an entry
only after its slot and the header were written. Not handled: the next file, records that are already in the file,
syncing.
Layouts: docs/formats/consume_queue.md, docs/formats/index_file.md.
"""

import cython
from cython.cimports.libs.kernel._bytes import get_int32, get_int64, put_int32, put_int64, target_of
from cython.cimports.libs.kernel.layout import *


class Put:
    """A call of put_index_entries, as C fields in the compiled build."""


def encode_queue_units(rows, physical_offsets, record_sizes, tags_codes, out):
    """Write the 20-byte units of the records numbered `rows` (int32) to the start of `out`. Returns the bytes written.

    Raises ValueError, and has written nothing, if `out` is too small or a row is not in every column.
    """
    row_view: cython.const[cython.int][::1] = memoryview(rows)
    offset_view: cython.const[cython.longlong][::1] = memoryview(physical_offsets)
    size_view: cython.const[cython.int][::1] = memoryview(record_sizes)
    code_view: cython.const[cython.longlong][::1] = memoryview(tags_codes)
    out_view: cython.uchar[::1] = out
    at: cython.Py_ssize_t = 0
    index: cython.Py_ssize_t
    row: cython.Py_ssize_t
    if len(out_view) < UNIT_SIZE * len(row_view):
        raise ValueError(f"{len(row_view)} units do not fit into {len(out_view)} bytes")
    if not len(offset_view) == len(size_view) == len(code_view):
        raise ValueError("columns have different lengths")
    target = target_of(out_view)
    for index in range(len(row_view)):
        if not 0 <= row_view[index] < len(offset_view):
            raise ValueError(f"a row is outside of the {len(offset_view)} records")
    with cython.nogil:
        for index in range(len(row_view)):
            row = row_view[index]
            put_int64(target, at, offset_view[row])
            put_int32(target, at + 8, size_view[row])
            put_int64(target, at + 12, code_view[row])
            at += UNIT_SIZE
    return at


def put_index_entries(
    file,
    first_row,
    physical_offsets,
    store_times_ms,
    key_counts,
    first_key,
    key_hashes,
    row_end,
    slot_count,
    entry_capacity,
):
    """Enter the keys of the records [first_row, row_end). Their first key is number first_key.

    Returns (next_row, next_key): row_end, or the first record whose keys do not all fit. Rules of IndexFile.putKey in
    RocketMQ 5.3, except that the first entry of a file always has the time difference 0 to the file's own begin.
    Raises ValueError, and has written nothing, for counts or hashes that are negative or do not fit each other, for a
    file that is too small, and for a record with more keys than an empty file has room for.
    """
    job = Put()
    job.view = file
    job.physical_offsets = memoryview(physical_offsets)
    job.store_times_ms = memoryview(store_times_ms)
    job.key_counts = memoryview(key_counts)
    job.key_hashes = memoryview(key_hashes)
    if slot_count < 1 or entry_capacity < 2:
        raise ValueError(f"{slot_count} slots and {entry_capacity} entries make no index file")
    if len(job.view) < INDEX_HEADER_SIZE + INDEX_SLOT_SIZE * slot_count + INDEX_ENTRY_SIZE * entry_capacity:
        raise ValueError(f"a file of {len(job.view)} bytes is too small")
    if not 0 <= first_row <= row_end <= min(len(job.physical_offsets), len(job.store_times_ms), len(job.key_counts)):
        raise ValueError(f"rows [{first_row}, {row_end}) are outside of the columns")
    if not 0 <= first_key <= len(job.key_hashes):
        raise ValueError(f"key {first_key} is outside of the {len(job.key_hashes)} keys")
    job.file = target_of(job.view)
    job.row = first_row
    job.row_end = row_end
    job.key = first_key
    job.slot_count = slot_count
    job.entry_capacity = entry_capacity
    if not are_keys_good(job):
        raise ValueError("the records' key counts and the key hashes do not fit each other or the file")
    with cython.nogil:
        put_rows(job)
    return job.row, job.key


def are_keys_good(job):
    """Return whether every key of every row has a hash that is not negative, and no row has too many keys."""
    row: cython.Py_ssize_t
    key: cython.Py_ssize_t
    left: cython.Py_ssize_t = len(job.key_hashes) - job.key
    for row in range(job.row, job.row_end):
        if job.key_counts[row] < 0 or job.key_counts[row] >= job.entry_capacity or job.key_counts[row] > left:
            return False
        left -= job.key_counts[row]
    for key in range(job.key, len(job.key_hashes) - left):
        if job.key_hashes[key] < 0:
            return False
    return True


def read_entry_count(file):
    """Return indexCount, the number that the next entry gets. A stored value below 1 means 1."""
    count: cython.longlong = get_int32(file, 36)
    return max(1, count)


def put_rows(job):
    """Put whole records until a record does not fit."""
    entry: cython.longlong = read_entry_count(job.file)
    last_key: cython.Py_ssize_t
    while job.row < job.row_end:
        if job.key_counts[job.row] > 0 and entry + job.key_counts[job.row] > job.entry_capacity:
            return
        last_key = job.key + job.key_counts[job.row]
        while job.key < last_key:
            put_entry(job, entry, job.key_hashes[job.key], job.physical_offsets[job.row], job.store_times_ms[job.row])
            entry += 1
            job.key += 1
        job.row += 1


def put_entry(job, entry, key_hash, physical_offset, store_time_ms):
    """Write an entry, then its slot, then the header."""
    slot_at: cython.Py_ssize_t = INDEX_HEADER_SIZE + INDEX_SLOT_SIZE * (key_hash % job.slot_count)
    at: cython.Py_ssize_t = INDEX_HEADER_SIZE + INDEX_SLOT_SIZE * job.slot_count + INDEX_ENTRY_SIZE * entry
    previous: cython.longlong = get_int32(job.file, slot_at)
    begin_time_ms: cython.longlong = get_int64(job.file, 0)
    difference_s: cython.longlong = 0
    if previous < 0 or previous >= entry:
        previous = 0
    if entry > 1 and 0 < begin_time_ms < store_time_ms:
        difference_s = (store_time_ms - begin_time_ms) // 1000
        if difference_s > INT32_MAX:
            difference_s = INT32_MAX
    put_int32(job.file, at, key_hash)
    put_int64(job.file, at + 4, physical_offset)
    put_int32(job.file, at + 12, difference_s)
    put_int32(job.file, at + 16, previous)
    put_int32(job.file, slot_at, entry)
    if entry == 1:
        put_int64(job.file, 0, store_time_ms)
        put_int64(job.file, 16, physical_offset)
    put_int64(job.file, 8, store_time_ms)
    put_int64(job.file, 24, physical_offset)
    if previous == 0:
        put_int32(job.file, 32, get_int32(job.file, 32) + 1)
    put_int32(job.file, 36, entry + 1)
