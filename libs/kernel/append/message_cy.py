# SPDX-License-Identifier: Apache-2.0
# cython: boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False
"""Reads a serialized AppendMessage and checks its properties; the first half of `append`.

Protobuf's rules hold: unknown fields are skipped, the last of several equal fields is used, embedded hosts are merged,
groups and wire types that do not fit the field are malformed. Every length is checked before it is used.
Values are checked by append_cy.py, except topic names and properties.
Layout: protos/reput/commitlog/v1/append_service.proto.
"""

import cython
from cython.cimports.libs.formats.fields import *
from cython.cimports.libs.kernel._bytes import find, matches
from cython.cimports.libs.kernel.layout import *
from cython.cimports.libs.kernel.text_cy import is_utf8, java_int, java_long, next_property

TAG_MAX = cython.declare(cython.ulonglong, 0xFFFFFFFF)
PLAIN_FIELDS = cython.declare(cython.int, 75)
ENTRY_FIELDS = cython.declare(cython.int, 8)
ENTRIES = cython.declare(cython.int, 16384)
"""The limits: fields of a message besides its properties, fields of a property entry and of a host, and properties.
Unknown fields of newer clients have room. A message above the limits is malformed, because meaningless or repeated
fields would take the time of all other requests."""
SIGN = cython.declare(cython.ulonglong, 0x8000000000000000)


class Field:
    """A field of a message: its number, and either the value of a varint or the place of its bytes."""

    def __init__(self):
        self.number = 0
        self.wire_type = 0
        self.value = 0
        self.start = 0
        self.size = 0


class Message:
    """An AppendMessage: values of its fields, places of its bytes, and the findings in its properties."""


def read_varint(source, at, end, field):
    """Read a varint into field.value. Returns the place after it, or -1 if it has no end or exceeds 64 bits."""
    value: cython.ulonglong = 0
    byte: cython.ulonglong
    shift: cython.int = 0
    while at < end and shift < 64:
        byte = source[at]
        at += 1
        if shift == 63 and byte > 1:
            return -1
        value |= (byte & 127) << shift
        if byte < 128:
            field.value = value
            return at
        shift += 7
    return -1


def next_field(source, at, end, field):
    """Read the field at `at` < `end`. Returns the place after it, or -1 if it is malformed."""
    next_at: cython.Py_ssize_t = read_varint(source, at, end, field)
    tag: cython.ulonglong = field.value
    if next_at < 0 or tag > TAG_MAX or tag < 8:
        return -1
    field.number = tag >> 3
    field.wire_type = tag & 7
    if field.wire_type == 0:
        return read_varint(source, next_at, end, field)
    if field.wire_type == 2:
        next_at = read_varint(source, next_at, end, field)
        if next_at < 0 or field.value > cython.cast(cython.ulonglong, end - next_at):
            return -1
        field.start = next_at
        field.size = field.value
        return next_at + field.size
    if field.wire_type == 1 and end - next_at >= 8:
        return next_at + 8
    if field.wire_type == 5 and end - next_at >= 4:
        return next_at + 4
    return -1


def to_signed(value):
    """Return a varint's value as int64."""
    if cython.compiled:
        return cython.cast(cython.longlong, value)
    return value - (1 << 64) if value >= SIGN else value


def read_message(source, start, end, message, field, piece):
    """Read the AppendMessage in [start, end). Returns False if it is malformed."""
    at: cython.Py_ssize_t = start
    number: cython.longlong
    field_count: cython.int = 0
    reset(message, start, end)
    while at < end:
        at = next_field(source, at, end, field)
        if at < 0:
            return False
        number = field.number
        if number != APPEND_MESSAGE_PROPERTIES:
            field_count += 1
            if field_count > PLAIN_FIELDS:
                return False
        if number > APPEND_MESSAGE_PREPARED_TRANSACTION_OFFSET:
            continue
        if number in (
            APPEND_MESSAGE_TOPIC,
            APPEND_MESSAGE_BODY,
            APPEND_MESSAGE_PROPERTIES,
            APPEND_MESSAGE_PROPERTY_STRING,
            APPEND_MESSAGE_BORN_HOST,
        ):
            if field.wire_type != 2:
                return False
            if number == APPEND_MESSAGE_TOPIC:
                message.topic_start = field.start
                message.topic_size = field.size
            elif number == APPEND_MESSAGE_BODY:
                message.body_start = field.start
                message.body_size = field.size
            elif number == APPEND_MESSAGE_PROPERTIES:
                message.entry_count += 1
                if message.entry_count > ENTRIES:
                    return False
                if not read_entry(source, field.start, field.start + field.size, field, piece):
                    return False
            elif number == APPEND_MESSAGE_PROPERTY_STRING:
                message.string_start = field.start
                message.string_size = field.size
            else:
                message.has_host = True
                if not read_host(source, field.start, field.start + field.size, message, field):
                    return False
        else:
            if field.wire_type != 0:
                return False
            if number == APPEND_MESSAGE_QUEUE_ID:
                message.has_queue_id = True
                message.queue_id = to_signed(field.value)
            elif number == APPEND_MESSAGE_FLAG:
                message.flag = to_signed(field.value)
            elif number == APPEND_MESSAGE_SYS_FLAG:
                message.sys_flag = to_signed(field.value)
            elif number == APPEND_MESSAGE_BORN_TIME_MS:
                message.born_time_ms = to_signed(field.value)
            elif number == APPEND_MESSAGE_RECONSUME_TIMES:
                message.reconsume_times = to_signed(field.value)
            else:
                message.prepared_transaction_offset = to_signed(field.value)
    return True


