# SPDX-License-Identifier: Apache-2.0
"""StoreCheckpoint: the end of the known durable part of each kind of file. Spec: docs/formats/store_checkpoint.md.

A page of 4096 bytes: five numbers at its start, five of Reput's numbers in its middle, zeros elsewhere. RocketMQ 4.x
writes the first three only and leaves zeros for the other two, which mean "unknown". RocketMQ does not change other
bytes, so Reput's offset is stored with a copy of the three times: if a time differs, RocketMQ has written since. (4.9
does not change the log time when it stops, so the log time alone would not show it.)
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import astuple, replace

from libs.formats.errors import Truncated

if TYPE_CHECKING:
    from libs.formats.buffers import ReadableBuffer

FIELDS = struct.Struct(">qqqqq")
FILE_SIZE_BYTES = 4096
OWN_FIELDS = struct.Struct(">qqqqq")
OWN_FIELDS_AT = 2048
MARGIN_MS = 3000
"""Recovery begins so much earlier than the stored times."""
assert FIELDS.size == 40


class StoreCheckpoint(Struct, frozen=True):
    """Store times (ms) up to which log, queues and full index files were synced, and physical offsets.

    RocketMQ's names: physicMsgTimestamp, logicsMsgTimestamp, indexMsgTimestamp, masterFlushedOffset, confirmPhyOffset.
    The last five fields are Reput's: the end of the synced part of the log, the times that were written with it, and
    the first byte of the log that must exist (-1 if unknown; stored plus 1, because older versions left zeros).
    """

    commit_log_time_ms: int = 0
    consume_queue_time_ms: int = 0
    index_time_ms: int = 0
    master_flushed_physical_offset: int = 0
    confirmed_physical_offset: int = 0
    flushed_physical_offset: int = 0
    flushed_time_ms: int = 0
    flushed_queue_time_ms: int = 0
    flushed_index_time_ms: int = 0
    start_physical_offset: int = -1

    @property
    def is_of_rocketmq(self) -> bool:
        """Whether RocketMQ has written the log since Reput last wrote the checkpoint."""
        times = (self.commit_log_time_ms, self.consume_queue_time_ms, self.index_time_ms)
        own_times = (self.flushed_time_ms, self.flushed_queue_time_ms, self.flushed_index_time_ms)
        return self.flushed_physical_offset > 0 and own_times != times

    def of_reput(self) -> StoreCheckpoint:
        """Return the same numbers, as written by Reput."""
        return replace(
            self,
            flushed_time_ms=self.commit_log_time_ms,
            flushed_queue_time_ms=self.consume_queue_time_ms,
            flushed_index_time_ms=self.index_time_ms,
        )

    def of_rocketmq(self) -> StoreCheckpoint:
        """Return the same numbers, as if RocketMQ had written since."""
        return replace(self, flushed_time_ms=-1)

    @property
    def durable_physical_offset(self) -> int:
        """End of the part of the log that was certainly synced, 0 if unknown."""
        return 0 if self.is_of_rocketmq else self.flushed_physical_offset

    def missing_before(self, min_physical_offset: int) -> int:
        """Return the number of bytes that another program removed before the log's present first byte.

        It is 0 if no bytes were removed, or if it is unknown.
        """
        if self.is_of_rocketmq or self.start_physical_offset < 0:
            return 0
        return max(0, min_physical_offset - self.start_physical_offset)

    @property
    def min_time_ms(self) -> int:
        """Records stored at or before this time are in the log and in the queues (getMinTimestamp)."""
        return max(0, min(self.commit_log_time_ms, self.consume_queue_time_ms) - MARGIN_MS)


FIELD_POSITIONS = tuple(
    (8 * number if number < 5 else OWN_FIELDS_AT + 8 * (number - 5), name)
    for number, name in enumerate(StoreCheckpoint.__struct_fields__)
)
"""Position in the file and name of each number."""


def encode(checkpoint: StoreCheckpoint) -> bytes:
    """Return the 4096 bytes of the file."""
    *values, start_physical_offset = astuple(checkpoint)
    page = bytearray(FILE_SIZE_BYTES)
    FIELDS.pack_into(page, 0, *values[:5])
    OWN_FIELDS.pack_into(page, OWN_FIELDS_AT, *values[5:], start_physical_offset + 1)
    return bytes(page)


def decode(buffer: ReadableBuffer) -> StoreCheckpoint:
    """Return the numbers of a checkpoint file. All other bytes are ignored. Raises Truncated."""
    with memoryview(buffer) as view:
        if len(view) < FILE_SIZE_BYTES:
            raise Truncated(position=len(view), reason=f"a checkpoint has {FILE_SIZE_BYTES} bytes, not {len(view)}")
        stored = StoreCheckpoint(*FIELDS.unpack_from(view), *OWN_FIELDS.unpack_from(view, OWN_FIELDS_AT))
        return replace(stored, start_physical_offset=stored.start_physical_offset - 1)


def stray_position(buffer: ReadableBuffer) -> int | None:
    """Return the position of the first byte that belongs to no number and is not zero, None without such a byte.

    Raises Truncated.
    """
    expected = encode(decode(buffer))
    with memoryview(buffer) as view:
        pairs = enumerate(zip(view, expected, strict=False))
        return next((position for position, (found, wanted) in pairs if found != wanted), None)
