# SPDX-License-Identifier: Apache-2.0
"""Queue units and index entries: RocketMQ's bytes, nothing outside of the buffers."""

import struct
from array import array
from typing import Any

import numpy as np
import pytest

from libs.formats.indexes import consume_queue, index_file
from libs.formats.indexes.index_file import IndexEntry, IndexHeader, decode_entry, decode_header, file_size_bytes
from tests.unit.libs.kernel.builds import BUILDS, Build, label

pytestmark = pytest.mark.parametrize("build", BUILDS, ids=label)
SLOTS, CAPACITY = 7, 12
FILE_SIZE = file_size_bytes(SLOTS, CAPACITY)
BEGIN_MS = 1_700_000_000_123


def put(build: Build, file: Any, rows: list[tuple[int, int, list[int]]], **changes: Any) -> tuple[int, int]:
    """Put records given as (physical offset, store time, key hashes). Returns the kernel's answer."""
    arguments: dict[str, Any] = {
        "first_row": 0,
        "physical_offsets": array("q", [row[0] for row in rows]),
        "store_times_ms": array("q", [row[1] for row in rows]),
        "key_counts": array("i", [len(row[2]) for row in rows]),
        "first_key": 0,
        "key_hashes": array("i", [key for row in rows for key in row[2]]),
        "row_end": len(rows),
        "slot_count": SLOTS,
        "entry_capacity": CAPACITY,
    }
    answer: tuple[int, int] = build.index_cy.put_index_entries(file, **{**arguments, **changes})
    return answer


def test_queue_units(build: Build) -> None:
    """Units of the chosen rows, in their order, are the bytes that libs.formats makes."""
    offsets, sizes = np.array([2**40, 300, 0], np.int64), np.array([100, 2**31 - 1, 91], np.int32)
    codes = np.array([-516329062, 2**62, 0], np.int64)
    out = bytearray(b"x" * 61)
    assert build.index_cy.encode_queue_units(array("i", [2, 0, 1]), offsets, sizes, codes, out) == 60
    expected = [consume_queue.ENTRY.pack(offsets[row], sizes[row], codes[row]) for row in (2, 0, 1)]
    assert bytes(out) == b"".join(expected) + b"x"
    assert build.index_cy.encode_queue_units(array("i"), offsets, sizes, codes, bytearray()) == 0


@pytest.mark.parametrize(("rows", "room"), [([0, 3], 60), ([-1], 60), ([0, 1], 39), ([2**31 - 1], 60)])
def test_bad_rows_write_nothing(build: Build, rows: list[int], room: int) -> None:
    """A row outside of the columns or too little room is an error before the first byte is written."""
    out = bytearray(room)
    columns = (array("q", [1, 2, 3]), array("i", [1, 2, 3]), array("q", [1, 2, 3]))
    with pytest.raises(ValueError, match=r"outside|fit"):
        build.index_cy.encode_queue_units(array("i", rows), *columns, out)
    assert not any(out)
    with pytest.raises(ValueError, match="lengths"):
        build.index_cy.encode_queue_units(array("i", [0]), columns[0], array("i", [1]), columns[2], out)


def test_file_bytes(build: Build) -> None:
    """Header, slots and entries follow IndexFile.putKey: time differences, chains, and slots counted once."""
    file = bytearray(FILE_SIZE)
    rows = [(224, BEGIN_MS, [3, 10]), (300, BEGIN_MS + 5_900, []), (429, BEGIN_MS + 5_900, [3, 4, 3])]
    assert put(build, file, rows) == (3, 5)
    assert decode_header(file) == IndexHeader(BEGIN_MS, BEGIN_MS + 5_900, 224, 429, 2, 6)
    entries = [decode_entry(file, index_file.entry_position(number, SLOTS)) for number in range(7)]
    assert entries == [
        IndexEntry(0, 0, 0, 0),
        IndexEntry(3, 224, 0, 0),
        IndexEntry(10, 224, 0, 1),
        IndexEntry(3, 429, 5, 2),
        IndexEntry(4, 429, 5, 0),
        IndexEntry(3, 429, 5, 3),
        IndexEntry(0, 0, 0, 0),
    ]
    assert struct.unpack_from(">7i", file, 40) == (0, 0, 0, 5, 4, 0, 0)


def test_time_differences(build: Build) -> None:
    """Whole seconds, never negative, at most an int32; the first entry of a successor file has 0 too."""
    file = bytearray(FILE_SIZE)
    struct.pack_into(">qqqqii", file, 0, BEGIN_MS - 42_000, BEGIN_MS - 42_000, 5, 5, 0, 0)
    times = [BEGIN_MS, BEGIN_MS - 999_999, BEGIN_MS + 999, BEGIN_MS + 1000, BEGIN_MS + 2**31 * 1000]
    put(build, file, [(row, time, [1]) for row, time in enumerate(times)])
    differences = [
        decode_entry(file, index_file.entry_position(number, SLOTS)).time_difference_s for number in range(1, 6)
    ]
    assert differences == [0, 0, 0, 1, 2**31 - 1]
    assert decode_header(file).begin_time_ms == BEGIN_MS


def test_full_file_stops_before_a_record(build: Build) -> None:
    """A record whose keys do not all fit is not begun, and the next file continues with it.

    Records without keys are passed.
    """
    rows = [(index, BEGIN_MS, [index] * 4) for index in range(4)]
    rows.insert(2, (9, BEGIN_MS, []))
    file = bytearray(FILE_SIZE)
    assert put(build, file, rows) == (3, 8)
    assert put(build, file, rows, first_row=3, first_key=8) == (3, 8)
    assert decode_header(file).next_entry == 9
    successor = bytearray(FILE_SIZE)
    assert put(build, successor, rows, first_row=3, first_key=8) == (5, 16)
    exact = bytearray(FILE_SIZE)
    assert put(build, exact, [(0, BEGIN_MS, [1] * 11), (1, BEGIN_MS, [])]) == (2, 11)
    assert put(build, exact, [(2, BEGIN_MS, [1])]) == (0, 0)


@pytest.mark.parametrize(
    "changes",
    [
        {"row_end": 3}, {"first_row": -1}, {"first_row": 3}, {"first_key": -1}, {"first_key": 3}, {"slot_count": 0},
        {"key_counts": array("i", [1, -1])}, {"key_counts": array("i", [2, 2])}, {"key_hashes": array("i", [1, 2, -3])},
        {"key_counts": array("i", [12, 0]), "key_hashes": array("i", [1] * 12)}, {"entry_capacity": 13},
        {"entry_capacity": 1}, {"slot_count": 1000}, {"store_times_ms": array("q", [1])},
        {"row_end": 1, "first_row": 2},
    ],
)  # fmt: skip
def test_bad_columns_write_nothing(build: Build, changes: dict[str, Any]) -> None:
    """Columns or numbers that do not fit each other are an error, and the file is as before."""
    file = bytearray(FILE_SIZE)
    with pytest.raises(ValueError, match=r"."):
        put(build, file, [(1, BEGIN_MS, [1, 2]), (2, BEGIN_MS, [3])], **changes)
    assert not any(file)
