# SPDX-License-Identifier: Apache-2.0
"""A lookup by time halves: it reads a number of records that grows with the logarithm of the queue, and a few units."""

import math

import pytest

from services.indexer.engine.answer.query import TimeQuery
from services.indexer.engine.answer.time_search import PROBE_COUNT, first_at_or_after, last_at_or_before
from services.indexer.engine.tables.queue import ConsumeQueue
from tests.cost.computed_log import ComputedLog
from tests.cost.indexed import IndexedStore, indexed
from tests.cost.touched_pages import touched_pages

RECORD_COUNTS = (100, 1_000, 10_000, 100_000)
PROBES_PER_ROUND = PROBE_COUNT + 2
ROUND_FACTOR = PROBE_COUNT + 1
"""A round leaves a part of so many parts."""


def record_count_max(unit_count: int) -> int:
    """Records that a search over so many units may read."""
    return PROBES_PER_ROUND * (math.ceil(math.log2(unit_count) / math.log2(ROUND_FACTOR)) + 1)


async def queue_of(log: ComputedLog) -> ConsumeQueue:
    """The only queue of a log, all of which is indexed into a single file."""
    indexer = await indexed(log, queue_file_size_bytes=20 * max(log.record_count, 1_000))
    queue = indexer.indexes.queues.find("topic-00000", 0)
    assert queue is not None
    return queue


@pytest.mark.parametrize("place", [0.0, 0.123, 0.5, 0.987, 1.0])
async def test_a_search_reads_records_by_the_logarithm(place: float) -> None:
    """From a hundred messages to a hundred thousand the number of records grows by a round for each factor of 16."""
    for record_count in RECORD_COUNTS:
        log = ComputedLog(record_count)
        queue = await queue_of(log)
        number = round(place * (record_count - 1))
        assert await first_at_or_after(queue, log, log.store_time_ms(number) - 1) == number
        assert log.read_record_count <= record_count_max(record_count)
        log.read_record_count = 0
        assert await last_at_or_before(queue, log, log.store_time_ms(number) + 1) == number
        assert log.read_record_count <= record_count_max(record_count)


@pytest.mark.parametrize("beyond_ms", [-1_000_000, 1_000_000_000])
async def test_a_time_beyond_the_ends_costs_no_more(beyond_ms: int) -> None:
    """A time before the first message or behind the last one costs no more than a time between them."""
    for record_count in RECORD_COUNTS:
        log = ComputedLog(record_count)
        queue = await queue_of(log)
        expected = 0 if beyond_ms < 0 else record_count
        assert await first_at_or_after(queue, log, log.store_time_ms(0) + beyond_ms) == expected
        assert log.read_record_count <= record_count_max(record_count)


async def test_a_search_touches_a_page_for_each_probe() -> None:
    """The units between the probes are not looked at."""
    log = ComputedLog(100_000)
    store = IndexedStore(log, queue_file_size_bytes=20 * log.record_count)
    queue = (await store.filled()).indexes.queues.find("topic-00000", 0)
    assert queue is not None
    (buffer,) = store.buffers("consumequeue/topic-00000/0")
    assert len(buffer) == 20 * log.record_count
    await first_at_or_after(queue, log, log.store_time_ms(0))
    with touched_pages(buffer) as touched:
        await first_at_or_after(queue, log, log.store_time_ms(77_777))
    assert 0 < touched.page_count <= record_count_max(log.record_count)


async def test_a_query_by_time_reads_its_page_and_the_way_to_it() -> None:
    """Of a range in the middle only the page that is asked for is read, however many messages lie before and behind."""
    for record_count in RECORD_COUNTS:
        log = ComputedLog(record_count)
        indexer = await indexed(log, queue_file_size_bytes=20 * max(record_count, 1_000))
        start_time_ms = log.store_time_ms(record_count // 2)
        page = await indexer.answers.queries.by_time(
            TimeQuery("topic-00000", 0, start_time_ms), page_size=10, page_token=""
        )
        assert len(page.found.sizes) == 10
        assert log.read_record_count <= record_count_max(record_count) + 11
