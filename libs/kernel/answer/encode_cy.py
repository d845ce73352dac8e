# SPDX-License-Identifier: Apache-2.0
# cython: boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False
"""Encodes records as protobuf: a pass measures, a second pass writes, without an object per message or property.

The other form of an answer has the records themselves, one behind the other.
Records are read as hostile bytes; a damaged record stops the call before anything is written.
Not handled: checksums (scan_cy.py has them), tag filters. Layout: protos/reput/common/v1/message.proto.
"""

from array import array

import cython
from cython.cimports.libs.formats.fields import *
from cython.cimports.libs.kernel._bytes import (
    copy,
    finish_bytes,
    get_int32,
    matches,
    new_bytes,
    new_bytes_target,
    source_of,
)
from cython.cimports.libs.kernel.layout import *
from cython.cimports.libs.kernel.scan.record_cy import Record, read_record
from cython.cimports.libs.kernel.text_cy import Property, is_utf8, next_property


def encode_messages(records, positions, sizes, count, field_number):
    """Serialize the records at these positions as `repeated StoredMessage` of this field number.

    positions: int64, sizes: int32, in bytes of `records`; the first `count` are used. Properties become the map,
    without the CRC property; a property string that is not UTF-8 becomes raw_properties.
    Raises ValueError, naming the position, for a record that is damaged or has another size.
    """
    view: cython.const[cython.uchar][::1] = records
    position_view: cython.const[cython.longlong][::1] = memoryview(positions)[:count]
    size_view: cython.const[cython.int][::1] = memoryview(sizes)[:count]
    record: Record = Record()
    piece: Property = Property()
    end: cython.Py_ssize_t = len(view)
    number: cython.int = field_number
    total: cython.Py_ssize_t = 0
    at: cython.Py_ssize_t = 0
    index: cython.Py_ssize_t = 0
    if not len(position_view) == len(size_view) == count or not 1 <= field_number <= 15:
        raise ValueError(f"{count} records of field {field_number}")
    made_sizes = array("q", bytes(8 * count))
    message_sizes: cython.longlong[::1] = made_sizes
    source = source_of(view)
    with cython.nogil:
        while index < len(position_view) and read_listed(source, end, position_view, size_view, index, record):
            message_sizes[index] = message_size(source, record, piece)
            total += bytes_size(number, message_sizes[index])
            index += 1
    if index < len(position_view):
        raise ValueError(f"no whole record at position {position_view[index]}")
    made = new_bytes(total)
    target = new_bytes_target(made)
    with cython.nogil:
        for index in range(len(position_view)):
            read_listed(source, end, position_view, size_view, index, record)
            at = put_head(target, at, number, message_sizes[index])
            at = put_message(target, at, source, record, piece)
    return finish_bytes(made)


def encode_records(records, positions, sizes, count, field_number, head):
    """Return `head`, and behind it the records at these positions as a bytes field of this number.

    The records lie one behind the other, unchanged. positions: int64, sizes: int32, in bytes of `records`; the first
    `count` are used. Raises ValueError exactly where encode_messages does: both forms refuse the same records.
    """
    view: cython.const[cython.uchar][::1] = records
    head_view: cython.const[cython.uchar][::1] = head
    position_view: cython.const[cython.longlong][::1] = memoryview(positions)[:count]
    size_view: cython.const[cython.int][::1] = memoryview(sizes)[:count]
    record: Record = Record()
    end: cython.Py_ssize_t = len(view)
    number: cython.int = field_number
    head_size: cython.Py_ssize_t = len(head_view)
    total: cython.Py_ssize_t = 0
    at: cython.Py_ssize_t = 0
    index: cython.Py_ssize_t = 0
    if not len(position_view) == len(size_view) == count or not 1 <= field_number <= 15:
        raise ValueError(f"{count} records of field {field_number}")
    source = source_of(view)
    with cython.nogil:
        while index < len(position_view) and read_listed(source, end, position_view, size_view, index, record):
            total += size_view[index]
            index += 1
    if index < len(position_view):
        raise ValueError(f"no whole record at position {position_view[index]}")
    made = new_bytes(head_size + (bytes_size(number, total) if total > 0 else 0))
    target = new_bytes_target(made)
    with cython.nogil:
        if head_size > 0:
            copy(target, 0, source_of(head_view), 0, head_size)
        at = head_size
        if total > 0:
            at = put_head(target, at, number, total)
        for index in range(len(position_view)):
            copy(target, at, source, position_view[index], size_view[index])
            at += size_view[index]
    return finish_bytes(made)


