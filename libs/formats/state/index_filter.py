# SPDX-License-Identifier: Apache-2.0
"""IndexFilter: a blocked Bloom filter over the key hashes of a finished index file. Spec: docs/formats/index_filter.md.

A header (128 bytes) names the index file, and blocks of 64 bytes follow. A block is a check and 448 bits; a key hash
sets 7 bits of a single block. The check covers the block, its number and the header's checksum, so each block is
proved to belong to the index file whenever it is used.
It has only layouts and arithmetic. libs.kernel.scan.filter_cy fills blocks and looks into them.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, NamedTuple

from libs.formats.crc import crc32c
from libs.formats.errors import BadField
from libs.formats.indexes.index_file import (
    ENTRY_COUNT_AT,
    ENTRY_SIZE_BYTES,
    FIRST_ENTRY,
    HEADER,
    HEADER_SIZE_BYTES,
    IndexHeader,
    decode_header,
    entry_position,
)
from libs.formats.state import checksummed

if TYPE_CHECKING:
    from collections.abc import Callable

    from libs.formats.buffers import ReadableBuffer

KIND, VERSION = "index-filter", 1
PAYLOAD = struct.Struct(">24s40sII24x")  # name and header of the index file, blocks, checksum of some entries
FILTER_HEADER_SIZE_BYTES = checksummed.HEADER_SIZE_BYTES + PAYLOAD.size
"""In all versions, so that a reader of an older version reads the version."""
assert FILTER_HEADER_SIZE_BYTES == 128

BLOCK_SIZE_BYTES = 64
"""A line of the processor's cache."""
KEY_BITS = 12
"""Bits of the file for each entry. With 8 to 10 bits the wrong hits of 64 filters cost more than the filters."""
SAMPLE_COUNT = 16
"""Entries of the index file that the header's sample covers."""


class FilterHeader(NamedTuple):
    """The first 128 bytes. `seed` is the header's checksum, which the check of each block covers."""

    name: str
    index_header: IndexHeader
    block_count: int
    sample: int
    seed: int

    @property
    def file_size_bytes(self) -> int:
        """Size of the filter's file."""
        return FILTER_HEADER_SIZE_BYTES + BLOCK_SIZE_BYTES * self.block_count


def block_count(entry_count: int) -> int:
    """Return the blocks of a filter for so many entries, at least 1."""
    return max(1, -(-entry_count * KEY_BITS // (8 * BLOCK_SIZE_BYTES)))


def encode_header(name: str, read: Callable[[int, int], ReadableBuffer], slot_count: int) -> bytes:
    """Return the header of the filter of an index file with this name. Another index file has another header.

    `read` returns the bytes of the index file from a position on: its header and SAMPLE_COUNT of its entries are read.
    Raises FormatError for an index file that is damaged or has no entry.
    """
    index_header = bytes(read(0, HEADER_SIZE_BYTES))
    last = decode_header(index_header).entry_count
    if last < FIRST_ENTRY:
        raise BadField(position=ENTRY_COUNT_AT, reason="no entry", field="entry count")
    sample = b""
    for step in range(SAMPLE_COUNT):
        number = FIRST_ENTRY + (last - FIRST_ENTRY) * step // (SAMPLE_COUNT - 1)
        sample += read(entry_position(number, slot_count), ENTRY_SIZE_BYTES)
    if len(sample) < SAMPLE_COUNT * ENTRY_SIZE_BYTES:
        raise BadField(position=ENTRY_COUNT_AT, reason=f"no room for {last} entries", field="entry count")
    payload = PAYLOAD.pack(name.encode("ascii"), index_header, block_count(last), crc32c(sample))
    return checksummed.wrap(KIND, payload, version=VERSION)


def header_seed(header: ReadableBuffer) -> int:
    """Return the seed of an encoded header."""
    seed: int = checksummed.CHECKSUM.unpack_from(header, checksummed.COVERED.size)[0]
    return seed


def decode_filter_header(data: ReadableBuffer) -> FilterHeader:
    """Return the header at the start of a filter. Raises NewerVersion for a later version, and FormatError."""
    raw = bytes(memoryview(data)[:FILTER_HEADER_SIZE_BYTES])
    payload = checksummed.unwrap(KIND, raw, version=VERSION)
    if len(payload) != PAYLOAD.size:
        raise BadField(position=24, reason=f"payload size {len(payload)}", field="payload size")
    name, index_header, count, sample = PAYLOAD.unpack(payload)
    header = IndexHeader(*HEADER.unpack(index_header))
    if count != block_count(header.entry_count):
        raise BadField(position=96, reason=f"{count} blocks for {header.entry_count} entries", field="block count")
    text = name.rstrip(b"\0").decode("ascii", "replace")
    return FilterHeader(text, header, count, sample, header_seed(raw))
