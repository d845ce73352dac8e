# SPDX-License-Identifier: Apache-2.0
"""A pull of some messages reads their units and their records, wherever in the queue they are."""

import pytest

from services.indexer.engine.answer.pull import SCAN_UNIT_COUNT_MIN, PullQuery, PullResult
from services.indexer.engine.answer.tags import TagFilter
from services.indexer.engine.indexer import Indexer
from services.indexer.engine.tables.queue import ConsumeQueue
from services.indexer.engine.tables.unit_scan import Units
from tests.cost.computed_log import ComputedLog
from tests.cost.counting_fs import paths_of
from tests.cost.indexed import IndexedStore, indexed
from tests.cost.python_work import instructions, taken_memory
from tests.cost.touched_pages import touched_pages

RECORD_COUNTS = (2_000, 20_000, 100_000)
UNITS_PER_PAGE = 4096 // 20


async def pull(indexer: Indexer, queue_offset: int, count: int) -> PullResult:
    """Pull messages of the only queue."""
    query = PullQuery("topic-00000", 0, queue_offset, count, 1 << 20, TagFilter(""))
    return await indexer.answers.puller.pull(query, wait_s=0)


def places(record_count: int, count: int) -> list[int]:
    """Queue offsets from the first to the last offset from which a pull can be full."""
    last = record_count - count
    return [0, 1, last // 3, last // 2, last - 1, last]


@pytest.mark.parametrize("count", [1, 32, 1_000])
async def test_a_pull_reads_its_units_and_its_records(count: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """As many records and as many units as messages, in a queue of any length."""
    read_counts: list[int] = []
    read = ConsumeQueue.read

    def counted(queue: ConsumeQueue, queue_offset: int, unit_count: int) -> Units:
        units = read(queue, queue_offset, unit_count)
        read_counts.append(len(units.physical_offsets))
        return units

    monkeypatch.setattr(ConsumeQueue, "read", counted)
    for record_count in RECORD_COUNTS:
        log = ComputedLog(record_count)
        indexer = await indexed(log)
        for place in places(record_count, count):
            log.read_record_count = 0
            read_counts.clear()
            result = await pull(indexer, place, count)
            assert len(result.found.sizes) == count
            assert result.next_queue_offset == place + count
            assert log.read_record_count == count
            assert read_counts == [count]


async def test_a_pull_touches_the_pages_of_its_units() -> None:
    """Units before and behind in the same file are not looked at."""
    log = ComputedLog(100_000)
    store = IndexedStore(log, queue_file_size_bytes=20 * log.record_count)
    indexer = await store.filled()
    (buffer,) = store.buffers("consumequeue/topic-00000/0")
    for place in places(log.record_count, SCAN_UNIT_COUNT_MIN):
        with touched_pages(buffer) as touched:
            await pull(indexer, place, 10)
        assert touched.page_count <= SCAN_UNIT_COUNT_MIN // UNITS_PER_PAGE + 2


async def test_a_pull_does_the_same_work_in_a_queue_of_any_length() -> None:
    """Neither instructions nor memory grow with the queue, its files, or the place in it."""
    works = []
    for record_count in RECORD_COUNTS:
        log = ComputedLog(record_count)
        indexer = await indexed(log)
        for place in (0, record_count - SCAN_UNIT_COUNT_MIN):
            await pull(indexer, place, 10)
            with instructions() as work:
                await pull(indexer, place, 10)
            with taken_memory() as memory:
                await pull(indexer, place, 10)
            works.append((work.instruction_count, memory.taken_bytes))
    assert max(work for work, _ in works) <= 1.2 * min(work for work, _ in works)  # or two files, not a single file
    assert max(taken for _, taken in works) <= 1.2 * min(taken for _, taken in works) + 4_096


async def test_a_pull_maps_the_file_that_it_reads() -> None:
    """After a start the other files of the queue stay closed but for its first and last, which bound it."""
    for record_count in RECORD_COUNTS:
        store = IndexedStore(ComputedLog(record_count))
        await (await store.filled()).close()
        indexer = store.make()
        indexer.open()
        with store.fs.counted() as calls:
            assert len((await pull(indexer, record_count // 2, 10)).found.sizes) == 10
        assert len(set(paths_of(calls, "open_mapped"))) <= 4
