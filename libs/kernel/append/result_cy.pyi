# SPDX-License-Identifier: Apache-2.0
from typing_extensions import Buffer

def encode_append_result(
    start_physical_offset: int,
    end_physical_offset: int,
    store_time_ms: int,
    durability: int,
    is_repeated: bool,
    store_time_ahead_ms: int,
    is_late: bool,
    physical_offsets: Buffer,
    queue_offsets: Buffer,
    queue_ids: Buffer,
    store_host: Buffer,
) -> bytes: ...