def read_listed(source, end, positions, sizes, index, record):
    """Read record number `index`. Returns False unless it is whole, has exactly this size, and its topic is UTF-8."""
    position: cython.longlong = positions[index]
    size: cython.longlong = sizes[index]
    return (
        position >= 0
        and position <= end
        and size >= 0
        and size <= end - position
        and read_record(source, position, position + size, record) == 0
        and record.size == size
        and is_utf8(source, record.topic_start, record.topic_size)
    )


def message_size(source, record, piece):
    """Return the size of the record as StoredMessage."""
    return (
        (bytes_size(STORED_MESSAGE_TOPIC, record.topic_size) if record.topic_size > 0 else 0)
        + number_size(STORED_MESSAGE_QUEUE_ID, record.queue_id)
        + number_size(STORED_MESSAGE_QUEUE_OFFSET, record.queue_offset)
        + number_size(STORED_MESSAGE_PHYSICAL_OFFSET, record.physical_offset)
        + (bytes_size(STORED_MESSAGE_BODY, record.body_size) if record.body_size > 0 else 0)
        + properties_size(source, record, piece)
        + number_size(STORED_MESSAGE_BORN_TIME_MS, record.born_time_ms)
        + number_size(STORED_MESSAGE_STORE_TIME_MS, record.store_time_ms)
        + bytes_size(STORED_MESSAGE_BORN_HOST, host_size(source, record.born_host_start, record.born_host_size))
        + bytes_size(STORED_MESSAGE_STORE_HOST, host_size(source, record.store_host_start, record.store_host_size))
        + number_size(STORED_MESSAGE_FLAG, record.flag)
        + number_size(STORED_MESSAGE_SYS_FLAG, record.sys_flag)
        + number_size(STORED_MESSAGE_RECONSUME_TIMES, record.reconsume_times)
        + number_size(STORED_MESSAGE_PREPARED_TRANSACTION_OFFSET, record.prepared_transaction_offset)
        + number_size(STORED_MESSAGE_RECORD_SIZE_BYTES, record.size)
        + bytes_size(STORED_MESSAGE_OFFSET_MESSAGE_ID, 2 * (record.store_host_size + 8))
    )


def put_message(target, at, source, record, piece):
    """Write the record as StoredMessage. Returns the place after it."""
    if record.topic_size > 0:
        at = put_bytes(target, at, STORED_MESSAGE_TOPIC, source, record.topic_start, record.topic_size)
    at = put_number(target, at, STORED_MESSAGE_QUEUE_ID, record.queue_id)
    at = put_number(target, at, STORED_MESSAGE_QUEUE_OFFSET, record.queue_offset)
    at = put_number(target, at, STORED_MESSAGE_PHYSICAL_OFFSET, record.physical_offset)
    if record.body_size > 0:
        at = put_bytes(target, at, STORED_MESSAGE_BODY, source, record.body_start, record.body_size)
    at = put_properties(target, at, source, record, piece)
    at = put_number(target, at, STORED_MESSAGE_BORN_TIME_MS, record.born_time_ms)
    at = put_number(target, at, STORED_MESSAGE_STORE_TIME_MS, record.store_time_ms)
    at = put_host(target, at, STORED_MESSAGE_BORN_HOST, source, record.born_host_start, record.born_host_size)
    at = put_host(target, at, STORED_MESSAGE_STORE_HOST, source, record.store_host_start, record.store_host_size)
    at = put_number(target, at, STORED_MESSAGE_FLAG, record.flag)
    at = put_number(target, at, STORED_MESSAGE_SYS_FLAG, record.sys_flag)
    at = put_number(target, at, STORED_MESSAGE_RECONSUME_TIMES, record.reconsume_times)
    at = put_number(target, at, STORED_MESSAGE_PREPARED_TRANSACTION_OFFSET, record.prepared_transaction_offset)
    at = put_number(target, at, STORED_MESSAGE_RECORD_SIZE_BYTES, record.size)
    at = put_head(target, at, STORED_MESSAGE_OFFSET_MESSAGE_ID, 2 * (record.store_host_size + 8))
    return put_message_id(target, at, source, record)


def is_listed(source, piece):
    """Return whether a property is shown to readers: well formed, and not the store's own CRC property."""
    return piece.name_size > 0 and not (piece.name_size == 8 and matches(source, piece.name_start, b"__CRC32#", 8))


