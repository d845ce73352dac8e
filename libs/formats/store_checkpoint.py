# SPDX-License-Identifier: Apache-2.0
"""StoreCheckpoint: how far each kind of file is known to be on disk. Spec: docs/formats/store_checkpoint.md.

One page of 4096 bytes, five numbers at its start, the rest zero. RocketMQ 4.x writes the first three only and leaves
zeros for the others, which reads as "nothing known".
"""

from __future__ import annotations

import struct
from dataclasses import astuple, dataclass
from typing import TYPE_CHECKING

from libs.formats.errors import Truncated

if TYPE_CHECKING:
    from libs.formats.buffers import ReadableBuffer

FIELDS = struct.Struct(">qqqqq")
FILE_SIZE_BYTES = 4096
MARGIN_MS = 3000
"""Recovery goes this much further back than the times say."""
assert FIELDS.size == 40


@dataclass(frozen=True, slots=True)
class StoreCheckpoint:
    """Store times (ms) up to which log, queues and full index files were synced, and two physical offsets of replicas.

    RocketMQ's names: physicMsgTimestamp, logicsMsgTimestamp, indexMsgTimestamp, masterFlushedOffset, confirmPhyOffset.
    """

    commit_log_time_ms: int = 0
    consume_queue_time_ms: int = 0
    index_time_ms: int = 0
    master_flushed_physical_offset: int = 0
    confirmed_physical_offset: int = 0

    @property
    def min_time_ms(self) -> int:
        """Records stored at or before this time are in the log and in the queues (getMinTimestamp)."""
        return max(0, min(self.commit_log_time_ms, self.consume_queue_time_ms) - MARGIN_MS)

    @property
    def min_index_time_ms(self) -> int:
        """The same, with the index files (getMinTimestampIndex); these have no margin."""
        return min(self.min_time_ms, self.index_time_ms)


def encode(checkpoint: StoreCheckpoint) -> bytes:
    """The 4096 bytes of the file."""
    return FIELDS.pack(*astuple(checkpoint)).ljust(FILE_SIZE_BYTES, b"\0")


def decode(buffer: ReadableBuffer) -> StoreCheckpoint:
    """The numbers of a checkpoint file; raises Truncated. Bytes after the numbers are ignored."""
    with memoryview(buffer) as view:
        if len(view) < FILE_SIZE_BYTES:
            raise Truncated(position=len(view), reason=f"a checkpoint has {FILE_SIZE_BYTES} bytes, not {len(view)}")
        return StoreCheckpoint(*FIELDS.unpack_from(view))
