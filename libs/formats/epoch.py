# SPDX-License-Identifier: Apache-2.0
"""Epoch: a part of a log that a single writer wrote without a lost tail. Spec: docs/formats/epoch_file.md section 2."""

from typing import NamedTuple

EPOCH_COUNT_MAX = 4_096
"""Most epochs that a follower sends: the newest."""


class Epoch(NamedTuple):
    """A term, with the physical offset of its first byte. It ends where the next epoch starts."""

    number: int
    start_physical_offset: int
