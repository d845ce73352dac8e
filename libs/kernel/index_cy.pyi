# SPDX-License-Identifier: Apache-2.0
from array import array

from typing_extensions import Buffer

def encode_queue_units(
    rows: Buffer, physical_offsets: Buffer, record_sizes: Buffer, tags_codes: Buffer, out: Buffer
) -> int: ...
def put_index_entries(
    file: Buffer,
    first_row: int,
    physical_offsets: Buffer,
    store_times_ms: Buffer,
    key_counts: Buffer,
    first_key: int,
    key_hashes: Buffer,
    row_end: int,
    slot_count: int,
    entry_capacity: int,
) -> tuple[int, int]: ...
def select_index_entries(
    file: Buffer,
    key_hash: int,
    begin_time_ms: int,
    end_time_ms: int,
    before_entry: int,
    limit: int,
    out_physical: array[int],
    out_entry: array[int],
    slot_count: int,
) -> tuple[int, int]: ...
