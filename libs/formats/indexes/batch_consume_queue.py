# SPDX-License-Identifier: Apache-2.0
"""BatchConsumeQueue: units of 46 bytes for topics that store a whole batch as a single record.

Spec: docs/formats/consume_queue.md section 7. Reput reads the format, but does not write such queues.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, NamedTuple

from libs.formats.buffers import unpack

if TYPE_CHECKING:
    from libs.formats.buffers import ReadableBuffer

UNIT = struct.Struct(">qiqqqhii")
UNIT_SIZE_BYTES = 46
assert UNIT.size == UNIT_SIZE_BYTES
INVALID_POSITION = -1


class BatchConsumeQueueUnit(NamedTuple):
    """The place of a record with a batch, and the queue offsets of its messages."""

    physical_offset: int
    record_size_bytes: int
    tags_code: int
    store_time_ms: int
    base_queue_offset: int
    message_count: int
    compacted_offset: int = INVALID_POSITION
    reserved: int = 0

    @property
    def is_valid(self) -> bool:
        """Whether the unit passes RocketMQ's test at the recovery of a queue."""
        return (
            self.physical_offset >= 0
            and self.record_size_bytes > 0
            and self.base_queue_offset >= 0
            and self.message_count > 0
        )


def decode_unit(buffer: ReadableBuffer, position: int = 0) -> BatchConsumeQueueUnit:
    """Return the unit here, valid or not. Raises Truncated."""
    return BatchConsumeQueueUnit(*unpack(UNIT, buffer, position, "a batch consume queue unit"))
