# SPDX-License-Identifier: Apache-2.0
"""IndexFile: a hash table from keys to physical offsets in a file. Spec: docs/formats/index_file.md.

Header (40 bytes), slots (4 bytes each: number of the newest entry of the bucket, 0 = none), entries (20 bytes each,
entry 0 is never used). An entry points to the previous entry of its bucket, so a bucket is a chain, newest first.
It has only layouts and arithmetic. libs.kernel.scan.index_cy adds entries, and lookup_cy searches.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from libs.formats.buffers import unpack
from libs.formats.errors import BadField
from libs.formats.java import string_hash
from libs.formats.limits import INDEX_ENTRY_CAPACITY, INDEX_SLOT_COUNT, INT32_MAX

if TYPE_CHECKING:
    from libs.formats.buffers import ReadableBuffer

HEADER = struct.Struct(">qqqqii")
SLOT = struct.Struct(">i")
ENTRY = struct.Struct(">iqii")  # key hash, physical offset, time difference in seconds, previous entry
HEADER_SIZE_BYTES, SLOT_SIZE_BYTES, ENTRY_SIZE_BYTES = 40, 4, 20
assert (HEADER.size, SLOT.size, ENTRY.size) == (HEADER_SIZE_BYTES, SLOT_SIZE_BYTES, ENTRY_SIZE_BYTES)
ENTRY_ARRAY = np.dtype(
    [("key_hash", ">i4"), ("physical_offset", ">i8"), ("time_difference_s", ">i4"), ("previous", ">i4")]
)
"""The layout of ENTRY for arrays."""
assert ENTRY_ARRAY.itemsize == ENTRY_SIZE_BYTES

BEGIN_TIME_AT, END_TIME_AT, BEGIN_PHYSICAL_OFFSET_AT, END_PHYSICAL_OFFSET_AT = 0, 8, 16, 24
SLOT_COUNT_AT, ENTRY_COUNT_AT = 32, 36
KEY_HASH_AT, ENTRY_PHYSICAL_OFFSET_AT, TIME_DIFFERENCE_AT, PREVIOUS_ENTRY_AT = 0, 4, 12, 16

FIRST_ENTRY = 1
TIME_MAX_MS = 1 << 43
"""In the year 2248: a later time is no valid store time."""
KEY_SEPARATOR = "#"


class IndexHeader(NamedTuple):
    """The first 40 bytes. `next_entry` (indexCount) is the number of the next entry: the number of entries plus 1."""

    begin_time_ms: int
    end_time_ms: int
    begin_physical_offset: int
    end_physical_offset: int
    used_slot_count: int
    next_entry: int

    @property
    def entry_count(self) -> int:
        """Entries in the file. A stored 0 and a stored 1 both mean: no entry."""
        return max(self.next_entry, FIRST_ENTRY) - 1


class IndexEntry(NamedTuple):
    """A key of a message."""

    key_hash: int
    physical_offset: int
    time_difference_s: int
    previous_entry: int


def decode_header(buffer: ReadableBuffer) -> IndexHeader:
    """Return the header at the start of a file. Raises Truncated, or BadField for a negative count."""
    header = IndexHeader(*unpack(HEADER, buffer, 0, "an index header"))
    if header.used_slot_count < 0:
        raise BadField(position=SLOT_COUNT_AT, reason=f"slot count {header.used_slot_count}", field="slot count")
    if header.next_entry < 0:
        raise BadField(position=ENTRY_COUNT_AT, reason=f"entry count {header.next_entry}", field="entry count")
    return header


def read_next_entry(buffer: ReadableBuffer) -> int:
    """Return the stored number of the next entry. The buffer has at least a header."""
    number: int = SLOT.unpack_from(buffer, ENTRY_COUNT_AT)[0]
    return number


def decode_entry(buffer: ReadableBuffer, position: int) -> IndexEntry:
    """Return the entry at this byte position. Raises Truncated."""
    return IndexEntry(*unpack(ENTRY, buffer, position, "an index entry"))


def file_size_bytes(slot_count: int = INDEX_SLOT_COUNT, entry_capacity: int = INDEX_ENTRY_CAPACITY) -> int:
    """Return the size of a file with so many slots and places for entries."""
    return HEADER_SIZE_BYTES + SLOT_SIZE_BYTES * slot_count + ENTRY_SIZE_BYTES * entry_capacity


def guess_slot_count(size_bytes: int) -> int:
    """Return the slots of a file of this size with RocketMQ's four entries per slot, 0 if no file has that size."""
    per_slot = SLOT_SIZE_BYTES + INDEX_ENTRY_CAPACITY // INDEX_SLOT_COUNT * ENTRY_SIZE_BYTES
    count, spare = divmod(size_bytes - HEADER_SIZE_BYTES, per_slot)
    return max(count, 0) if spare == 0 else 0


def slot_position(key_hash: int, slot_count: int) -> int:
    """Return the byte position of the slot of this hash."""
    assert 0 <= key_hash <= INT32_MAX
    return HEADER_SIZE_BYTES + SLOT_SIZE_BYTES * (key_hash % slot_count)


def entry_position(entry: int, slot_count: int) -> int:
    """Return the byte position of the entry of this number. The first entry is 1."""
    assert entry >= 0
    return HEADER_SIZE_BYTES + SLOT_SIZE_BYTES * slot_count + ENTRY_SIZE_BYTES * entry


def key_text(topic: str, key: str) -> str:
    """Return the text whose hash is stored for a key of a topic's message."""
    return topic + KEY_SEPARATOR + key


def key_hash(text: str) -> int:
    """Return the hash of a key text for entries: the absolute value, and 0 for the hash without an absolute value."""
    value = abs(string_hash(text))
    return 0 if value > INT32_MAX else value


def time_difference_s(store_time_ms: int, begin_time_ms: int) -> int:
    """Return the whole seconds since the file's begin time, at least 0. They are 0 while it has no begin time."""
    if begin_time_ms <= 0 or store_time_ms <= begin_time_ms:
        return 0
    return min((store_time_ms - begin_time_ms) // 1000, INT32_MAX)


assert file_size_bytes() == 420_000_040
assert key_hash("polygenelubricants") == 0