def entry_size(piece):
    """Return the size of a property as an entry of the map."""
    return bytes_size(PROPERTIES_ENTRY_KEY, piece.name_size) + bytes_size(PROPERTIES_ENTRY_VALUE, piece.value_size)


def properties_size(source, record, piece):
    """Return the size of the properties: a map entry each, or a field of raw bytes if they are not UTF-8."""
    at: cython.Py_ssize_t = record.properties_start
    end: cython.Py_ssize_t = at + record.properties_size
    total: cython.Py_ssize_t = 0
    if not is_utf8(source, at, record.properties_size):
        return bytes_size(STORED_MESSAGE_RAW_PROPERTIES, record.properties_size)
    while at < end:
        at = next_property(source, at, end, piece)
        if is_listed(source, piece):
            total += bytes_size(STORED_MESSAGE_PROPERTIES, entry_size(piece))
    return total


def put_properties(target, at, source, record, piece):
    """Write the properties. Returns the place after them."""
    start: cython.Py_ssize_t = record.properties_start
    end: cython.Py_ssize_t = start + record.properties_size
    if not is_utf8(source, start, record.properties_size):
        return put_bytes(target, at, STORED_MESSAGE_RAW_PROPERTIES, source, start, record.properties_size)
    while start < end:
        start = next_property(source, start, end, piece)
        if is_listed(source, piece):
            at = put_head(target, at, STORED_MESSAGE_PROPERTIES, entry_size(piece))
            at = put_bytes(target, at, PROPERTIES_ENTRY_KEY, source, piece.name_start, piece.name_size)
            at = put_bytes(target, at, PROPERTIES_ENTRY_VALUE, source, piece.value_start, piece.value_size)
    return at


def put_message_id(target, at, source, record):
    """Write the offset message id: store host and physical offset in upper-case hex. Returns the place after it."""
    index: cython.Py_ssize_t
    byte: cython.int
    for index in range(record.store_host_size + 8):
        if index < record.store_host_size:
            byte = source[record.store_host_start + index]
        else:
            byte = source[record.start + 28 + index - record.store_host_size]
        target[at] = hex_digit(byte >> 4)
        target[at + 1] = hex_digit(byte & 15)
        at += 2
    return at


def hex_digit(value):
    """Return the ASCII code of a hexadecimal digit."""
    return 48 + value if value < 10 else 55 + value


def host_size(source, start, size):
    """Return the size of a stored host (address, then a port of four bytes) as Host."""
    return bytes_size(HOST_ADDRESS, size - 4) + number_size(HOST_PORT, get_int32(source, start + size - 4))


def put_host(target, at, number, source, start, size):
    """Write a stored host as a field of type Host. Returns the place after it."""
    at = put_head(target, at, number, host_size(source, start, size))
    at = put_bytes(target, at, HOST_ADDRESS, source, start, size - 4)
    return put_number(target, at, HOST_PORT, get_int32(source, start + size - 4))


def to_unsigned(value):
    """Return the unsigned number that a varint writes for a signed number."""
    if cython.compiled:
        return cython.cast(cython.ulonglong, value)
    return value & M64


def varint_size(value):
    """Return the bytes of a varint: ten for a negative number."""
    rest: cython.ulonglong = to_unsigned(value)
    size: cython.Py_ssize_t = 1
    while rest > 127:
        rest >>= 7
        size += 1
    return size


def put_varint(target, at, value):
    """Write a varint. Returns the place after it."""
    rest: cython.ulonglong = to_unsigned(value)
    while rest > 127:
        target[at] = (rest & 127) | 128
        rest >>= 7
        at += 1
    target[at] = rest
    return at + 1


def number_size(number, value):
    """Return the size of an int field: 0 for 0, the default."""
    return 0 if value == 0 else varint_size(number << 3) + varint_size(value)


def put_number(target, at, number, value):
    """Write an int field unless it is 0. Returns the place after it."""
    if value == 0:
        return at
    return put_varint(target, put_varint(target, at, number << 3), value)


def bytes_size(number, size):
    """Return the size of a field with a length, contents included."""
    return varint_size(number << 3) + varint_size(size) + size


def put_head(target, at, number, size):
    """Write tag and length of a field. Returns the place of its contents."""
    return put_varint(target, put_varint(target, at, (number << 3) | 2), size)


def put_bytes(target, at, number, source, start, size):
    """Write a bytes, string or message field. Returns the place after it."""
    at = put_head(target, at, number, size)
    copy(target, at, source, start, size)
    return at + size
