# SPDX-License-Identifier: Apache-2.0
# cython: boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False
"""Scan: walks the records of a segment, and returns the data for queues and indexes as columns.

Reads any bytes, but none outside of [position, end). A record is checked in this order: bytes left, magic, size,
inner lengths, stored physical offset, checksums; the first failure gives the status and ends the walk.
The GIL is released during the walk: the bytes up to `end` must not change.
As CommitLog.checkMessageAndReturnSize of RocketMQ 5.3, except: the stored physical offset must be right, BODYCRC and
CRC property are both checked, and a DELAY that is no number is ignored instead of making the record invalid.
Layout: docs/formats/commit_log.md.
"""

import cython
from cython.cimports.libs.kernel._bytes import equal, find, get_int32, matches, source_of
from cython.cimports.libs.kernel.layout import *
from cython.cimports.libs.kernel.scan.record_cy import Record, is_crc_good, read_record
from cython.cimports.libs.kernel.text_cy import Property, crc32, java_hash, java_int, next_property

from libs.kernel.scan.scan_columns import ScanColumns

__all__ = ["ScanColumns", "check_placed", "check_record", "check_records", "scan"]


class Walk:
    """A scan: its buffers and running totals, as C fields in the compiled build."""


def check_record(buffer, position, end, base_physical_offset, check_crc):
    """Check the record at `position`. Returns its size in bytes, or the negative status of `scan`."""
    view: cython.const[cython.uchar][::1] = buffer
    record: Record = Record()
    status: cython.int
    if not 0 <= position <= end <= len(view):
        raise ValueError(f"[{position}, {end}) is outside of a buffer of {len(view)} bytes")
    if position == end:
        return 0
    status = check(source_of(view), position, end, base_physical_offset, check_crc, record)
    return -status if status != 0 else record.size


def check_records(buffer, positions, sizes, base_physical_offset):
    """Check records at these positions, each of exactly its size. Returns the number of records before a bad record."""
    view: cython.const[cython.uchar][::1] = buffer
    places: cython.const[cython.longlong][::1] = positions
    lengths: cython.const[cython.int][::1] = sizes
    base: cython.longlong = base_physical_offset
    record: Record = Record()
    count: cython.Py_ssize_t = len(places)
    end: cython.Py_ssize_t = len(view)
    index: cython.Py_ssize_t = 0
    if len(lengths) != count:
        raise ValueError(f"{count} positions, {len(lengths)} sizes")
    with cython.nogil:
        while index < count:
            if not 0 <= places[index] < end or check(source_of(view), places[index], end, base, True, record) != 0:
                break
            if record.size != lengths[index]:
                break
            index += 1
    return index


def check_placed(buffer, positions, ends, physical_offsets, sizes):
    """Check records of unknown sizes at these positions, and set their sizes. Returns the number before a bad record.

    positions, ends, physical_offsets: int64, sizes: int32. The bytes of a record are known up to its end; a record that
    claims more bytes is not checked, and its size is set to minus the claimed size.
    """
    view: cython.const[cython.uchar][::1] = buffer
    places: cython.const[cython.longlong][::1] = positions
    end_view: cython.const[cython.longlong][::1] = ends
    offsets: cython.const[cython.longlong][::1] = physical_offsets
    lengths: cython.int[::1] = sizes
    record: Record = Record()
    count: cython.Py_ssize_t = len(places)
    size: cython.longlong
    index: cython.Py_ssize_t = 0
    if not len(end_view) == len(offsets) == len(lengths) == count:
        raise ValueError("columns have different lengths")
    with cython.nogil:
        while index < count:
            if not 0 <= places[index] <= end_view[index] <= len(view) or end_view[index] - places[index] < 4:
                break
            size = get_int32(source_of(view), places[index])
            if size > end_view[index] - places[index]:
                lengths[index] = -size
            elif check(source_of(view), places[index], end_view[index], offsets[index] - places[index], True, record):
                break
            else:
                lengths[index] = record.size
            index += 1
    return index


