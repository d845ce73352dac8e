# SPDX-License-Identifier: Apache-2.0
# cython: boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False
"""Looks over a serialized protobuf message before anybody parses it: is it one, and how many values has it.

One pass that copies nothing and stops at the first value too many, so what it costs is bounded by the limit and not by
who sends. Every field counts, known or not, and every element of a packed one.
Not handled: what the values say, and whether strings are UTF-8; the parser looks at that.
Layout: the public specification of protobuf's encoding; groups are refused, as proto3 has none.
"""

import cython

if cython.compiled:
    from cython.cimports.libs.kernel._bytes import source_of
    from cython.cimports.libs.kernel.append.message_cy import Field, next_field
else:
    from libs.kernel._bytes import source_of
    from libs.kernel.append.message_cy import Field, next_field

# Kinds of a field, as C constants; the names without K_ are the same for Python callers.
K_UNKNOWN = cython.declare(cython.int, -1)
K_VARINT = cython.declare(cython.int, 0)
K_FIXED64 = cython.declare(cython.int, 1)
K_BYTES = cython.declare(cython.int, 2)
K_FIXED32 = cython.declare(cython.int, 5)
K_PACKED = cython.declare(cython.int, 8)
K_MESSAGE = cython.declare(cython.int, 16)

UNKNOWN, VARINT, FIXED64, BYTES, FIXED32 = K_UNKNOWN, K_VARINT, K_FIXED64, K_BYTES, K_FIXED32
PACKED = K_PACKED
"""Added to a wire type: the field is repeated and may come packed."""
MESSAGE = K_MESSAGE
"""Added to the number of a message type: the field is such a message."""

WIRE = cython.declare(cython.int, -1)
MISFIT = cython.declare(cython.int, -2)
TOO_MANY = cython.declare(cython.int, -3)
R_WIRE, R_MISFIT, R_TOO_MANY = WIRE, MISFIT, TOO_MANY

DEPTH_MAX = cython.declare(cython.int, 32)


class Look:
    """One call of count_values, as C fields in the compiled build."""


def count_values(request, types, kinds, value_count_max):
    """Count the values of a message of type 0, here and in the messages within; or answer a negative code.

    types: int32, two for each message type: where its row in `kinds` begins, and the highest number of a field of its.
    kinds: int32, by place in the row: what the field of this number is.
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


def check_tables(look):
    """Raise ValueError where the tables lead outside of themselves."""
    at: cython.Py_ssize_t
    kind: cython.Py_ssize_t
    for at in range(0, len(look.types), 2):
        if look.types[at] < 0 or look.types[at + 1] < 0 or look.types[at] + look.types[at + 1] >= len(look.kinds):
            raise ValueError("a row of a message type is outside of the table")
    for at in range(len(look.kinds)):
        kind = look.kinds[at]
        if kind >= K_MESSAGE and (kind - K_MESSAGE) * 2 + 1 >= len(look.types):
            raise ValueError("a field's message type is not in the table")
    return 0


def walk(look, start, end, message_type, depth, field):
    """Count the values in [start, end), a message of this type; 0, or a code."""
    at: cython.Py_ssize_t = start
    row: cython.Py_ssize_t = look.types[2 * message_type]
    number_max: cython.longlong = look.types[2 * message_type + 1]
    kind: cython.int
    code: cython.int
    if depth > DEPTH_MAX:
        return WIRE
    while at < end:
        at = next_field(look.source, at, end, field)
        if at < 0:
            return WIRE
        look.room -= 1
        if look.room < 0:
            return TOO_MANY
        if field.number > number_max:
            continue
        kind = look.kinds[row + field.number]
        if kind == K_UNKNOWN:
            continue
        if kind >= K_MESSAGE:
            if field.wire_type != K_BYTES:
                return MISFIT
            code = walk(look, field.start, at, kind - K_MESSAGE, depth + 1, field)
            if code < 0:
                return code
        elif kind >= K_PACKED and field.wire_type == K_BYTES:
            if not count_packed(look, kind - K_PACKED, field):
                return TOO_MANY
        elif field.wire_type != (kind & 7):
            return MISFIT
    return 0


def count_packed(look, wire_type, field):
    """Count the elements of a packed field; False when they are too many."""
    at: cython.Py_ssize_t
    if wire_type == K_VARINT:
        for at in range(field.start, field.start + field.size):
            if look.source[at] < 128:
                look.room -= 1
                if look.room < 0:
                    return False
    else:
        look.room -= field.size // (8 if wire_type == K_FIXED64 else 4)
    return look.room >= 0
