# SPDX-License-Identifier: Apache-2.0
from collections.abc import Sequence
from typing import Any, TypeAlias

from numpy.typing import NDArray
from typing_extensions import Buffer

Column: TypeAlias = Buffer | NDArray[Any]

def matching_records(
    records: Buffer,
    positions: Column,
    sizes: Column,
    topic: bytes,
    keys: Sequence[bytes],
    key_numbers: Column,
    start_time_ms: int,
    end_time_ms: int,
    is_unique_id: bool,
) -> list[int]: ...
