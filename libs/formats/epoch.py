# SPDX-License-Identifier: Apache-2.0
"""Epoch: a stretch of a log that one writer wrote without losing a tail. Spec: docs/formats/epoch_file.md section 2."""

from typing import NamedTuple

EPOCH_COUNT_MAX = 4_096
"""Most epochs that a follower tells; the newest ones count."""


class Epoch(NamedTuple):
    """A term and the physical offset of the first byte that it wrote; it ends where the next one starts."""

    number: int
    start_physical_offset: int
