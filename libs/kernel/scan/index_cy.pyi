# SPDX-License-Identifier: Apache-2.0
from typing import Any, TypeAlias

from numpy.typing import NDArray
from typing_extensions import Buffer

Column: TypeAlias = Buffer | NDArray[Any]

def encode_queue_units(
    rows: Column, physical_offsets: Column, record_sizes: Column, tags_codes: Column, out: Column
) -> int: ...
def put_index_entries(
    file: Buffer,
    first_row: int,
    physical_offsets: Column,
    store_times_ms: Column,
    key_counts: Column,
    first_key: int,
    key_hashes: Column,
    row_end: int,
    slot_count: int,
    entry_capacity: int,
) -> tuple[int, int]: ...
