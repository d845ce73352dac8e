# SPDX-License-Identifier: Apache-2.0
"""Queue units and index entries: RocketMQ's bytes, nothing outside of the buffers, no endless walk."""

import struct
from array import array
from typing import Any

import numpy as np
import pytest

from libs.formats.indexes import consume_queue, index_file
from libs.formats.indexes.index_file import IndexEntry, IndexHeader, decode_entry, decode_header, file_size_bytes
from libs.kernel import layout
from tests.unit.libs.kernel.builds import BUILDS, Build, Guarded, label

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


def select(
    build: Build, file: Any, key: int, *, begin: int = 0, end: int = 2**62, before: int = 0, limit: int = 99
) -> tuple[list[tuple[int, int]], int]:
    """((physical offset, entry) newest first, next entry) of a hash."""
    physical, entries = array("q", bytes(8 * limit)), array("i", bytes(4 * limit))
    count, next_entry = build.index_cy.select_index_entries(
        file, key, begin, end, before, limit, physical, entries, SLOTS
    )
    return list(zip(physical[:count], entries[:count], strict=True)), next_entry


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


def test_select_in_steps(build: Build) -> None:
    """All entries of a hash come newest first, also in steps of any size, and no entry of another hash."""
    file = bytearray(FILE_SIZE)
    put(build, file, [(100 + index, BEGIN_MS, [1 + 7 * (index % 2)]) for index in range(11)])
    everything = [(100 + index, index + 1) for index in range(10, -1, -2)]
    assert select(build, file, 1) == (everything, 0)
    assert select(build, file, 15) == ([], 0)
    assert select(build, file, 2) == ([], 0)
    for limit in range(1, 8):
        found, before = select(build, file, 1, limit=limit)
        while before:
            step, before = select(build, file, 1, before=before, limit=limit)
            found += step
        assert found == everything


def test_select_by_time(build: Build) -> None:
    """No entry of the range is missed, although entries have whole seconds only.

    Entries that are surely outside are left out.
    """
    file = bytearray(FILE_SIZE)
    times = [BEGIN_MS + 700 * index for index in range(11)]
    put(build, file, [(index, time, [1]) for index, time in enumerate(times)])
    for begin in range(BEGIN_MS - 1000, BEGIN_MS + 9000, 333):
        for end in range(begin, BEGIN_MS + 9000, 777):
            found = {offset for offset, _ in select(build, file, 1, begin=begin, end=end)[0]}
            assert {index for index, time in enumerate(times) if begin <= time <= end} <= found
            assert all(begin - 1000 < times[index] < end + 1000 for index in found)


def test_damaged_chains_are_told(build: Build) -> None:
    """Cycles, numbers outside of the file and a wrong count end the walk with their place; nothing else is read."""
    guarded = Guarded(FILE_SIZE)
    clean = bytearray(FILE_SIZE)
    put(build, clean, [(100 + index, BEGIN_MS, [1]) for index in range(11)])
    slot_at, third_at = index_file.slot_position(1, SLOTS), index_file.entry_position(3, SLOTS)
    for at, value, place in [
        (slot_at, 2**31 - 1, slot_at), (slot_at, -1, slot_at), (slot_at, 12, slot_at),
        (third_at + 16, 3, third_at), (third_at + 16, 9, third_at), (third_at + 16, -5, third_at),
        (third_at + 16, 2**31 - 1, third_at), (36, 2**31 - 1, 36), (36, 0, slot_at), (36, -1, slot_at),
        (third_at + 12, -1, third_at), (0, -1, 0), (0, 2**31 - 1, 0),
        (third_at, 2, third_at), (third_at, -1, third_at), (third_at + 8, 99, third_at), (third_at + 8, 111, third_at),
        (third_at + 4, 1, third_at), (third_at + 4, -1, third_at),
    ]:  # fmt: skip
        damaged = bytearray(clean)
        struct.pack_into(">i", damaged, at, value)
        found, next_entry = select(build, guarded.hold(bytes(damaged)), 1, limit=20)
        assert found == [(99 + entry, entry) for entry in range(11, 11 - len(found), -1)]
        assert next_entry == -1 - place
        for before in (1, 5, 11, 12, 2**31 - 1, 2**40, -3):
            select(build, guarded.hold(bytes(damaged)), 1, before=before, limit=2)
        put(build, guarded.hold(bytes(damaged)), [(50, BEGIN_MS, [1])])


def test_bad_select_arguments(build: Build) -> None:
    """A negative hash, arrays shorter than the limit and a file without its slots are the caller's errors."""
    file = bytearray(FILE_SIZE)
    arrays = array("q", [0]), array("i", [0])
    for data, key, limit, slots in ((file, -1, 1, SLOTS), (file, 1, 2, SLOTS), (file, 1, 1, 10**6), (b"", 1, 1, 1)):
        with pytest.raises(ValueError, match=r"."):
            build.index_cy.select_index_entries(data, key, 0, 1, 0, limit, *arrays, slots)


def test_one_call_looks_at_so_many_entries_of_a_chain(build: Build) -> None:
    """A call looks at a limited number of entries of a chain, and tells the next entry.

    So other keys of the same slot, in any number, do not block a reader of a key behind them.
    """
    visit_count_max = layout.VISIT_COUNT_MAX
    count = 2 * visit_count_max
    capacity = count + 2
    file = bytearray(file_size_bytes(SLOTS, capacity))
    rows = [(1, BEGIN_MS, [3]), *((2 + index, BEGIN_MS, [3 + SLOTS]) for index in range(count))]
    assert put(build, file, rows, entry_capacity=capacity) == (len(rows), len(rows))
    found, next_entry = select(build, file, 3)
    assert (found, next_entry) == ([], count + 2 - visit_count_max)
    found, next_entry = select(build, file, 3, before=next_entry)
    assert (found, next_entry) == ([], 2)
    assert select(build, file, 3, before=next_entry) == ([(1, 1)], 0)
    assert len(select(build, file, 3 + SLOTS, limit=count)[0]) == visit_count_max
