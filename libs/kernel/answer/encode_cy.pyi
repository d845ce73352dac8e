# SPDX-License-Identifier: Apache-2.0
from typing import Any, TypeAlias

from numpy.typing import NDArray
from typing_extensions import Buffer

Column: TypeAlias = Buffer | NDArray[Any]

def encode_messages(records: Buffer, positions: Column, sizes: Column, count: int, field_number: int) -> bytes: ...
def encode_records(
    records: Buffer, positions: Column, sizes: Column, count: int, field_number: int, head: Buffer
) -> bytes: ...