def scan(buffer, position, end, base_physical_offset, check_crc, columns):
    """Walk the records of buffer[position:end] into the columns. Returns the status. See scan_columns.py."""
    job = Walk()
    record: Record = Record()
    piece: Property = Property()
    status: cython.int
    job.view = buffer
    if not 0 <= position <= end <= len(job.view):
        raise ValueError(f"[{position}, {end}) is outside of a buffer of {len(job.view)} bytes")
    job.source = source_of(job.view)
    job.position = position
    job.end = end
    job.base_physical_offset = base_physical_offset
    job.check_crc = check_crc
    job.physical_offsets = columns.physical_offsets
    job.queue_offsets = columns.queue_offsets
    job.tags_codes = columns.tags_codes
    job.store_times_ms = columns.store_times_ms
    job.positions = columns.positions
    job.record_sizes = columns.record_sizes
    job.queue_indexes = columns.queue_indexes
    job.sys_flags = columns.sys_flags
    job.key_counts = columns.key_counts
    job.key_hashes = columns.key_hashes
    job.queue_rows = columns.queue_rows
    job.slots = columns.slots
    job.delays_ms = columns.delays_ms
    job.stamps = columns.stamp_places
    job.stamp_count = 0
    job.count = 0
    job.key_count = 0
    job.queue_count = 0
    job.last_queue = -1
    with cython.nogil:
        status = walk(job, record, piece)
        clear_slots(job)
    rows = columns.queue_rows
    columns.set_queues(
        [
            (bytes(job.view[rows[row] : rows[row] + rows[row + 1]]), rows[row + 2])
            for row in range(0, QUEUE_ROW_STRIDE * job.queue_count, QUEUE_ROW_STRIDE)
        ]
    )
    places = columns.stamp_places
    columns.stamps = [
        (places[at], bytes(job.view[places[at + 1] : places[at + 1] + places[at + 2]]))
        for at in range(0, STAMP_STRIDE * job.stamp_count, STAMP_STRIDE)
    ]
    columns.count = job.count
    columns.key_count = job.key_count
    columns.queue_count = job.queue_count
    columns.status = status
    columns.end_position = job.position
    columns.error_position = job.position if status > S_BLANK else -1
    return status


def check(source, position, end, base_physical_offset, check_crc, record):
    """Make all checks of a record. Returns 0 or the status."""
    status: cython.int = read_record(source, position, end, record)
    if status != 0:
        return status
    if record.physical_offset != base_physical_offset + position:
        return S_BAD_OFFSET
    if check_crc and not is_crc_good(source, record):
        return S_BAD_CRC
    return 0


def walk(job, record, piece):
    """Walk until the end, a full column or a record that fails. job.position is behind the last good record."""
    status: cython.int
    kind: cython.int
    row: cython.Py_ssize_t
    first_key: cython.Py_ssize_t
    while job.position < job.end:
        row = job.count
        if row == len(job.positions):
            return S_FULL
        status = check(job.source, job.position, job.end, job.base_physical_offset, job.check_crc, record)
        if status != 0:
            return status
        first_key = job.key_count
        kind = record.sys_flag & TRANSACTION_TYPE
        find_properties(job, record, piece)
        if kind != TRANSACTION_ROLLBACK and not add_keys(job, record):
            job.key_count = first_key
            return S_FULL
        job.key_counts[row] = job.key_count - first_key
        job.tags_codes[row] = tags_code(job, record)
        if kind == TRANSACTION_PREPARED or kind == TRANSACTION_ROLLBACK:
            job.queue_indexes[row] = -1
        else:
            job.queue_indexes[row] = queue_index(job, record)
        job.physical_offsets[row] = record.physical_offset
        job.queue_offsets[row] = record.queue_offset
        job.store_times_ms[row] = record.store_time_ms
        job.positions[row] = job.position
        job.record_sizes[row] = record.size
        job.sys_flags[row] = record.sys_flag
        if job.stamp_size > 0:
            add_stamp(job, row)
        job.count += 1
        job.position += record.size
    return 0


def find_properties(job, record, piece):
    """Record the places of the properties that indexes and writers need. The last of several equal names is used."""
    at: cython.Py_ssize_t = record.properties_start
    end: cython.Py_ssize_t = at + record.properties_size
    job.tags_size = 0
    job.keys_size = 0
    job.unique_size = 0
    job.delay_size = 0
    job.stamp_size = 0
    while at < end:
        at = next_property(job.source, at, end, piece)
        if piece.name_size == 4:
            if matches(job.source, piece.name_start, b"TAGS", 4):
                job.tags_start = piece.value_start
                job.tags_size = piece.value_size
            elif matches(job.source, piece.name_start, b"KEYS", 4):
                job.keys_start = piece.value_start
                job.keys_size = piece.value_size
        elif piece.name_size == 8 and matches(job.source, piece.name_start, b"UNIQ_KEY", 8):
            job.unique_start = piece.value_start
            job.unique_size = piece.value_size
        elif piece.name_size == 5 and matches(job.source, piece.name_start, b"DELAY", 5):
            job.delay_start = piece.value_start
            job.delay_size = piece.value_size
        elif piece.name_size == 12 and matches(job.source, piece.name_start, b"REPUT_WRITER", 12):
            job.stamp_start = piece.value_start
            job.stamp_size = piece.value_size


def add_stamp(job, row):
    """Record the place of the stamp of this record. Each record has at most a single stamp."""
    at: cython.Py_ssize_t = job.stamp_count * STAMP_STRIDE
    job.stamps[at] = row
    job.stamps[at + 1] = job.stamp_start
    job.stamps[at + 2] = job.stamp_size
    job.stamp_count += 1


