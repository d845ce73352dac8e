# SPDX-License-Identifier: Apache-2.0
"""How large a ballast gets, and what it leaves to others."""

from pathlib import Path

import pytest

from libs.machine.fs import PAGE_SIZE_BYTES
from libs.machine.memory_fs import MemoryFs
from libs.store.ballast import Ballast


@pytest.mark.parametrize(
    ("configured", "has", "free", "given", "expected"),
    [
        (8, 0, 18, 0, 8),
        (8, 0, 17, 0, None),
        (8, 3, 15, 0, 8),
        (8, 3, 14, 0, 3),
        (8, 0, 17, 5, 5),
        (8, 0, 3, 5, 3),
        (8, 0, 0, 5, None),
        (8, 0, 18, 5, 8),
        (8, 8, 100, 0, 8),
        (4, 8, 0, 0, 4),
        (0, 8, 100, 0, None),
        (0, 0, 100, 0, None),
    ],
)
def test_size_of_the_ballast(configured: int, has: int, free: int, given: int, expected: int | None) -> None:
    """It takes back what it gave as far as there is room, and grows only where ten pages stay free."""
    fs, path = MemoryFs(), Path("/home/reput/ballast")
    fs.make_directory(path.parent)
    ballast = Ballast(fs, path, size_bytes=configured * PAGE_SIZE_BYTES, reserve_bytes=10 * PAGE_SIZE_BYTES)
    for size in filter(None, (given, has)):
        fs.create_mapped(path, size * PAGE_SIZE_BYTES).close()
        fs.capacity_bytes = size * PAGE_SIZE_BYTES
        if given:
            ballast.give_way()
    fs.capacity_bytes = (has + free) * PAGE_SIZE_BYTES
    ballast.take()
    found = fs.size(path) // PAGE_SIZE_BYTES if fs.exists(path) else None
    assert found == expected
