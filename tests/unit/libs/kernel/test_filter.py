# SPDX-License-Identifier: Apache-2.0
"""Filters of index files deny no key that was entered, few others, and nothing once they are damaged."""

import random
from array import array
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from libs.formats.indexes import index_file
from libs.formats.indexes.index_file import KEY_HASH_AT, PREVIOUS_ENTRY_AT, TIME_DIFFERENCE_AT, file_size_bytes
from libs.formats.state.index_filter import BLOCK_SIZE_BYTES, block_count
from libs.kernel import layout
from tests.unit.libs.kernel.builds import BUILDS, SOURCES, Build, Guarded, label

SLOTS, SEED = 13, 0x1234ABCD
BEGIN_MS = 1_700_000_000_000
ALL = 2**62


def made_file(build: Build, hashes: list[int]) -> bytearray:
    """An index file with an entry for each hash, 100 bytes of the log apart."""
    capacity = len(hashes) + 1
    file = bytearray(file_size_bytes(SLOTS, capacity))
    count = len(hashes)
    columns = array("q", range(100, 100 * count + 1, 100)), array("q", [BEGIN_MS] * count), array("i", [1] * count)
    done = build.index_cy.put_index_entries(file, 0, *columns, 0, array("i", hashes), count, SLOTS, capacity)
    assert done == (count, count)
    return file


def made_blocks(build: Build, file: bytes | bytearray, count: int, *, step: int = 1 << 20) -> bytearray:
    """The sealed blocks of the filter of a file."""
    blocks, newest = bytearray(BLOCK_SIZE_BYTES * block_count(count)), array("i", bytes(4 * SLOTS))
    for first in range(1, count + 1, step):
        end = min(first + step, count + 1)
        assert build.filter_cy.fill_filter(file, SLOTS, first, end, newest, blocks) == end
    build.filter_cy.seal_filter(blocks, SEED)
    return blocks


def held(build: Build, blocks: Any, hashes: list[int]) -> int:
    """How many of the hashes the filter does not deny."""
    return int(build.filter_cy.count_held(blocks, SEED, array("i", hashes)))


@pytest.mark.parametrize("build", BUILDS, ids=label)
@given(hashes=st.lists(st.integers(0, 2**31 - 1), min_size=1, max_size=300), step=st.integers(1, 400))
@settings(max_examples=60, deadline=None)
def test_no_entered_key_is_denied(build: Build, hashes: list[int], step: int) -> None:
    """Whatever the hashes, their order and the steps; both builds make the same bytes."""
    file = made_file(build, hashes)
    blocks = made_blocks(build, file, len(hashes), step=step)
    assert held(build, blocks, hashes) == len(hashes)
    assert build.filter_cy.first_damaged(blocks, SEED) == -1
    assert blocks == made_blocks(SOURCES, file, len(hashes))


def test_few_other_keys_are_held() -> None:
    """Of 20,000 other keys a filter of 50,000 keys holds 1.5 % at most."""
    build, chance = BUILDS[0], random.Random(5)
    count = 50_000 if build is not SOURCES else 2_000
    numbers = chance.sample(range(2**31), 2 * count)
    blocks = made_blocks(build, made_file(build, numbers[:count]), count)
    others = numbers[count : count + 20_000]
    assert 0 < held(build, blocks, others) <= 0.015 * len(others)


