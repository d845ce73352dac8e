# SPDX-License-Identifier: Apache-2.0
from typing import Any, TypeAlias

from numpy.typing import NDArray
from typing_extensions import Buffer

Column: TypeAlias = Buffer | NDArray[Any]

def read_units(
    file: Buffer,
    position: int,
    last_physical_offset: int,
    physical_offsets: Column,
    record_sizes: Column,
    tags_codes: Column,
) -> int: ...
def find_runs(
    physical_offsets: Column, record_sizes: Column, bases: Column, gap_size_max: int, run_size_max: int
) -> list[tuple[int, int, int, int]]: ...
