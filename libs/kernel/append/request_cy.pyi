# SPDX-License-Identifier: Apache-2.0
from typing_extensions import Buffer

UNKNOWN: int
VARINT: int
FIXED64: int
BYTES: int
FIXED32: int
PACKED: int
MESSAGE: int

R_WIRE: int
R_MISFIT: int
R_TOO_MANY: int

def count_values(request: Buffer, types: Buffer, kinds: Buffer, value_count_max: int) -> int: ...
