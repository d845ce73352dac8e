# SPDX-License-Identifier: Apache-2.0
"""Searches of index files find what a plain reading finds, tell damage by its place, and end after a bounded walk."""

import random
import struct
from array import array
from typing import Any, NamedTuple

import pytest

from libs.formats.indexes import index_file
from libs.formats.indexes.index_file import (
    FIRST_ENTRY,
    decode_entry,
    decode_header,
    file_size_bytes,
    key_hash,
    key_text,
)
from libs.kernel import layout
from tests.unit.libs.kernel.builds import BUILDS, Build, Guarded, label

pytestmark = pytest.mark.parametrize("build", BUILDS, ids=label)
SLOTS, CAPACITY = 7, 12
FILE_SIZE = file_size_bytes(SLOTS, CAPACITY)
BEGIN_MS = 1_700_000_000_123
ALL = 2**62
TALLY = array("q", [0, 0])


class Found(NamedTuple):
    """Physical offsets, and where the search stopped."""

    offsets: list[int]
    position: int
    entry: int
    doubt_at: int


def put(build: Build, file: Any, rows: list[tuple[int, int, list[int]]], capacity: int = CAPACITY) -> None:
    """Put records given as (physical offset, store time, key hashes)."""
    columns = (array("q", [row[0] for row in rows]), array("q", [row[1] for row in rows]))
    counts, hashes = array("i", [len(row[2]) for row in rows]), array("i", [key for row in rows for key in row[2]])
    done = build.index_cy.put_index_entries(file, 0, *columns, counts, 0, hashes, len(rows), SLOTS, capacity)
    assert done == (len(rows), len(hashes))


def search(
    build: Build, files: list[Any], key: int, *, position: int | None = None, entry: int = 0, start: int = 0,
    end: int = ALL, below: int = ALL, log_end: int = ALL, limit: int = 99,
) -> Found:  # fmt: skip
    """Search files given as buffers, from the newest on or from a place."""
    searched = [build.lookup_cy.SearchedFile(file, SLOTS) for file in files]
    out = array("q", bytes(8 * limit))
    first = len(files) - 1 if position is None else position
    count, *place = build.lookup_cy.search(searched, first, entry, key, start, end, below, log_end, out, TALLY)
    return Found(out[:count].tolist(), *place)


def read_plainly(files: list[bytes], key: int, start: int, end: int, below: int) -> list[int]:
    """The offsets that a search must find, from all entries of all files."""
    found: list[int] = []
    for file in reversed(files):
        header = decode_header(file)
        for number in range(header.entry_count, 0, -1):
            entry = decode_entry(file, index_file.entry_position(number, SLOTS))
            time_ms = header.begin_time_ms + (entry.time_difference_s * 1000 if number > FIRST_ENTRY else 0)
            is_in_time = header.end_time_ms >= start and max(0, start - 999) <= time_ms < end
            if entry.key_hash == key and entry.physical_offset < below and is_in_time:
                found.append(entry.physical_offset)
    return [offset for number, offset in enumerate(found) if number == 0 or offset != found[number - 1]]


def random_files(build: Build, chance: random.Random) -> list[bytes]:
    """Some files that follow each other."""
    made, offset, time_ms = [], 0, BEGIN_MS
    for _ in range(chance.randrange(1, 5)):
        rows, room = [], CAPACITY - 1
        while room > 0:
            keys = [chance.randrange(12) for _ in range(chance.randrange(1, min(3, room) + 1))]
            offset, time_ms = offset + chance.randrange(91, 300), time_ms + chance.choice((0, 1, 400, 1_500, 9_000))
            rows.append((offset, time_ms, keys))
            room -= len(keys)
        file = bytearray(FILE_SIZE)
        put(build, file, rows)
        made.append(bytes(file))
    return made


@pytest.mark.parametrize("seed", range(40))
def test_a_search_finds_what_a_plain_reading_finds(build: Build, seed: int) -> None:
    """Any key, times and bound: newest first, a record once, over all files, in steps of any size."""
    chance = random.Random(seed)
    files = random_files(build, chance)
    for _ in range(30):
        key, below = chance.randrange(13), chance.choice((ALL, chance.randrange(6_000)))
        start, end = BEGIN_MS + chance.randrange(-2_000, 90_000), BEGIN_MS + chance.randrange(-2_000, 90_000)
        start, end = chance.choice(((0, ALL), (start, end)))
        expected = read_plainly(files, key, start, end, below)
        bounds = {"start": start, "end": end, "below": below}
        assert search(build, files, key, **bounds) == (expected, -1, 0, -1)
        limit, found, position, entry = chance.randrange(1, 4), list[int](), len(files) - 1, 0
        while position >= 0:
            step = search(build, files, key, position=position, entry=entry, limit=limit, **bounds)
            found += [offset for offset in step.offsets if not found or offset != found[-1]]
            position, entry = step.position, step.entry
        assert found == expected


