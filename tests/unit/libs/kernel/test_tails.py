# SPDX-License-Identifier: Apache-2.0
"""Tails: the records of many queues are entered in one walk, and each queue that is not plain is left alone."""

from array import array
from typing import Any

import pytest

from libs.formats.indexes.consume_queue import ENTRY, UNIT_SIZE_BYTES
from tests.unit.libs.kernel.builds import BUILDS, Build, Guarded, label

pytestmark = pytest.mark.parametrize("build", BUILDS, ids=label)


def tail_of(build: Build, end: int, room: int, *, first: int = 0, last: int = 0) -> tuple[Any, memoryview]:
    """Return a tail with room for so many units, and the memory behind which nothing can be written."""
    buffer = Guarded(1 << 16).hold(bytes(UNIT_SIZE_BYTES * (end + room - first)))
    return build.tails_cy.Tail(end, last, first, end + room, buffer), buffer


def enter(build: Build, tails: list[Any], rows: list[tuple[int, int, int]]) -> int:
    """Enter rows of queue index, queue offset and physical offset. Returns the number of entered records."""
    indexes, offsets = array("i", [row[0] for row in rows]), array("q", [row[1] for row in rows])
    places = array("q", [row[2] for row in rows])
    build.tails_cy.leave_others(tails, indexes, offsets, places)
    sizes, codes = array("i", [100 + row[1] for row in rows]), array("q", [-row[2] for row in rows])
    count: int = build.tails_cy.enter(tails, indexes, places, sizes, codes)
    return count


def units(buffer: memoryview) -> list[tuple[int, int, int]]:
    """Return all units of a file."""
    return [ENTRY.unpack_from(buffer, at) for at in range(0, len(buffer), UNIT_SIZE_BYTES)]


def test_records_reach_their_queues(build: Build) -> None:
    """Each record gets the next unit of its queue, up to the last byte of its room."""
    a, a_file = tail_of(build, 0, 2)
    b, b_file = tail_of(build, 7, 1, first=6, last=50)
    assert enter(build, [a, b], [(0, 0, 100), (1, 7, 200), (-1, 9, 250), (0, 1, 300)]) == 3
    assert units(a_file) == [(100, 100, -100), (300, 101, -300)]
    assert units(b_file) == [(0, 0, 0), (200, 107, -200)]
    assert (a.end, a.last_physical_offset, b.end, b.last_physical_offset) == (2, 300, 8, 200)


@pytest.mark.parametrize(
    "rows",
    [
        [(0, 6, 100)],  # a gap
        [(0, 4, 100)],  # it is there already
        [(0, 5, 40)],  # an older record
        [(0, 5, 50)],  # the last record again
        [(0, 5, 100), (0, 6, 90)],  # it falls
        [(0, 5, 100), (0, 5, 110)],  # twice
        [(0, 5, 100), (0, 6, 110), (0, 7, 120)],  # no room for the last
        [(0, 0, 100)],  # begins again
        [(0, -1, 100)],
    ],
)
def test_a_queue_that_is_not_plain_is_left(build: Build, rows: list[tuple[int, int, int]]) -> None:
    """None of its records are entered, and the records of another queue are."""
    odd, odd_file = tail_of(build, 5, 2, last=50)
    plain, plain_file = tail_of(build, 0, 1)
    tails = [odd, plain, None]
    assert enter(build, tails, [*rows, (1, 0, 500), (2, 0, 510)]) == 1
    assert tails == [None, plain, None]
    assert (odd.end, odd.last_physical_offset) == (5, 50)
    assert bytes(odd_file) == bytes(len(odd_file))
    assert units(plain_file) == [(500, 100, -500)]


def test_a_closed_tail_takes_nothing(build: Build) -> None:
    """Its memory is given back."""
    tail, buffer = tail_of(build, 0, 4)
    tail.close()
    tails = [tail]
    assert enter(build, tails, [(0, 0, 100)]) == 0
    assert tails == [None]
    with pytest.raises(ValueError, match="no room"):
        build.tails_cy.enter([tail], array("i", [0]), array("q", [1]), array("i", [1]), array("q", [1]))
    assert bytes(buffer) == bytes(len(buffer))


def test_a_queue_twice_in_a_batch(build: Build) -> None:
    """Two indexes of a queue share its tail: the records continue each other, or the queue is left."""
    tail, buffer = tail_of(build, 0, 4)
    assert enter(build, [tail, tail], [(0, 0, 100), (1, 1, 200)]) == 2
    assert [unit[0] for unit in units(buffer)] == [100, 200, 0, 0]


@pytest.mark.parametrize(
    ("end", "first", "room_end", "size"), [(5, 6, 9, 999), (6, 0, 5, 999), (-1, -1, 5, 999), (5, 2, 9, 139)]
)
def test_numbers_that_do_not_fit(build: Build, end: int, first: int, room_end: int, size: int) -> None:
    """A tail outside of its memory is refused."""
    with pytest.raises(ValueError, match="room"):
        build.tails_cy.Tail(end, 0, first, room_end, bytearray(size))


def test_columns_that_do_not_fit(build: Build) -> None:
    """A queue index without a tail, and columns of different lengths, are refused."""
    one, many = array("i", [0]), array("q", [1, 2])
    for tails, indexes, places in (([], one, many[:1]), ([None], one, many)):
        with pytest.raises(ValueError, match=r"different|queue index"):
            build.tails_cy.leave_others(tails, indexes, many[: len(places)], places)
        with pytest.raises(ValueError, match=r"different|queue index"):
            build.tails_cy.enter(tails, indexes, places, one, many[: len(places)])
