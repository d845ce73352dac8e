# SPDX-License-Identifier: Apache-2.0
S_END: int
S_FULL: int
S_BLANK: int
S_TRUNCATED: int
S_BAD_MAGIC: int
S_BAD_LENGTH: int
S_BAD_CRC: int
S_BAD_OFFSET: int