def reset(message, start, end):
    """Set every field as if it were absent."""
    message.start = start
    message.end = end
    message.topic_start = start
    message.topic_size = 0
    message.has_queue_id = False
    message.queue_id = 0
    message.body_start = start
    message.body_size = 0
    message.entry_count = 0
    message.string_start = start
    message.string_size = 0
    message.flag = 0
    message.sys_flag = 0
    message.born_time_ms = 0
    message.has_host = False
    message.address_start = start
    message.address_size = 0
    message.port = 0
    message.reconsume_times = 0
    message.prepared_transaction_offset = 0


def read_host(source, start, end, message, field):
    """Merge an embedded Host. Returns False if it is malformed."""
    at: cython.Py_ssize_t = start
    field_count: cython.int = 0
    while at < end:
        at = next_field(source, at, end, field)
        field_count += 1
        if at < 0 or field_count > ENTRY_FIELDS:
            return False
        if field.number == HOST_ADDRESS:
            if field.wire_type != 2:
                return False
            message.address_start = field.start
            message.address_size = field.size
        elif field.number == HOST_PORT:
            if field.wire_type != 0:
                return False
            message.port = to_signed(field.value)
    return True


def read_entry(source, start, end, field, piece):
    """Read an entry of the property map into `piece`, empty without key or value. Returns False if it is malformed."""
    at: cython.Py_ssize_t = start
    field_count: cython.int = 0
    piece.name_start = start
    piece.name_size = 0
    piece.value_start = start
    piece.value_size = 0
    while at < end:
        at = next_field(source, at, end, field)
        field_count += 1
        if at < 0 or field_count > ENTRY_FIELDS:
            return False
        if field.number > PROPERTIES_ENTRY_VALUE:
            continue
        if field.wire_type != 2:
            return False
        if field.number == PROPERTIES_ENTRY_KEY:
            piece.name_start = field.start
            piece.name_size = field.size
        else:
            piece.value_start = field.start
            piece.value_size = field.size
    return True


def is_topic_name(source, start, size):
    """Return whether bytes are a topic name: 1 to 127 of letters, digits, `_`, `-`, `%` and `|` (TopicValidator)."""
    at: cython.Py_ssize_t
    byte: cython.int
    if size < 1 or size > TOPIC_SIZE_MAX:
        return False
    for at in range(start, start + size):
        byte = source[at]
        if not (
            97 <= byte <= 122
            or 65 <= byte <= 90
            or 48 <= byte <= 57
            or byte == 95
            or byte == 45
            or byte == 37
            or byte == 124
        ):
            return False
    return True


def check_properties(source, message, field, piece):
    """Check all properties and compute properties_size, their size in the record without the CRC property.

    Returns 0, or like `append` E_PROPERTIES, E_DELAY (a time that is no number) or E_LIGHT (for light queues).
    Equal names are stored in the order of the request: every reader uses the last of them. Properties that only the
    store writes are not counted, because the client's are left out.
    """
    at: cython.Py_ssize_t
    end: cython.Py_ssize_t
    outcome: cython.int
    message.properties_size = 0
    message.has_store_property = False
    message.sharding_key_size = 0
    message.delay_level = 0
    message.delay_count = 0
    message.delay_value_size = 0
    message.real_size = 0
    message.timer = TIMER_NONE
    message.timer_size = 0
    message.is_timed_out = False
    message.is_timer_delete = False
    message.is_half = False
    if message.string_size > 0:
        at = message.string_start
        end = at + message.string_size
        if message.entry_count > 0 or not is_utf8(source, at, message.string_size):
            return E_PROPERTIES
        while at < end:
            at = next_property(source, at, end, piece)
            outcome = check_property(source, message, piece)
            if outcome != 0:
                return outcome
    elif message.entry_count > 0:
        at = message.start
        end = message.end
        while at < end:
            at = next_field(source, at, end, field)
            if field.number != 4:
                continue
            read_entry(source, field.start, field.start + field.size, field, piece)
            if not is_entry_text(source, piece):
                return E_PROPERTIES
            outcome = check_property(source, message, piece)
            if outcome != 0:
                return outcome
    return 0


