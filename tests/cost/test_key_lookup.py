# SPDX-License-Identifier: Apache-2.0
"""A lookup by key costs its chain of entries and the records with the key, in a store of any size.

The walk is the kernel's; here its sources do it, so that each number that it reads from an index file is seen.
"""

from collections import Counter
from types import SimpleNamespace
from typing import Any

import pytest

from libs.formats.indexes.index_file import (
    ENTRY_SIZE_BYTES,
    HEADER_SIZE_BYTES,
    SLOT_SIZE_BYTES,
    file_size_bytes,
)
from services.indexer.engine.answer.query import KeyQuery, Page
from services.indexer.engine.indexer import Indexer
from services.indexer.engine.tables import index
from tests.cost.computed_log import WANTED_KEY, ComputedLog, hash_of
from tests.cost.indexed import SMALL, IndexedStore, indexed
from tests.cost.python_work import instructions
from tests.cost.touched_pages import touched_pages
from tests.unit.libs.kernel.builds import SOURCES

RECORD_COUNTS = (1_000, 10_000, 100_000)
ENTRIES_AT = HEADER_SIZE_BYTES + SLOT_SIZE_BYTES * SMALL.index_slot_count
PAGE_SIZE = 200


class WalkedFile:
    """Counts the reads of a lookup: the parts of index files, by their content. Slots around an empty slot are not."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, store: IndexedStore, *, entries_at: int = ENTRIES_AT) -> None:
        self.entries: Counter[int] = Counter()
        self.slot_read_count = 0
        self.file_count = 0
        self._entries_at = entries_at
        self._watch(monkeypatch, "get_int32")
        self._watch(monkeypatch, "get_int64")
        walk = SOURCES.lookup_cy.search_file

        def counted_walk(*arguments: Any) -> int:
            self.file_count += 1
            return int(walk(*arguments))

        monkeypatch.setattr(SOURCES.lookup_cy, "search_file", counted_walk)
        files = [SOURCES.lookup_cy.SearchedFile(file, store.config.index_slot_count) for file in store.buffers("index")]
        search = SOURCES.lookup_cy.search
        sources = SimpleNamespace(search=lambda _compiled_files, *arguments: search(files, *arguments))
        monkeypatch.setattr(index, "lookup_cy", sources)
        look_around = SOURCES.lookup_cy.is_around_empty

        def uncounted(*arguments: Any) -> bool:
            slot_read_count = self.slot_read_count
            is_empty = bool(look_around(*arguments))
            self.slot_read_count = slot_read_count
            return is_empty

        monkeypatch.setattr(SOURCES.lookup_cy, "is_around_empty", uncounted)

    def _watch(self, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
        read = getattr(SOURCES.lookup_cy, name)

        def counted(file: memoryview, at: int) -> int:
            if at >= self._entries_at:
                self.entries[(at - self._entries_at) // ENTRY_SIZE_BYTES] += 1
            elif at >= HEADER_SIZE_BYTES:
                self.slot_read_count += 1
            return read(file, at)

        monkeypatch.setattr(SOURCES.lookup_cy, name, counted)


def wanted_numbers(record_count: int, match_count: int) -> range:
    """Numbers of so many records, from all over the log."""
    return range(0, record_count, record_count // match_count)


async def look_up(indexer: Indexer, page_size: int = PAGE_SIZE, page_token: str = "") -> Page:
    """All messages with the wanted key, or the next page of them."""
    return await indexer.answers.queries.by_key(
        KeyQuery("topic-00000", WANTED_KEY), page_size=page_size, page_token=page_token
    )


def strangers_in_slot(log: ComputedLog) -> int:
    """Entries of other keys that share the wanted key's slot, and so its chain."""
    slot = hash_of("topic-00000", WANTED_KEY) % SMALL.index_slot_count
    others = (log.key(number) for number in range(log.record_count) if number not in log.wanted)
    return sum(hash_of("topic-00000", key) % SMALL.index_slot_count == slot for key in others)


@pytest.mark.parametrize("match_count", [1, 10, 100])
async def test_a_lookup_reads_its_chain_and_its_records(match_count: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Entries visited and records read are the matches and the entries that share their slot, in any store."""
    for record_count in RECORD_COUNTS:
        log = ComputedLog(record_count, wanted=wanted_numbers(record_count, match_count))
        store = IndexedStore(log)
        indexer = await store.filled()
        chain_length = match_count + strangers_in_slot(log)
        with monkeypatch.context() as patch:
            walked = WalkedFile(patch, store)
            found = (await look_up(indexer)).found
        assert len(found.sizes) == match_count
        assert log.read_record_count == match_count
        assert len(walked.entries) == chain_length
        assert (walked.file_count, walked.slot_read_count) == (1, 1)


async def test_a_lookup_touches_as_many_pages_in_a_store_of_any_size() -> None:
    """With the kernel that is in use: the header, a slot, and a page for each entry of the chain at most."""
    for record_count in RECORD_COUNTS:
        log = ComputedLog(record_count, wanted=wanted_numbers(record_count, 4))
        store = IndexedStore(log)
        indexer = await store.filled()
        (buffer,) = store.buffers("index")
        assert len(buffer) == file_size_bytes(SMALL.index_slot_count, SMALL.index_entry_capacity)
        await look_up(indexer)
        with touched_pages(buffer) as touched:
            assert len((await look_up(indexer)).found.sizes) == 4
        assert 0 < touched.page_count <= 2 + 2 * (4 + strangers_in_slot(log))


async def test_each_further_file_costs_one_slot(monkeypatch: pytest.MonkeyPatch) -> None:
    """A file without the key is looked at in a single place and no entry of it is visited."""
    capacity, slot_count = 501, 1 << 12
    for file_count in (2, 20):
        log = ComputedLog(500 * file_count, wanted=[7])
        store = IndexedStore(log, index_entry_capacity=capacity, index_slot_count=slot_count)
        indexer = await store.filled()
        assert indexer.indexes.index.file_count == file_count
        with monkeypatch.context() as patch:
            walked = WalkedFile(patch, store, entries_at=HEADER_SIZE_BYTES + SLOT_SIZE_BYTES * slot_count)
            assert len((await look_up(indexer)).found.sizes) == 1
        assert log.read_record_count == 1
        assert walked.slot_read_count == walked.file_count == file_count
        assert sum(walked.entries.values()) <= 4 * (1 + file_count)


async def test_a_page_costs_the_same_wherever_it_begins_and_however_many_files_there_are() -> None:
    """The next page costs only its own results: finished files are not looked at again."""
    costs = []
    for file_count in (4, 40):
        log = ComputedLog(500 * file_count, wanted=wanted_numbers(500 * file_count, 2 * file_count))
        indexer = await indexed(log, index_entry_capacity=501, index_slot_count=1 << 12)
        token = (await look_up(indexer, page_size=4)).next_page_token
        with instructions() as work:
            page = await look_up(indexer, page_size=2, page_token=token)
        assert len(page.found.sizes) == 2
        costs.append(work.instruction_count)
    assert costs[1] <= 1.1 * costs[0]
