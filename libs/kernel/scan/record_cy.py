# SPDX-License-Identifier: Apache-2.0
# cython: boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False
"""Reads a record of the commit log: the places of its fields, and whether its lengths and checksums agree.

Reads any bytes. A length is compared with the end of the buffer before it is used, so nothing outside of
[position, end) is ever read. Reads V1 and V2, IPv4 and IPv6 hosts; the callers interpret the numbers.
Layout: docs/formats/commit_log.md.
"""

import cython
from cython.cimports.libs.kernel._bytes import get_int16, get_int32, get_int64, matches
from cython.cimports.libs.kernel.layout import *
from cython.cimports.libs.kernel.text_cy import crc32


class Record:
    """The fields of a record; places are positions in the buffer. Valid only after read_record returned 0."""


def read_record(source, position, end, record):
    """Read the record at `position`. Returns 0, or the status with the reason if there is no record."""
    magic: cython.int
    at: cython.Py_ssize_t
    if end - position < BLANK_SIZE_MIN:
        return S_TRUNCATED
    magic = get_int32(source, position + 4)
    if magic == MAGIC_BLANK:
        return S_BLANK
    if magic != MAGIC_V1 and magic != MAGIC_V2:
        return S_BAD_MAGIC
    record.start = position
    record.size = get_int32(source, position)
    if record.size < RECORD_SIZE_MIN + (1 if magic == MAGIC_V2 else 0):
        return S_BAD_LENGTH
    if record.size > end - position:
        return S_TRUNCATED
    record.sys_flag = get_int32(source, position + 36)
    record.born_host_size = HOST_V6_SIZE if record.sys_flag & BORN_HOST_V6 else HOST_V4_SIZE
    record.store_host_size = HOST_V6_SIZE if record.sys_flag & STORE_HOST_V6 else HOST_V4_SIZE
    at = read_lengths(source, record, 2 if magic == MAGIC_V2 else 1)
    if at != 0:
        return at
    record.body_crc = get_int32(source, position + 8)
    record.queue_id = get_int32(source, position + 12)
    record.flag = get_int32(source, position + 16)
    record.queue_offset = get_int64(source, position + 20)
    record.physical_offset = get_int64(source, position + 28)
    record.born_time_ms = get_int64(source, position + 40)
    record.born_host_start = position + 48
    at = position + 48 + record.born_host_size
    record.store_time_ms = get_int64(source, at)
    record.store_host_start = at + 8
    at += 8 + record.store_host_size
    record.reconsume_times = get_int32(source, at)
    record.prepared_transaction_offset = get_int64(source, at + 4)
    return 0


def read_lengths(source, record, topic_size_size):
    """Read the sizes of body, topic and properties, which must add up to exactly the size of the record."""
    end: cython.Py_ssize_t = record.start + record.size
    at: cython.Py_ssize_t = record.start + 72 + record.born_host_size + record.store_host_size
    if at > end - 3 - topic_size_size:
        return S_BAD_LENGTH
    record.body_size = get_int32(source, at - 4)
    record.body_start = at
    if record.body_size < 0 or record.body_size > end - at - 2 - topic_size_size:
        return S_BAD_LENGTH
    at += record.body_size
    if topic_size_size == 1:
        record.topic_size = source[at]
        if record.topic_size > 127:  # a signed byte in Java
            return S_BAD_LENGTH
    else:
        record.topic_size = get_int16(source, at)
    at += topic_size_size
    record.topic_start = at
    if record.topic_size < 0 or record.topic_size > end - at - 2:
        return S_BAD_LENGTH
    at += record.topic_size
    record.properties_size = get_int16(source, at)
    record.properties_start = at + 2
    if record.properties_size < 0 or record.properties_start + record.properties_size != end:
        return S_BAD_LENGTH
    return 0


def has_crc_property(source, record):
    """Return whether the last 20 bytes of the properties begin like a CRC property.

    The byte before them does not matter, so a damaged separator cannot hide the CRC property from the check; the
    append kernel refuses properties of another name that would look like it.
    """
    return record.properties_size >= CRC_PROPERTY_SIZE and matches(
        source, record.start + record.size - CRC_PROPERTY_SIZE, b"__CRC32#\x01", 9
    )


def is_crc_good(source, record):
    """Return whether the CRC of the body matches and, with a CRC property, also the CRC of all bytes before it."""
    at: cython.Py_ssize_t
    digit: cython.Py_ssize_t
    value: cython.longlong
    if (crc32(source, record.body_start, record.body_size) & INT32_MAX) != record.body_crc:
        return False
    if not has_crc_property(source, record):
        return True
    at = record.start + record.size - CRC_PROPERTY_SIZE
    value = crc32(source, record.start, at - record.start) & INT32_MAX
    if source[at + 19] != 2:
        return False
    for digit in range(at + 9, at + 19):  # decimal, the lowest digit first
        if source[digit] != 48 + value % 10:
            return False
        value //= 10
    return True
