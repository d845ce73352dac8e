# SPDX-License-Identifier: Apache-2.0
"""BatchConsumeQueue: units of 46 bytes for topics that keep whole batches as one record.

Spec: docs/formats/consume_queue.md section 7. Reput reads the format; it does not write such queues.
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
    """Where one record with a batch inside lies, and the queue offsets of its messages."""

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
        """RocketMQ's test when it recovers a queue."""
        return (
            self.physical_offset >= 0
            and self.record_size_bytes > 0
            and self.base_queue_offset >= 0
            and self.message_count > 0
        )


def decode_unit(buffer: ReadableBuffer, position: int = 0) -> BatchConsumeQueueUnit:
    """Return the unit here, valid or not. Raises Truncated."""
    return BatchConsumeQueueUnit(*unpack(UNIT, buffer, position, "a batch consume queue unit"))
