# SPDX-License-Identifier: Apache-2.0
"""Time search against a naive model: any store times that do not run backwards, any bound, any trim."""

import asyncio
import dataclasses

from hypothesis import given
from hypothesis import strategies as st

from libs.machine.testing.memory_fs import MemoryFs
from services.indexer.engine.answer.query import TimeQuery
from services.indexer.engine.answer.time_search import first_at_or_after, last_at_or_before
from tests.support.fake_log import START_TIME_MS, FakeLog
from tests.support.indexer import SMALL, feed, make_indexer

STEPS = st.lists(st.one_of(st.just(0), st.integers(0, 3), st.integers(0, 5_000)), min_size=1, max_size=120)


@given(
    steps=STEPS, chosen=st.integers(0, 200), nudge=st.integers(-2, 2), trimmed=st.integers(0, 130), told=st.booleans()
)
def test_bounds_equal_a_linear_search(steps: list[int], chosen: int, nudge: int, trimmed: int, told: bool) -> None:
    """LOWER is the first entry at or after the time, UPPER the last at or before it, within the kept entries."""
    log = FakeLog()
    for step_ms in steps:
        log.append(step_ms=step_ms)
    indexer = make_indexer(log, MemoryFs(), dataclasses.replace(SMALL, queue_file_size_bytes=20 * 32))
    feed(indexer, log)
    low = min(trimmed, len(steps))
    log.trim(log.records[low].physical_offset if low < len(steps) else log.end_physical_offset)
    if told:
        indexer.upkeep.trim.trim(log.min_physical_offset)
    queue = indexer.indexes.queues.find("T", 0)
    assert queue is not None
    times = [made.store_time_ms for made in log.records]
    time_ms = times[chosen % len(times)] + nudge if chosen < 190 else START_TIME_MS + 10 * (chosen - 195) * 10_000
    high = len(times)
    lower = next((index for index in range(low, high) if times[index] >= time_ms), high)
    at_or_before = [index for index in range(low, high) if times[index] <= time_ms]

    async def search() -> tuple[int, int, list[int]]:
        first = await first_at_or_after(queue, log, time_ms)
        last = await last_at_or_before(queue, log, time_ms)
        page = await indexer.answers.queries.by_time(TimeQuery("T", 0, max(0, time_ms)), page_size=1000, page_token="")
        return first, last, [view.queue_offset for view in page.found.views()]

    first, last, ranged = asyncio.run(search())
    assert first == lower
    if at_or_before:
        assert last == at_or_before[-1]
    elif told:
        assert last == low
    assert ranged == list(range(lower, high))
