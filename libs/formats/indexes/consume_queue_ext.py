# SPDX-License-Identifier: Apache-2.0
"""ConsumeQueueExt: optional wider units besides a consume queue. Spec: docs/formats/consume_queue.md section 6.

Reput reads the format for `inspect` and tests. It does not write such files (enableConsumeQueueExt is off).
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, NamedTuple

from libs.formats.errors import BadLength, Truncated

if TYPE_CHECKING:
    from libs.formats.buffers import ReadableBuffer

HEAD = struct.Struct(">hqqh")  # unit size, tags code, store time in ms, bitmap size
UNIT_SIZE_BYTES_MIN = HEAD.size
assert UNIT_SIZE_BYTES_MIN == 20
END_OF_FILE = struct.pack(">h", -1)

ADDRESS_MAX = -(2**31) - 1
"""The highest address. Addresses are below every tag hash, so the same field can have either."""


class ConsumeQueueExtUnit(NamedTuple):
    """Tags code, store time and filter bitmap of a message."""

    tags_code: int
    store_time_ms: int
    bitmap: bytes


def decode_unit(buffer: ReadableBuffer, position: int = 0) -> ConsumeQueueExtUnit:
    """Return the unit at this byte position. Raises Truncated or BadLength (also for the -1 that ends a file)."""
    with memoryview(buffer) as view:
        left = len(view) - position
        if not 0 <= position <= len(view) or left < UNIT_SIZE_BYTES_MIN:
            raise Truncated(position=position, reason="an extension unit takes 20 bytes and more")
        size, tags_code, store_time_ms, bitmap_size = HEAD.unpack_from(view, position)
        if bitmap_size < 0 or size != UNIT_SIZE_BYTES_MIN + bitmap_size:
            raise BadLength(position=position, reason=f"unit size {size}, bitmap size {bitmap_size}", field="size")
        if size > left:
            raise Truncated(position=position, reason=f"unit size {size}, {left} bytes are left", field="size")
        return ConsumeQueueExtUnit(tags_code, store_time_ms, bytes(view[position + HEAD.size : position + size]))


def is_address(tags_code: int) -> bool:
    """Return whether a tags code is an address in the extension."""
    return tags_code <= ADDRESS_MAX
