# SPDX-License-Identifier: Apache-2.0
"""Units of a queue as columns, and the runs in which records are read."""

import random
import struct
from array import array
from itertools import pairwise

import pytest

from tests.unit.libs.kernel.builds import BUILDS, Build, Guarded, label

pytestmark = pytest.mark.parametrize("build", BUILDS, ids=label)
UNIT = struct.Struct(">qiq")


def columns(count: int) -> tuple["array[int]", "array[int]", "array[int]"]:
    return array("q", bytes(8 * count)), array("i", bytes(4 * count)), array("q", bytes(8 * count))


def test_units(build: Build) -> None:
    """The columns have the units from the position on; nothing is read past the file."""
    units = [(100, 10, -1), (200, 2**31 - 1, 2**62), (2**62, 1, 0)]
    file = Guarded(100).hold(b"x" * 7 + b"".join(UNIT.pack(*unit) for unit in units))
    for first in range(4):
        made = columns(3 - first)
        assert build.reads_cy.read_units(file, 7 + 20 * first, -1, *made) == 3 - first
        assert list(zip(*made, strict=True)) == units[first:]


@pytest.mark.parametrize("bad", [(100, 10, 0), (99, 10, 0), (-1, 10, 0), (-(2**63), 10, 0), (101, 0, 0), (101, -1, 0)])
def test_impossible_units(build: Build, bad: tuple[int, int, int]) -> None:
    """Impossible units end the result, also as the first unit after an earlier unit."""
    file = b"".join(UNIT.pack(*unit) for unit in ((100, 5, 1), bad, (300, 5, 1)))
    assert build.reads_cy.read_units(file, 0, 99, *columns(3)) == 1
    assert build.reads_cy.read_units(file, 20, 100, *columns(2)) == 0


@pytest.mark.parametrize(("position", "count"), [(-1, 1), (1, 3), (0, 4), (61, 0), (60, 1), (2**62, 1)])
def test_units_outside_of_the_file(build: Build, position: int, count: int) -> None:
    """Units outside of the file are refused."""
    with pytest.raises(ValueError, match="a file of 60 bytes has no"):
        build.reads_cy.read_units(bytes(60), position, -1, *columns(count))


def test_columns_of_different_lengths(build: Build) -> None:
    """Columns of different lengths are refused."""
    offsets, sizes, codes = columns(2)
    with pytest.raises(ValueError, match="different lengths"):
        build.reads_cy.read_units(bytes(60), 0, -1, offsets, sizes, codes[:1])
    with pytest.raises(ValueError, match="2 offsets, 1 sizes"):
        build.reads_cy.find_runs(offsets, sizes[:1], codes, 1, 1)


def runs(build: Build, records: list[tuple[int, int]], bases: list[int], gap: int, size: int) -> list[tuple[int, ...]]:
    offsets, sizes = array("q", [one for one, _ in records]), array("i", [one for _, one in records])
    found: list[tuple[int, ...]] = build.reads_cy.find_runs(offsets, sizes, array("q", bases), gap, size)
    return found


def test_runs(build: Build) -> None:
    """A run ends at a gap, at a file, at its size, and before a record that lies before the last one."""
    assert runs(build, [], [0], 10, 100) == []
    assert runs(build, [(0, 5), (5, 5), (20, 5)], [0], 10, 100) == [(0, 3, 0, 25)]
    assert runs(build, [(0, 5), (5, 5), (20, 5)], [0], 9, 100) == [(0, 2, 0, 10), (2, 3, 20, 5)]
    assert runs(build, [(0, 5), (5, 5), (20, 5)], [0, 20], 10, 100) == [(0, 2, 0, 10), (2, 3, 20, 5)]
    assert runs(build, [(0, 5), (5, 5), (20, 5)], [0], 10, 24) == [(0, 2, 0, 10), (2, 3, 20, 5)]
    assert runs(build, [(0, 50), (50, 50)], [0], 10, 10) == [(0, 1, 0, 50), (1, 2, 50, 50)]
    assert runs(build, [(20, 5), (5, 5), (8, 5)], [0], 10, 100) == [(0, 1, 20, 5), (1, 2, 5, 5), (2, 3, 8, 5)]


@pytest.mark.parametrize("record", [(-1, 5), (0, -5), (2**63 - 1, 5), (2**63 - 2**31, 2**31 - 1)])
def test_records_that_no_log_has(build: Build, record: tuple[int, int]) -> None:
    """They are refused."""
    with pytest.raises(ValueError, match="no record of"):
        runs(build, [(0, 5), record], [0], 10, 100)


def test_runs_by_chance(build: Build) -> None:
    """Runs follow each other without a rest, keep their limits, and no two neighbours could be one."""
    chance = random.Random(7)
    for _ in range(300):
        at, records = chance.randrange(50), []
        for _ in range(chance.randrange(1, 20)):
            size = chance.randrange(1, 30)
            records.append((at, size))
            at = max(0, at + size + chance.choice((0, 0, 3, 12, -60)))
        bases = sorted({0, *(chance.randrange(400) for _ in range(3))})

        def file_of(offset: int, bases: list[int] = bases) -> int:
            return sum(base <= offset for base in bases)

        found = runs(build, records, bases, 10, 64)
        assert [run[0] for run in found] == [0, *(run[1] for run in found[:-1])]
        assert found[-1][1] == len(records)
        for first, last, start, size in found:
            inside = records[first:last]
            assert (start, start + size) == (inside[0][0], sum(inside[-1]))
            assert last - first == 1 or size <= 64
            assert len({file_of(offset) for offset, _ in inside}) == 1
            assert all(0 <= after[0] - sum(before) <= 10 for before, after in pairwise(inside))
        for left, right in pairwise(found):
            end, (offset, size) = left[2] + left[3], records[right[0]]
            is_near = 0 <= offset - end <= 10 and offset + size - left[2] <= 64
            assert not is_near or file_of(offset) != file_of(left[2])