@pytest.mark.parametrize("seed", range(20))
def test_many_keys_are_searched_as_one(build: Build, seed: int) -> None:
    """Each key has the records that a search of it alone finds, or is left to such a search."""
    chance = random.Random(seed)
    files = random_files(build, chance)
    searched = [build.lookup_cy.SearchedFile(file, SLOTS) for file in files]
    hashes, room = array("i", [chance.randrange(14) for _ in range(20)]), chance.randrange(1, 5)
    out, counts = array("q", bytes(8 * room * 20)), array("i", bytes(4 * 20))
    first = chance.randrange(20)
    bounds = chance.choice(((0, ALL), (BEGIN_MS + 5_000, BEGIN_MS + 40_000)))
    assert build.lookup_cy.search_many(searched, hashes, first, *bounds, ALL, room, out, counts, TALLY) == 20
    assert counts[:first].tolist() == [0] * first
    for number in range(first, 20):
        alone = search(build, files, hashes[number], start=bounds[0], end=bounds[1], limit=room)
        assert counts[number] == (len(alone.offsets) if alone.position == -1 else -1)
        if counts[number] >= 0:
            assert out[number * room : number * room + counts[number]].tolist() == alone.offsets


def test_damage_is_told_by_its_place(build: Build) -> None:
    """Cycles, numbers outside of the file, lost slots and impossible headers end the walk; nothing else is read."""
    guarded, clean = Guarded(FILE_SIZE), bytearray(FILE_SIZE)
    put(build, clean, [(100 + index, BEGIN_MS, [1]) for index in range(11)])
    slot_at, third_at = index_file.slot_position(1, SLOTS), index_file.entry_position(3, SLOTS)
    for at, value, place, entry in [
        (slot_at, 2**31 - 1, slot_at, -1), (slot_at, -1, slot_at, -1), (slot_at, 12, slot_at, -1),
        (slot_at, 0, slot_at, 0),
        (third_at + 16, 3, third_at, -1), (third_at + 16, 9, third_at, -1), (third_at + 16, -5, third_at, -1),
        (third_at + 16, 2**31 - 1, third_at, -1), (36, 2**31 - 1, 36, -1), (36, 0, slot_at, -1), (36, -1, 0, -1),
        (third_at + 12, -1, third_at, -1), (0, -1, 0, -1), (0, 2**31 - 1, 0, -1), (8, -1, 0, -1), (32, -1, 0, -1),
        (16, -1, 0, -1), (24, -1, 0, -1),
        (third_at, 2, third_at, -1), (third_at, -1, third_at, -1), (third_at + 8, 99, third_at, -1),
        (third_at + 8, 111, third_at, -1), (third_at + 4, 1, third_at, -1), (third_at + 4, -1, third_at, -1),
    ]:  # fmt: skip
        damaged = bytearray(clean)
        struct.pack_into(">i", damaged, at, value)
        found = search(build, [guarded.hold(bytes(damaged))], 1, limit=20)
        assert found[1:] == (0, entry, place)
        assert found.offsets == list(range(110, 110 - len(found.offsets), -1))
        hashes, counts = array("i", [1]), array("i", [7])
        searched = [build.lookup_cy.SearchedFile(guarded.hold(bytes(damaged)), SLOTS)]
        build.lookup_cy.search_many(searched, hashes, 0, 0, ALL, ALL, 20, array("q", bytes(160)), counts, TALLY)
        assert counts[0] == -1
        for before in (1, 5, 11, 12, 2**31 - 1, 2**40, -3):
            search(build, [guarded.hold(bytes(damaged))], 1, entry=before, limit=2)


def test_a_header_that_changes_or_cannot_be_is_damage(build: Build) -> None:
    """A finished file without entries, another number of entries than before, and records past the log's end."""
    file = bytearray(FILE_SIZE)
    put(build, file, [(100, BEGIN_MS, [1])])
    assert search(build, [file], 1, log_end=101).offsets == [100]
    assert search(build, [file], 1, log_end=100)[1:] == (0, -1, 0)
    searched, out = build.lookup_cy.SearchedFile(file, SLOTS), array("q", [0])
    arguments = ([searched], 0, 0, 1, 0, ALL, ALL, ALL, out, TALLY)
    assert build.lookup_cy.search(*arguments) == (1, -1, 0, -1)
    assert searched.next_entry == 2
    struct.pack_into(">i", file, 36, 3)
    assert build.lookup_cy.search(*arguments)[1:] == (0, -1, 0)
    empty = build.lookup_cy.SearchedFile(bytes(FILE_SIZE), SLOTS)
    assert build.lookup_cy.search([empty], *arguments[1:]) == (0, -1, 0, -1)
    empty.is_finished = True
    assert build.lookup_cy.search([empty], *arguments[1:]) == (0, 0, -1, 0)


