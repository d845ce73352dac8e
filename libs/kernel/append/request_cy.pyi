# SPDX-License-Identifier: Apache-2.0
from typing_extensions import Buffer

def count_values(request: Buffer, types: Buffer, kinds: Buffer, value_count_max: int) -> int: ...