def add_keys(job, record):
    """Add the hashes of the record's UNIQ_KEY, then of the pieces of KEYS. Returns False if there is no room."""
    at: cython.Py_ssize_t
    end: cython.Py_ssize_t
    stop: cython.Py_ssize_t
    seed: cython.uint
    if job.unique_size == 0 and job.keys_size == 0:
        return True
    seed = java_hash(job.source, record.topic_start, record.topic_size, 0)
    seed = (seed * 31 + 35) & M32  # the key text is topic#key
    if job.unique_size > 0 and not add_key(job, job.unique_start, job.unique_size, seed):
        return False
    if job.keys_size == 0:
        return True
    at = job.keys_start
    end = at + job.keys_size
    while at < end:
        stop = find(job.source, at, end, 32)
        if stop > at and not add_key(job, at, stop - at, seed):
            return False
        at = stop + 1
    return True


def add_key(job, start, size, seed):
    """Add the hash of a key: the absolute value of Java's hash, 0 if it has none. Returns False without room."""
    value: cython.longlong = java_hash(job.source, start, size, seed)
    if job.key_count == len(job.key_hashes):
        return False
    if value > INT32_MAX:
        value = INT32_SPAN - value
    job.key_hashes[job.key_count] = value & INT32_MAX
    job.key_count += 1
    return True


def queue_index(job, record):
    """Return the number of the record's queue in this scan. The queue of the previous record is tried first.

    Records that contain a batch have separate numbers: 2**32 is added to their queue ids here.
    """
    mask: cython.Py_ssize_t = len(job.slots) - 1
    slot: cython.Py_ssize_t
    row: cython.Py_ssize_t = job.last_queue * QUEUE_ROW_STRIDE
    hash_value: cython.longlong
    queue_id: cython.longlong = record.queue_id
    if (record.sys_flag & INNER_BATCH_FLAG) != 0:
        queue_id += INT32_SPAN
    if (
        job.last_queue >= 0
        and job.queue_rows[row + QUEUE_ROW_QUEUE_ID] == queue_id
        and job.queue_rows[row + QUEUE_ROW_TOPIC_SIZE] == record.topic_size
        and equal(
            job.source, job.queue_rows[row + QUEUE_ROW_TOPIC_START], job.source, record.topic_start, record.topic_size
        )
    ):
        return job.last_queue
    hash_value = crc32(job.source, record.topic_start, record.topic_size)
    slot = (hash_value + 40503 * queue_id) & mask
    while job.slots[slot] != 0:
        job.last_queue = job.slots[slot] - 1
        row = job.last_queue * QUEUE_ROW_STRIDE
        if (
            job.queue_rows[row + QUEUE_ROW_QUEUE_ID] == queue_id
            and job.queue_rows[row + QUEUE_ROW_TOPIC_HASH] == hash_value
            and job.queue_rows[row + QUEUE_ROW_TOPIC_SIZE] == record.topic_size
            and equal(
                job.source,
                job.queue_rows[row + QUEUE_ROW_TOPIC_START],
                job.source,
                record.topic_start,
                record.topic_size,
            )
        ):
            return job.last_queue
        slot = (slot + 1) & mask
    job.last_queue = job.queue_count
    job.queue_count += 1
    job.slots[slot] = job.queue_count
    row = job.last_queue * QUEUE_ROW_STRIDE
    job.queue_rows[row + QUEUE_ROW_TOPIC_START] = record.topic_start
    job.queue_rows[row + QUEUE_ROW_TOPIC_SIZE] = record.topic_size
    job.queue_rows[row + QUEUE_ROW_QUEUE_ID] = queue_id
    job.queue_rows[row + QUEUE_ROW_TOPIC_HASH] = hash_value
    job.queue_rows[row + QUEUE_ROW_SLOT] = slot
    return job.last_queue


def clear_slots(job):
    """Leave the hash table empty for the next scan."""
    index: cython.Py_ssize_t
    for index in range(job.queue_count):
        job.slots[job.queue_rows[index * QUEUE_ROW_STRIDE + QUEUE_ROW_SLOT]] = 0


def tags_code(job, record):
    """Return the tags code of a queue unit: the hash of the tag, or the delivery time for the schedule topic."""
    value: cython.longlong = 0
    level: cython.longlong
    if job.tags_size > 0:
        value = java_hash(job.source, job.tags_start, job.tags_size, 0)
        if value > INT32_MAX:
            value -= INT32_SPAN
    if (
        job.delay_size > 0
        and record.topic_size == 19
        and matches(job.source, record.topic_start, b"SCHEDULE_TOPIC_XXXX", 19)
    ):
        level = java_int(job.source, job.delay_start, job.delay_size)
        if 0 < level <= INT32_MAX and record.store_time_ms <= TIME_MAX:
            # a level above the last level becomes the last level
            value = record.store_time_ms + job.delays_ms[min(level, len(job.delays_ms)) - 1]
    return value