def is_entry_text(source, piece):
    """Return whether an entry of the property map can be stored: UTF-8, with separators only where they are allowed."""
    name_end: cython.Py_ssize_t = piece.name_start + piece.name_size
    value_end: cython.Py_ssize_t = piece.value_start + piece.value_size
    return (
        piece.value_size > 0
        and find(source, piece.name_start, name_end, 1) == name_end
        and find(source, piece.name_start, name_end, 2) == name_end
        and find(source, piece.value_start, value_end, 2) == value_end
        and is_utf8(source, piece.name_start, piece.name_size)
        and is_utf8(source, piece.value_start, piece.value_size)
    )


def looks_like_crc_property(source, piece):
    """Return whether a property of another name contains the beginning of the store's CRC property.

    Readers look for that beginning 20 bytes before the end of a record, with any separators around it. A record without
    its own CRC property would then look damaged.
    """
    name_end: cython.Py_ssize_t = piece.name_start + piece.name_size
    value_end: cython.Py_ssize_t = piece.value_start + piece.value_size
    at: cython.Py_ssize_t = find(source, piece.value_start, value_end, 1)
    if piece.name_size > 8 and matches(source, name_end - 8, b"__CRC32#", 8):
        return True
    while at < value_end:
        if at - piece.value_start >= 8 and matches(source, at - 8, b"__CRC32#", 8):
            return True
        at = find(source, at + 1, value_end, 1)
    return False


def check_property(source, message, piece):
    """Count a property, and handle the names that have a meaning for the store. Returns like check_properties."""
    name: cython.Py_ssize_t = piece.name_start
    size: cython.Py_ssize_t = piece.name_size
    number: cython.longlong
    timer: cython.int
    if size == 0:
        return E_PROPERTIES
    if is_store_property(source, piece):
        message.has_store_property = True
        return 0
    if looks_like_crc_property(source, piece):
        return E_PROPERTIES
    message.properties_size += size + piece.value_size + 2
    if size == 5 and matches(source, name, b"DELAY", 5):
        number = java_int(source, piece.value_start, piece.value_size)
        if number > 2147483647:
            return E_PROPERTIES
        message.delay_level = number
        message.delay_count += 1
        message.delay_value_size += piece.value_size
        return 0
    if size == 9 and matches(source, name, b"INNER_NUM", 9):
        return E_PROPERTIES
    if size == 13 and matches(source, name, b"__SHARDINGKEY", 13):
        message.sharding_key_start = piece.value_start
        message.sharding_key_size = piece.value_size
    elif is_real_place(source, piece):
        message.real_size += size + piece.value_size + 2
    elif size > 6 and matches(source, name, b"TIMER_", 6):
        timer = timer_of(source, piece)
        if timer != TIMER_NONE:
            number = java_long(source, piece.value_start, piece.value_size)
            if number > TIME_MAX:
                return E_DELAY
            message.timer_size += size + piece.value_size + 2
            if timer >= message.timer:
                message.timer = timer
                message.timer_number = number
        elif size == 12 and matches(source, name, b"TIMER_OUT_MS", 12):
            message.is_timed_out = True
        elif size == 17 and matches(source, name, b"TIMER_DEL_UNIQKEY", 17):
            message.is_timer_delete = True
    elif size == 8 and matches(source, name, b"TRAN_MSG", 8):
        message.is_half = is_true(source, piece)
    elif size == 20 and matches(source, name, b"INNER_MULTI_DISPATCH", 20):
        return E_LIGHT
    return 0


def is_store_property(source, piece):
    """Return whether only the store writes this property: the CRC property or a writer's stamp."""
    return (piece.name_size == 8 and matches(source, piece.name_start, b"__CRC32#", 8)) or (
        piece.name_size == 12 and matches(source, piece.name_start, b"REPUT_WRITER", 12)
    )


def timer_of(source, piece):
    """Return the kind of a property that orders to wait for a time, else TIMER_NONE. The highest kind is used."""
    if piece.name_size == 16 and matches(source, piece.name_start, b"TIMER_DELIVER_MS", 16):
        return TIMER_DELIVER_MS
    if piece.name_size == 14 and matches(source, piece.name_start, b"TIMER_DELAY_MS", 14):
        return TIMER_DELAY_MS
    if piece.name_size == 15 and matches(source, piece.name_start, b"TIMER_DELAY_SEC", 15):
        return TIMER_DELAY_SEC
    return TIMER_NONE


def is_true(source, piece):
    """Return Boolean.parseBoolean of a value."""
    at: cython.Py_ssize_t = piece.value_start
    return (
        piece.value_size == 4
        and source[at] | 32 == 116
        and source[at + 1] | 32 == 114
        and source[at + 2] | 32 == 117
        and source[at + 3] | 32 == 101
    )


def is_real_place(source, piece):
    """Return whether this is REAL_TOPIC or REAL_QID, which the store itself writes for a waiting message."""
    return (piece.name_size == 10 and matches(source, piece.name_start, b"REAL_TOPIC", 10)) or (
        piece.name_size == 8 and matches(source, piece.name_start, b"REAL_QID", 8)
    )