def test_bad_arguments(build: Build) -> None:
    """A negative hash, a position without a file, arrays that are too short and a file without its slots are errors."""
    file = build.lookup_cy.SearchedFile(bytes(FILE_SIZE), SLOTS)
    out, counts = array("q", [0]), array("i", [0])
    for files, position, key in (([file], 0, -1), ([file], 0, 2**31), ([file], 1, 1), ([file], -2, 1), ([], 0, 1)):
        with pytest.raises(ValueError, match=r"."):
            build.lookup_cy.search(files, position, 0, key, 0, 1, 1, 1, out, TALLY)
    for hashes, first, room in (([1, 2], 0, 1), ([1], -1, 1), ([1], 0, 2), ([1], 0, 0), ([-1], 0, 1)):
        with pytest.raises(ValueError, match=r"."):
            build.lookup_cy.search_many([file], array("i", hashes), first, 0, 1, 1, room, out, counts, TALLY)
    for data, slots in ((b"", 1), (bytes(FILE_SIZE), 0), (bytes(FILE_SIZE), 10**6)):
        with pytest.raises(ValueError, match="too small"):
            build.lookup_cy.SearchedFile(data, slots)


def test_a_call_looks_at_so_many_entries(build: Build) -> None:
    """A call looks at a limited number of entries, and says where to continue.

    So other keys of the same slot, in any number, do not block a reader of a key behind them. Of many keys the first is
    done in any case, and the others are left to the next call.
    """
    look_count_max = layout.LOOK_COUNT_MAX
    count = 2 * look_count_max
    capacity = count + 2
    file = bytearray(file_size_bytes(SLOTS, capacity))
    put(build, file, [(1, BEGIN_MS, [3]), *((2 + index, BEGIN_MS, [3 + SLOTS]) for index in range(count))], capacity)
    found = search(build, [file], 3)
    assert found == ([], 0, count + 2 - look_count_max + 1, -1)
    found = search(build, [file], 3, entry=found.entry)
    assert found == ([], 0, 3 + 1, -1)
    assert search(build, [file], 3, entry=found.entry) == ([1], -1, 0, -1)
    assert len(search(build, [file], 3 + SLOTS, limit=count).offsets) == look_count_max - 1
    searched, counts = [build.lookup_cy.SearchedFile(file, SLOTS)], array("i", [7, 7, 7])
    arguments = (0, ALL, ALL, 2, array("q", bytes(8 * 6)), counts, TALLY)
    assert build.lookup_cy.search_many(searched, array("i", [4, 3, 4]), 0, *arguments) == 1
    assert build.lookup_cy.search_many(searched, array("i", [4, 3, 4]), 1, *arguments) == 2
    assert build.lookup_cy.search_many(searched, array("i", [4, 3, 4]), 2, *arguments) == 3
    assert counts.tolist() == [0, -1, 0]


def test_hashes_of_keys(build: Build) -> None:
    """Keys have the hashes of their index entries, whatever their characters."""
    keys = ["", "a", "order-1001", "é", "имя", "😀x", "polygenelubricants", "k" * 500]
    for topic in ("", "T", "тема"):
        found = build.lookup_cy.key_hashes(topic.encode(), [key.encode() for key in keys])
        assert list(found) == [key_hash(key_text(topic, key)) for key in keys]
    assert key_hash(key_text("", "\x00" * 0)) >= 0
    assert list(build.lookup_cy.key_hashes(b"T", [])) == []


def test_empty_places_are_looked_at_again_when_a_file_has_grown(build: Build) -> None:
    """Where keys are unevenly spread, all slots are counted once, and again when there are twice as many entries."""
    slots, capacity = 4_000, 1_000
    file = bytearray(file_size_bytes(slots, capacity))

    def fill(first: int, last: int) -> None:
        rows = range(first, last)
        columns = array("q", rows), array("q", [BEGIN_MS] * len(rows)), array("i", [1] * len(rows))
        hashes = array("i", rows)
        done = build.index_cy.put_index_entries(file, 0, *columns, 0, hashes, len(rows), slots, capacity)
        assert done == (len(rows), len(rows))

    fill(0, 400)
    searched, out = build.lookup_cy.SearchedFile(file, slots), array("q", [0])
    arguments = ([searched], 0, 0, 3_000, 0, ALL, ALL, ALL, out, TALLY)
    slot_at = index_file.slot_position(3_000, slots)
    assert build.lookup_cy.search(*arguments) == (0, 0, 0, slot_at)
    searched.counted_entry = searched.next_entry
    assert build.lookup_cy.search(*arguments) == (0, -1, 0, -1)
    fill(400, 801)
    searched.next_entry = 802
    assert searched.counted_entry == 401
    assert build.lookup_cy.search(*arguments) == (0, -1, 0, -1)
    fill(801, 803)
    searched.next_entry = 804
    assert build.lookup_cy.search(*arguments) == (0, 0, 0, slot_at)
