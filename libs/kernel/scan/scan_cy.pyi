# SPDX-License-Identifier: Apache-2.0
import numpy as np
from numpy.typing import NDArray
from typing_extensions import Buffer

from libs.kernel.scan.scan_columns import ScanColumns as ScanColumns

def scan(
    buffer: Buffer, position: int, end: int, base_physical_offset: int, check_crc: bool, columns: ScanColumns
) -> int: ...
def check_record(buffer: Buffer, position: int, end: int, base_physical_offset: int, check_crc: bool) -> int: ...
def check_records(
    buffer: Buffer, positions: NDArray[np.int64], sizes: NDArray[np.int32], base_physical_offset: int
) -> int: ...
def check_placed(
    buffer: Buffer,
    positions: NDArray[np.int64],
    ends: NDArray[np.int64],
    physical_offsets: NDArray[np.int64],
    sizes: NDArray[np.int32],
) -> int: ...
