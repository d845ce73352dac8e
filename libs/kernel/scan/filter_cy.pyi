# SPDX-License-Identifier: Apache-2.0
from typing import Any, TypeAlias

from numpy.typing import NDArray
from typing_extensions import Buffer

Column: TypeAlias = Buffer | NDArray[Any]

def fill_filter(
    file: Buffer, slot_count: int, first_entry: int, end_entry: int, newest: Column, blocks: Buffer
) -> int: ...
def seal_filter(blocks: Buffer, seed: int) -> None: ...
def first_damaged(blocks: Buffer, seed: int) -> int: ...
def count_held(blocks: Buffer, seed: int, hashes: Column) -> int: ...
