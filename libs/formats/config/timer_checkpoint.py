# SPDX-License-Identifier: Apache-2.0
"""config/timercheck: RocketMQ's position in its timer topic. Spec: docs/formats/config_files.md section 6.

RocketMQ's counterpart is TimerCheckpoint.
"""

import struct

SIZE_BYTES = 4096
FIELDS = struct.Struct(">7q")


def encode(next_queue_offset: int, time_ms: int) -> bytes:
    """Return a checkpoint from which RocketMQ reads the topic, with an empty wheel."""
    read_time_ms = log_position = state_version = change_count = 0
    fields = FIELDS.pack(
        read_time_ms, log_position, next_queue_offset, next_queue_offset, state_version, time_ms, change_count
    )
    return fields.ljust(SIZE_BYTES, b"\0")
