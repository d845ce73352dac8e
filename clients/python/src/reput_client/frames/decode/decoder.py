# SPDX-License-Identifier: Apache-2.0
"""Decoder: the base of all decoders: a body becomes a row of an Arrow struct."""

from abc import ABC, abstractmethod
from typing import Any

import pyarrow as pa


class Decoder(ABC):
    """Turns bodies into rows of `type`. `prefix` begins the name of each of its columns."""

    def __init__(self, row_type: pa.StructType, prefix: str) -> None:
        if row_type.num_fields == 0:
            raise ValueError("the schema of a decoder has no field")
        self.type, self.prefix = row_type, prefix

    @abstractmethod
    def row(self, body: bytes) -> dict[str, Any]:
        """Return the row of a body, in Python's form. Raises any Exception for a body that is none."""
