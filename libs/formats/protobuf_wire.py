# SPDX-License-Identifier: Apache-2.0
"""The part of the protobuf wire format that handlers of raw bytes need. Public specification: protobuf encoding.

It handles fields, not messages: callers know the numbers. The reader checks every bound and never copies. The value of
a field with a length is a view of the caller's buffer, and is valid no longer than the buffer.
"""

from __future__ import annotations

import functools
import struct
from typing import TYPE_CHECKING

from libs.formats.errors import BadField, BadLength, Truncated

if TYPE_CHECKING:
    from collections.abc import Iterator

    from libs.formats.buffers import ReadableBuffer

VARINT, FIXED64, LENGTH_DELIMITED, FIXED32 = 0, 1, 2, 5
FIELD_NUMBER_MAX = 2**29 - 1
VARINT_SIZE_BYTES_MAX = 10
_UINT64_MASK = 2**64 - 1
_ONE_BYTE = tuple(bytes((value,)) for value in range(0x80))
_FIXED64 = struct.Struct("<Q")
_FIXED32 = struct.Struct("<I")


def varint(value: int) -> bytes:
    """Return a number below 2**64 in base 128. A negative number is its 64-bit two's complement, in ten bytes."""
    if 0 <= value <= 0x7F:
        return _ONE_BYTE[value]
    assert -(2**63) <= value <= _UINT64_MASK
    value &= _UINT64_MASK
    encoded = bytearray()
    while value > 0x7F:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    encoded.append(value)
    return bytes(encoded)


@functools.lru_cache(maxsize=1_024)
def tag(number: int, wire_type: int) -> bytes:
    """Return the tag before a value: field number and wire type."""
    assert 1 <= number <= FIELD_NUMBER_MAX
    assert wire_type in (VARINT, FIXED64, LENGTH_DELIMITED, FIXED32)
    return varint(number << 3 | wire_type)


def length_delimited(number: int, payload: bytes) -> bytes:
    """Return a bytes, string or message field."""
    return tag(number, LENGTH_DELIMITED) + varint(len(payload)) + payload


def int_field(number: int, value: int) -> bytes:
    """Return an int32, int64, bool or enum field. It is empty for 0, which is the default."""
    return b"" if value == 0 else tag(number, VARINT) + varint(value)


def signed(value: int) -> int:
    """Return the int64 of a varint of `fields`."""
    return value - 2**64 if value >= 2**63 else value


def fields(buffer: ReadableBuffer) -> Iterator[tuple[int, int, int | memoryview]]:
    """Yield every field in order as (number, wire type, value). A value is an unsigned number, or a view of bytes.

    Raises Truncated, BadLength or BadField (groups, field number 0). Groups are refused, as proto3 has none.
    """
    view = memoryview(buffer).cast("B")
    position = 0
    while position < len(view):
        start = position
        key, position = _read_varint(view, position)
        number, wire_type = key >> 3, key & 7
        if not 1 <= number <= FIELD_NUMBER_MAX:
            raise BadField(position=start, reason=f"field number {number}", field="tag")
        value: int | memoryview
        if wire_type == VARINT:
            value, position = _read_varint(view, position)
        elif wire_type == LENGTH_DELIMITED:
            size, position = _read_varint(view, position)
            if size > len(view) - position:
                raise Truncated(
                    position=position, reason=f"field {number} has {size} bytes, {len(view) - position} left"
                )
            value, position = view[position : position + size], position + size
        elif wire_type in (FIXED64, FIXED32):
            layout = _FIXED64 if wire_type == FIXED64 else _FIXED32
            if layout.size > len(view) - position:
                raise Truncated(position=position, reason=f"field {number} takes {layout.size} bytes")
            value, position = layout.unpack_from(view, position)[0], position + layout.size
        else:
            raise BadField(position=start, reason=f"wire type {wire_type}", field="tag")
        yield number, wire_type, value


def _read_varint(view: memoryview, position: int) -> tuple[int, int]:
    if position < len(view) and (byte := view[position]) < 0x80:  # nearly all
        return byte, position + 1
    value = 0
    for index in range(VARINT_SIZE_BYTES_MAX):
        if position + index >= len(view):
            raise Truncated(position=position, reason="a varint does not end")
        byte = view[position + index]
        value |= (byte & 0x7F) << 7 * index
        if byte < 0x80:
            if value > _UINT64_MASK:
                break
            return value, position + index + 1
    raise BadLength(position=position, reason="a varint takes more than 64 bits")
