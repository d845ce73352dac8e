# SPDX-License-Identifier: Apache-2.0
"""The end of a log that a scan finds, for every set of sectors that a power cut can lose."""

import itertools
import random
from collections.abc import Iterator

import pytest

from libs.log.end import KnownDurable, ScanEndKind
from tests.support.scanned_logs import SECTOR, SECTOR_COUNT, SIZE, scan, tail


def losses(data: bytes, old_end: int) -> Iterator[bytes]:
    """The disk after a power cut, for every set of missing sectors: such a sector has its old content."""
    old = data[:old_end].ljust(SIZE, b"\0")
    new = data.ljust(SIZE, b"\0")
    for lost in range(1 << SECTOR_COUNT):
        sectors = [(old if lost >> index & 1 else new)[index * SECTOR : (index + 1) * SECTOR] for index in range(16)]
        yield b"".join(sectors)


@pytest.mark.parametrize("crc_property", [True, False])
@pytest.mark.parametrize("seed", range(4))
def test_every_set_of_missing_sectors(seed: int, *, crc_property: bool) -> None:
    """The log ends at the first sector that a power cut lost above the synced end, and no loss is damage.

    Data that the kernel wrote back before may end at any byte.
    """
    data, bounds = tail(seed, crc_property=crc_property)
    chance = random.Random(seed)
    old_ends = [0, chance.choice(bounds), *(chance.randrange(len(data)) for _ in range(2)), 3 * SECTOR - 1]
    for old_end in old_ends:
        synced = max(bound for bound in bounds if bound <= old_end)
        for content in losses(data, old_end):
            whole = next((b for b, e in itertools.pairwise(bounds) if content[b:e] != data[b:e]), len(data))
            end = scan(content, KnownDurable(physical_offset=synced))
            assert end.physical_offset == whole, (seed, old_end, end)
            expected = ScanEndKind.TORN_TAIL if any(content[whole:]) else ScanEndKind.CLEAN
            assert end.kind is expected, (seed, old_end, end)


@pytest.mark.parametrize("seed", range(2))
def test_a_synced_record_is_never_cut(seed: int) -> None:
    """If a byte is missing below the synced end, the scan reports damage."""
    data, bounds = tail(seed)
    synced = bounds[len(bounds) // 2]
    for content in losses(data, 0):
        if content[:synced] != data[:synced]:
            assert scan(content, KnownDurable(physical_offset=synced)).kind is ScanEndKind.DAMAGED
