# SPDX-License-Identifier: Apache-2.0
"""Columns of zeros that take memory of the machine where they are written, and not before."""

from typing import Literal

import numpy as np


def zeros(kind: Literal["q", "i"], count: int) -> memoryview:
    """Return a column of integers of 8 ("q") or 4 ("i") bytes, all 0.

    A column has room for the largest batch, which few stores see. numpy asks the system for zeroed pages; `array` and
    `bytes` write them. A slice is a view, no copy.
    """
    size_bytes = 8 if kind == "q" else 4
    return np.zeros(size_bytes * count, np.uint8).data.cast(kind)
