# SPDX-License-Identifier: Apache-2.0
"""ConsumeQueue: a unit of 20 bytes per message of a topic's queue. Spec: docs/formats/consume_queue.md.

It uses bytes, no files. A file is an array of units, so unit k of the queue is at byte 20 * k of the queue. Bytes that
were never written are zero, and a unit with size 0 is the end.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from libs.formats.buffers import unpack
from libs.formats.java import string_hash
from libs.formats.limits import CONSUME_QUEUE_UNIT_COUNT, INT32_MAX, INT64_MAX

if TYPE_CHECKING:
    from collections.abc import Iterable

    from libs.formats.buffers import ReadableBuffer

PHYSICAL_OFFSET_AT, RECORD_SIZE_AT, TAGS_CODE_AT, UNIT_SIZE_BYTES = 0, 8, 12, 20
ENTRY = struct.Struct(">qiq")  # physical offset, record size in bytes, tags code
assert ENTRY.size == UNIT_SIZE_BYTES
assert TAGS_CODE_AT + 8 == UNIT_SIZE_BYTES
UNIT = np.dtype([("physical_offset", ">i8"), ("record_size_bytes", ">i4"), ("tags_code", ">i8")])
"""The same layout for arrays."""
assert UNIT.itemsize == UNIT_SIZE_BYTES

FILE_SIZE_BYTES = CONSUME_QUEUE_UNIT_COUNT * UNIT_SIZE_BYTES
assert FILE_SIZE_BYTES == 6_000_000

QUEUE_OFFSET_MAX = INT64_MAX // UNIT_SIZE_BYTES - (1 << 32)
"""Highest queue offset: a unit above it would have no place in a file."""
PRE_BLANK_RECORD_SIZE = INT32_MAX
PRE_BLANK = ENTRY.pack(0, PRE_BLANK_RECORD_SIZE, 0)
"""The filler of the units before the first message of a queue that does not start at queue offset 0."""


class ConsumeQueueUnit(NamedTuple):
    """The place of a message, and the tags code for the filters of subscriptions."""

    physical_offset: int
    record_size_bytes: int
    tags_code: int

    @property
    def is_valid(self) -> bool:
        """Whether the unit passes RocketMQ's own test. A pre-blank passes it, too, so check `is_pre_blank`."""
        return self.physical_offset >= 0 and self.record_size_bytes > 0

    @property
    def is_pre_blank(self) -> bool:
        """Whether this is a filler before the first message."""
        return self == (0, PRE_BLANK_RECORD_SIZE, 0)


def has_place(queue_offset: int, *, end: int, is_empty: bool) -> bool:
    """Return whether a record after the end of a queue is its next record, or the first of a new generation.

    A queue that is empty, as far as known, may begin anywhere. Any other record is stepped over.
    """
    return queue_offset in (0, end) or (is_empty and 0 < queue_offset <= QUEUE_OFFSET_MAX)


def end_after(queue_offsets: Iterable[int], *, end: int) -> int:
    """Return the end of a queue after these records. The end of an unknown queue is 0."""
    for queue_offset in queue_offsets:
        if has_place(queue_offset, end=end, is_empty=end == 0):
            end = queue_offset + 1
    return end


def decode_unit(buffer: ReadableBuffer, position: int = 0) -> ConsumeQueueUnit:
    """Return the unit at this byte position, valid or not. Raises Truncated."""
    return ConsumeQueueUnit(*unpack(ENTRY, buffer, position, "a consume queue unit"))


def tags_code(tag: str) -> int:
    """Return Java's hash of the whole TAGS text, sign-extended. It is 0 without a tag."""
    return string_hash(tag)
