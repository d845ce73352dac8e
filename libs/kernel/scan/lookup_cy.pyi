# SPDX-License-Identifier: Apache-2.0
from array import array
from typing import Any, TypeAlias

from numpy.typing import NDArray
from typing_extensions import Buffer

Column: TypeAlias = Buffer | NDArray[Any]

class SearchedFile:
    next_entry: int
    counted_entry: int
    is_finished: bool
    is_filter_damaged: bool
    def __init__(self, buffer: Buffer, slot_count: int) -> None: ...
    def set_filter(self, blocks: Buffer, seed: int) -> None: ...

def key_hashes(topic: bytes, keys: list[bytes]) -> array[int]: ...
def search(
    files: list[SearchedFile],
    position: int,
    entry: int,
    key_hash: int,
    start_time_ms: int,
    end_time_ms: int,
    below_physical_offset: int,
    end_physical_offset: int,
    out: Column,
    tally: Column,
) -> tuple[int, int, int, int]: ...
def search_many(
    files: list[SearchedFile],
    hashes: Column,
    first_key: int,
    start_time_ms: int,
    end_time_ms: int,
    end_physical_offset: int,
    room: int,
    out: Column,
    counts: Column,
    tally: Column,
) -> int: ...
