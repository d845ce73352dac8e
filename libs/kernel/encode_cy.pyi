# SPDX-License-Identifier: Apache-2.0
from typing_extensions import Buffer

def encode_messages(records: Buffer, positions: Buffer, sizes: Buffer, count: int, field_number: int) -> bytes: ...
