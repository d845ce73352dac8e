# SPDX-License-Identifier: Apache-2.0
"""RocketMQ's classic replication wire: 8-byte reports one way, 12-byte headers and raw log bytes the other.

Spec: docs/formats/commit_log.md section 11. Reput replicates over gRPC; this is what its peers would have sent.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, NamedTuple

from libs.formats.errors import BadField, BadLength, Truncated
from libs.formats.limits import MIB

if TYPE_CHECKING:
    from libs.formats.buffers import ReadableBuffer

REPORT = struct.Struct(">q")
HEADER = struct.Struct(">qi")  # physical offset of the first byte, byte count
assert (REPORT.size, HEADER.size) == (8, 12)

CHUNK_SIZE_BYTES_MAX = 4 * MIB
"""The replica's read buffer (READ_MAX_BUFFER_SIZE); a larger chunk could never arrive."""


class ChunkHeader(NamedTuple):
    """What follows: `size_bytes` raw bytes of the log from `physical_offset` on; none for a heartbeat."""

    physical_offset: int
    size_bytes: int

    @property
    def is_heartbeat(self) -> bool:
        """Whether no bytes follow."""
        return self.size_bytes == 0


def encode_report(max_physical_offset: int) -> bytes:
    """The replica's own end, 8 bytes."""
    assert max_physical_offset >= 0
    return REPORT.pack(max_physical_offset)


def decode_report(buffer: ReadableBuffer, position: int = 0) -> int:
    """The replica's end; raises Truncated or BadField."""
    with memoryview(buffer) as view:
        if not 0 <= position <= len(view) - REPORT.size:
            raise Truncated(position=position, reason="a report takes 8 bytes")
        physical_offset = int(REPORT.unpack_from(view, position)[0])
    if physical_offset < 0:
        raise BadField(position=position, reason=f"physical offset {physical_offset}", field="physical offset")
    return physical_offset


def encode_header(physical_offset: int, size_bytes: int) -> bytes:
    """The 12 bytes before a chunk; `size_bytes` 0 is a heartbeat."""
    assert physical_offset >= 0
    assert 0 <= size_bytes <= CHUNK_SIZE_BYTES_MAX
    return HEADER.pack(physical_offset, size_bytes)


def decode_header(buffer: ReadableBuffer, position: int = 0) -> ChunkHeader:
    """What follows; raises Truncated, BadField or BadLength. Does not look at the bytes that follow."""
    with memoryview(buffer) as view:
        if not 0 <= position <= len(view) - HEADER.size:
            raise Truncated(position=position, reason="a chunk header takes 12 bytes")
        header = ChunkHeader(*HEADER.unpack_from(view, position))
    if header.physical_offset < 0:
        raise BadField(position=position, reason=f"physical offset {header[0]}", field="physical offset")
    if not 0 <= header.size_bytes <= CHUNK_SIZE_BYTES_MAX:
        raise BadLength(position=position + REPORT.size, reason=f"chunk size {header[1]}", field="size")
    return header
