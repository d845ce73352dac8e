# SPDX-License-Identifier: Apache-2.0
import numpy as np
from numpy.typing import NDArray
from typing_extensions import Buffer

from libs.kernel.scan.record_cy import S_BAD_CRC as S_BAD_CRC
from libs.kernel.scan.record_cy import S_BAD_LENGTH as S_BAD_LENGTH
from libs.kernel.scan.record_cy import S_BAD_MAGIC as S_BAD_MAGIC
from libs.kernel.scan.record_cy import S_BAD_OFFSET as S_BAD_OFFSET
from libs.kernel.scan.record_cy import S_BLANK as S_BLANK
from libs.kernel.scan.record_cy import S_END as S_END
from libs.kernel.scan.record_cy import S_FULL as S_FULL
from libs.kernel.scan.record_cy import S_TRUNCATED as S_TRUNCATED
from libs.kernel.scan.scan_columns import ScanColumns as ScanColumns

def scan(
    buffer: Buffer, position: int, end: int, base_physical_offset: int, check_crc: bool, columns: ScanColumns
) -> int: ...
def check_record(buffer: Buffer, position: int, end: int, base_physical_offset: int, check_crc: bool) -> int: ...
def check_records(
    buffer: Buffer, positions: NDArray[np.int64], sizes: NDArray[np.int32], base_physical_offset: int
) -> int: ...
