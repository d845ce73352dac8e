# SPDX-License-Identifier: Apache-2.0
from typing import Any, TypeAlias

from numpy.typing import NDArray
from typing_extensions import Buffer

Column: TypeAlias = Buffer | NDArray[Any]

def arrow_layout(records: Buffer, positions: Column, sizes: Column, rows: Column) -> None: ...
def fill_bytes(records: Buffer, rows: Column, start_column: int, size_column: int, out: Column) -> None: ...
def fill_properties(
    records: Buffer, rows: Column, name_ends: Column, value_ends: Column, names: Column, values: Column
) -> None: ...
def fill_message_ids(records: Buffer, rows: Column, out: Column) -> None: ...
