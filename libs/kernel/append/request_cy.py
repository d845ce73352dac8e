# SPDX-License-Identifier: Apache-2.0
# cython: boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False
"""Checks serialized bytes before they are parsed: whether they are a protobuf message, and the number of its values.

A single pass, which copies nothing and stops at the first value beyond the limit. So the limit bounds its cost, not the
sender. Every field counts, known or unknown, and so does every element of a packed field.
Not handled: the content of values, and whether strings are UTF-8; the parser checks this.
Layout: the public specification of protobuf's encoding; groups are refused, as proto3 has none.
"""

import cython
from cython.cimports.libs.formats.fields import APPEND_MESSAGE_TOPIC, APPEND_REQUEST_MESSAGES
from cython.cimports.libs.kernel._bytes import source_of
from cython.cimports.libs.kernel.append.message_cy import Field, next_field
from cython.cimports.libs.kernel.layout import *

DEPTH_MAX = cython.declare(cython.int, 32)


class Look:
    """A call of count_values, as C fields in the compiled build."""


def count_values(request, types, kinds, value_count_max):
    """Count the values of a message of type 0, including the embedded messages, or return a negative code.

    types: int32, two for each message type: the start of its row in `kinds`, and the highest number of its fields.
    kinds: int32, by place in the row: the kind of the field with this number.
    R_WIRE: not protobuf, or nested too deep. R_MISFIT: a known field has another wire type than it should.
    R_TOO_MANY: more than value_count_max. Raises ValueError for a table that points outside of itself.
    """
    look = Look()
    look.types = memoryview(types)
    look.kinds = memoryview(kinds)
    check_tables(look)
    look.view = request
    look.source = source_of(look.view)
    look.room = value_count_max
    field: Field = Field()
    size: cython.Py_ssize_t = len(look.view)
    code: cython.int
    with cython.nogil:
        code = walk(look, 0, size, 0, 0, field)
    return code if code < 0 else value_count_max - look.room


def topics_of(request):
    """Return the topics of the messages of a serialized batch, each with the number of its first message, from 0.

    Topics are bytes; a message without a topic has b"".
    A malformed batch ends the search: it is never appended.
    """
    look = Look()
    look.view = request
    look.source = source_of(look.view)
    found = {}
    field: Field = Field()
    count: cython.Py_ssize_t = 0
    size: cython.Py_ssize_t = len(look.view)
    at: cython.Py_ssize_t = 0
    inner_at: cython.Py_ssize_t
    start: cython.Py_ssize_t
    length: cython.Py_ssize_t
    while at < size:
        at = next_field(look.source, at, size, field)
        if at < 0:
            break
        if field.number != APPEND_REQUEST_MESSAGES or field.wire_type != KIND_BYTES:
            continue
        inner_at = field.start
        start = length = 0
        while 0 <= inner_at < at:
            inner_at = next_field(look.source, inner_at, at, field)
            if inner_at >= 0 and field.number == APPEND_MESSAGE_TOPIC and field.wire_type == KIND_BYTES:
                start, length = field.start, field.size
        if inner_at < 0:
            break
        found.setdefault(request[start : start + length], count)
        count += 1
    return found


def check_tables(look):
    """Raise ValueError if a table points outside of itself."""
    at: cython.Py_ssize_t
    kind: cython.Py_ssize_t
    for at in range(0, len(look.types), 2):
        if look.types[at] < 0 or look.types[at + 1] < 0 or look.types[at] + look.types[at + 1] >= len(look.kinds):
            raise ValueError("a row of a message type is outside of the table")
    for at in range(len(look.kinds)):
        kind = look.kinds[at]
        if kind >= KIND_MESSAGE and (kind - KIND_MESSAGE) * 2 + 1 >= len(look.types):
            raise ValueError("a field's message type is not in the table")
    return 0


def walk(look, start, end, message_type, depth, field):
    """Count the values in [start, end), a message of this type. Returns 0 or a code."""
    at: cython.Py_ssize_t = start
    row: cython.Py_ssize_t = look.types[2 * message_type]
    number_max: cython.longlong = look.types[2 * message_type + 1]
    kind: cython.int
    code: cython.int
    if depth > DEPTH_MAX:
        return R_WIRE
    while at < end:
        at = next_field(look.source, at, end, field)
        if at < 0:
            return R_WIRE
        look.room -= 1
        if look.room < 0:
            return R_TOO_MANY
        if field.number > number_max:
            continue
        kind = look.kinds[row + field.number]
        if kind == KIND_UNKNOWN:
            continue
        if kind >= KIND_MESSAGE:
            if field.wire_type != KIND_BYTES:
                return R_MISFIT
            code = walk(look, field.start, at, kind - KIND_MESSAGE, depth + 1, field)
            if code < 0:
                return code
        elif kind >= KIND_PACKED and field.wire_type == KIND_BYTES:
            if not count_packed(look, kind - KIND_PACKED, field):
                return R_TOO_MANY
        elif field.wire_type != (kind & 7):
            return R_MISFIT
    return 0


def count_packed(look, wire_type, field):
    """Count the elements of a packed field. Returns False when they are too many."""
    at: cython.Py_ssize_t
    if wire_type == KIND_VARINT:
        for at in range(field.start, field.start + field.size):
            if look.source[at] < 128:
                look.room -= 1
                if look.room < 0:
                    return False
    else:
        look.room -= field.size // (8 if wire_type == KIND_FIXED64 else 4)
    return look.room >= 0
