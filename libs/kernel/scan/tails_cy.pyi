# SPDX-License-Identifier: Apache-2.0
from typing import Any, TypeAlias

from numpy.typing import NDArray
from typing_extensions import Buffer

Column: TypeAlias = Buffer | NDArray[Any]

class Tail:
    end: int
    last_physical_offset: int
    first: int
    room_end: int
    def __init__(self, end: int, last_physical_offset: int, first: int, room_end: int, buffer: Buffer) -> None: ...
    def close(self) -> None: ...

def leave_others(
    tails: list[Tail | None], queue_indexes: Column, queue_offsets: Column, physical_offsets: Column
) -> None: ...
def enter(
    tails: list[Tail | None],
    queue_indexes: Column,
    physical_offsets: Column,
    record_sizes: Column,
    tags_codes: Column,
) -> int: ...