@pytest.mark.parametrize("build", BUILDS, ids=label)
def test_a_damaged_block_is_found_and_denies_nothing(build: Build) -> None:
    """A block with a flipped bit or byte, with zeros, from another place or from another filter."""
    hashes = list(range(0, 100_000, 1_000))
    good = made_blocks(build, made_file(build, hashes), len(hashes))
    size, everything = BLOCK_SIZE_BYTES, list(range(500))
    harms = [(bit // 8, bytes([good[bit // 8] ^ 1 << bit % 8])) for bit in range(8 * size)]
    harms += [(at, bytes([good[at] ^ 0xFF])) for at in range(size)]
    harms += [(0, bytes(size)), (0, b"\xff" * size), (0, bytes(good[size : 2 * size]))]
    for at, data in harms:
        harmed = bytearray(good)
        harmed[at : at + len(data)] = data
        assert build.filter_cy.first_damaged(harmed, SEED) == 0
    assert build.filter_cy.first_damaged(good, SEED + 1) == 0
    assert held(build, good, everything) < len(everything)
    assert build.filter_cy.count_held(good, SEED + 1, array("i", everything)) == len(everything)
    assert held(build, bytes(len(good)), everything) == len(everything)


def test_two_flipped_bits_are_found() -> None:
    """No two bits of a block cancel each other out."""
    build, chance = BUILDS[0], random.Random(9)
    file = made_file(build, list(range(0, 40_000, 1_000)))
    block = made_blocks(build, file, 40)[:BLOCK_SIZE_BYTES]
    pairs = [(first, second) for first in range(512) for second in range(first)]
    for first, second in pairs if build is not SOURCES else chance.sample(pairs, 2_000):
        harmed = bytearray(block)
        for bit in (first, second):
            harmed[bit // 8] ^= 1 << bit % 8
        assert build.filter_cy.first_damaged(harmed, SEED) == 0


@pytest.mark.parametrize("build", BUILDS, ids=label)
def test_a_damaged_index_file_gets_no_filter(build: Build) -> None:
    """A filter of other hashes than those that were put would hide messages: the fill stops at the wrong entry."""
    hashes = [number * 7919 for number in range(1, 40)]
    clean = made_file(build, hashes)
    guarded, newest = Guarded(len(clean)), array("i", bytes(4 * SLOTS))
    at = index_file.entry_position(20, SLOTS)
    harms = [(at + KEY_HASH_AT, bytes([clean[at + KEY_HASH_AT] ^ 0x80])), (at, bytes(20)), (at, b"\xff" * 20)]
    harms += [(at + 3, bytes([clean[at + 3] ^ 1 << bit])) for bit in range(8)]
    harms += [(at + TIME_DIFFERENCE_AT, b"\xff"), (at + PREVIOUS_ENTRY_AT + 3, b"\x7f"), (at + 4, b"\x7f")]
    harms += [(at + 4, bytes(8)), (at + 4, (100 * 19 - 1).to_bytes(8, "big"))]
    for place, data in harms:
        harmed = bytearray(clean)
        harmed[place : place + len(data)] = data
        newest = array("i", bytes(4 * SLOTS))
        blocks = bytearray(BLOCK_SIZE_BYTES)
        found = build.filter_cy.fill_filter(guarded.hold(bytes(harmed)), SLOTS, 1, 40, newest, blocks)
        assert found == 20, (place, data)


@pytest.mark.parametrize("build", BUILDS, ids=label)
def test_bad_arguments(build: Build) -> None:
    """Entries outside of the file, other counts of slots and parts of blocks are errors, and change nothing."""
    file, newest, blocks = made_file(build, [1, 2]), array("i", bytes(4 * SLOTS)), bytearray(BLOCK_SIZE_BYTES)
    for slots, first, end, values, room in (
        (SLOTS, 0, 2, newest, blocks), (SLOTS, 2, 1, newest, blocks), (SLOTS, 1, 4, newest, blocks),
        (SLOTS, 1, 2**31 - 1, newest, blocks), (0, 1, 2, array("i"), blocks), (SLOTS + 1, 1, 2, newest, blocks),
        (SLOTS, 1, 2, newest, bytearray()), (SLOTS, 1, 2, newest, bytearray(65)),
    ):  # fmt: skip
        with pytest.raises(ValueError, match=r"."):
            build.filter_cy.fill_filter(file, slots, first, end, values, room)
    assert not any(newest)
    assert not any(blocks)
    searched = build.lookup_cy.SearchedFile(file, SLOTS)
    for data in (b"", bytes(63)):
        with pytest.raises(ValueError, match="no blocks"):
            searched.set_filter(data, SEED)


@pytest.mark.parametrize("build", BUILDS, ids=label)
@pytest.mark.parametrize("seed", range(10))
def test_a_search_with_filters_finds_what_a_search_without_them_finds(build: Build, seed: int) -> None:
    """Files are skipped and counted; a damaged filter is told, and its file is searched."""
    chance = random.Random(seed)
    lists = [[chance.randrange(40) * 1_009 for _ in range(chance.randrange(1, 30))] for _ in range(6)]
    files = [made_file(build, hashes) for hashes in lists]
    plain = [build.lookup_cy.SearchedFile(file, SLOTS) for file in files]
    filtered = [build.lookup_cy.SearchedFile(file, SLOTS) for file in files]
    room = Guarded(BLOCK_SIZE_BYTES * block_count(30))
    for file, searched, hashes in list(zip(files, filtered, lists, strict=True))[:-1]:
        searched.set_filter(bytes(room.hold(bytes(made_blocks(build, file, len(hashes))))), SEED)
    keys = np.array([number * 1_009 for number in range(45)], np.int32)
    results: list[tuple[list[list[int]], list[int]]] = []
    for searched_files in (plain, filtered):
        tally, found, counts = np.zeros(2, np.int64), np.empty(45 * 40, np.int64), np.zeros(45, np.int32)
        arguments = (searched_files, keys, 0, 0, ALL, ALL, 40, found, counts, tally)
        assert build.lookup_cy.search_many(*arguments) == 45
        offsets = [found[number * 40 : number * 40 + max(count, 0)].tolist() for number, count in enumerate(counts)]
        results.append(([sorted(one) for one in offsets], tally.tolist()))
    assert [one for one, count in zip(results[0][0], counts, strict=True) if count >= 0] == [
        one for one, count in zip(results[1][0], counts, strict=True) if count >= 0
    ]
    assert results[0][1][1] == 0
    assert results[1][1][0] < results[0][1][0]
    assert results[1][1][1] > 0
    assert not any(searched.is_filter_damaged for searched in filtered)
    blocks = made_blocks(build, files[0], len(lists[0]))
    blocks[8:64] = bytes(56)  # a lost part of the first block
    filtered[0].set_filter(blocks, SEED)
    out, looks = array("q", bytes(800)), array("q", [0, 0])
    for key in lists[0]:
        expected = build.lookup_cy.search([plain[0]], 0, 0, key, 0, ALL, ALL, ALL, out, looks)
        assert expected[0] > 0
        assert build.lookup_cy.search([filtered[0]], 0, 0, key, 0, ALL, ALL, ALL, out, looks) == expected
    assert filtered[0].is_filter_damaged
    assert looks[1] == 0
    assert layout.FILTER_BLOCK_SIZE == BLOCK_SIZE_BYTES
