# SPDX-License-Identifier: Apache-2.0
from collections.abc import Sequence
from typing import Any, TypeAlias

from numpy.typing import NDArray
from typing_extensions import Buffer

Column: TypeAlias = Buffer | NDArray[Any]

def property_values(
    records: Buffer, positions: Column, sizes: Column, names: Sequence[bytes]
) -> list[list[bytes | None]]: ...
