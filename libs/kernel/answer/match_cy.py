# SPDX-License-Identifier: Apache-2.0
# cython: boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False
"""Compares records with the topic, the key and the times of look-ups, without an object per record.

Records are read as hostile bytes; a damaged record stops the call.
Format: docs/formats/commit_log.md section 5.
"""

from array import array
from itertools import accumulate

import cython
from cython.cimports.libs.kernel._bytes import equal, find, matches, source_of
from cython.cimports.libs.kernel.layout import *
from cython.cimports.libs.kernel.scan.record_cy import Record, read_record
from cython.cimports.libs.kernel.text_cy import Property, next_property


class Wanted:
    """The values that a record is compared with, as C fields in the compiled build."""


def matching_records(records, positions, sizes, topic, keys, key_numbers, start_time_ms, end_time_ms, is_unique_id):
    """Return the numbers of the records that have the topic, their key, and a store time in [start, end).

    positions: int64, sizes: int32, in bytes of `records`; a record of size 0 is no longer kept, and does not match.
    Record n is compared with the key keys[key_numbers[n]] (int32): with its unique id, or with any of its keys. A batch
    of messages matches no key. A key is not empty.
    Raises ValueError, naming the position, for a record that is damaged or has another size, and for a key number
    without a key.
    """
    view: cython.const[cython.uchar][::1] = records
    position_view: cython.const[cython.longlong][::1] = memoryview(positions)
    size_view: cython.const[cython.int][::1] = memoryview(sizes)
    number_view: cython.const[cython.int][::1] = memoryview(key_numbers)
    topic_view: cython.const[cython.uchar][::1] = topic + b"\0"
    key_view: cython.const[cython.uchar][::1] = b"".join(keys) + b"\0"
    end_view: cython.longlong[::1] = array("q", accumulate(map(len, keys), initial=0))
    record: Record = Record()
    piece: Property = Property()
    wanted: Wanted = Wanted()
    end: cython.Py_ssize_t = len(view)
    position: cython.longlong
    size: cython.longlong
    index: cython.Py_ssize_t
    number: cython.Py_ssize_t
    found: list = []
    if not len(position_view) == len(size_view) == len(number_view):
        raise ValueError("columns have different lengths")
    wanted.topic = source_of(topic_view)
    wanted.topic_size = len(topic_view) - 1
    wanted.keys = source_of(key_view)
    wanted.start_time_ms = start_time_ms
    wanted.end_time_ms = end_time_ms
    wanted.is_unique_id = is_unique_id
    for index in range(len(position_view)):
        position = position_view[index]
        size = size_view[index]
        number = number_view[index]
        if size == 0:
            continue
        if not 0 <= number < len(end_view) - 1:
            raise ValueError(f"key {number} of {len(end_view) - 1} keys")
        if (
            position < 0
            or position > end
            or size < 0
            or size > end - position
            or read_record(source_of(view), position, position + size, record) != 0
            or record.size != size
        ):
            raise ValueError(f"no whole record at position {position}")
        wanted.key_start = end_view[number]
        wanted.key_size = end_view[number + 1] - end_view[number]
        if is_wanted(source_of(view), record, piece, wanted):
            found.append(index)
    return found


def is_wanted(source, record, piece, wanted):
    """Return whether a record has the topic, a time of the range, and the key. The last of equal properties is used."""
    at: cython.Py_ssize_t = record.properties_start
    end: cython.Py_ssize_t = at + record.properties_size
    keys_start: cython.Py_ssize_t = 0
    keys_size: cython.Py_ssize_t = 0
    unique_start: cython.Py_ssize_t = 0
    unique_size: cython.Py_ssize_t = 0
    if record.sys_flag & INNER_BATCH_FLAG or not wanted.start_time_ms <= record.store_time_ms < wanted.end_time_ms:
        return False
    if record.topic_size != wanted.topic_size or not equal(
        source, record.topic_start, wanted.topic, 0, wanted.topic_size
    ):
        return False
    while at < end:
        at = next_property(source, at, end, piece)
        if piece.name_size == 4 and matches(source, piece.name_start, b"KEYS", 4):
            keys_start = piece.value_start
            keys_size = piece.value_size
        elif piece.name_size == 8 and matches(source, piece.name_start, b"UNIQ_KEY", 8):
            unique_start = piece.value_start
            unique_size = piece.value_size
    if unique_size == wanted.key_size and equal(source, unique_start, wanted.keys, wanted.key_start, unique_size):
        return True
    return not wanted.is_unique_id and has_key(source, keys_start, keys_size, wanted)


def has_key(source, start, size, wanted):
    """Return whether a KEYS text, whose keys are separated by spaces, has the key."""
    at: cython.Py_ssize_t = start
    end: cython.Py_ssize_t = start + size
    stop: cython.Py_ssize_t
    while at < end:
        stop = find(source, at, end, 32)
        if stop - at == wanted.key_size and equal(source, at, wanted.keys, wanted.key_start, wanted.key_size):
            return True
        at = stop + 1
    return False
