# SPDX-License-Identifier: Apache-2.0
"""Dispatch costs only new records, both for a step of the log's tail and for entering it in the indexes."""

from collections.abc import AsyncGenerator

import pytest

from libs.formats.records import dispatch_columns
from libs.machine.fs import PAGE_SIZE_BYTES
from services.commitlog.engine.follow.dispatch import TailStep
from tests.cost.computed_log import ComputedLog
from tests.cost.indexed import IndexedStore
from tests.cost.python_work import instructions, taken_memory
from tests.cost.stored import (
    BODY,
    CountedMachine,
    Growth,
    begin_segment,
    high_queue_offset,
    many_segments,
    many_topics,
    nothing,
)
from tests.cost.touched_pages import touched_pages
from tests.support.commitlog import SEGMENT_SIZE, append, fill, message

RECORD_COUNT = 10
RECORD_COUNT_MAX = 8_192
LARGE_SEGMENT_BYTES = 4 << 20


async def next_step(steps: AsyncGenerator[TailStep, None]) -> tuple[int, bytes]:
    """Records and bytes of the next step of a tail, as it is sent."""
    step = await anext(steps)
    assert step.columns is not None
    sent = dispatch_columns.encode(step.columns, step.start_physical_offset, step.end_physical_offset)
    return step.columns.count, sent


async def tail_work(grow: Growth) -> tuple[int, int, int]:
    """Instructions, memory and bytes of a step with a few new records, at the end of a log that has grown."""
    machine = CountedMachine()
    async with machine.running() as log:
        await append(log)
        await grow(log)
        await begin_segment(log)
        end = log.marks.visible.value
        steps = log.followers.tail(start_physical_offset=end, record_count_max=RECORD_COUNT_MAX).steps()
        messages = [message(queue_id=number % 4) for number in range(RECORD_COUNT)]
        await append(log, *messages)
        await next_step(steps)
        await append(log, *messages)
        with instructions() as work:
            count, sent = await next_step(steps)
        await append(log, *messages)
        with taken_memory() as memory:
            await next_step(steps)
        await steps.aclose()
    assert count == RECORD_COUNT
    return work.instruction_count, memory.taken_bytes, len(sent)


@pytest.mark.parametrize("grow", [many_topics, many_segments, high_queue_offset])
async def test_a_step_of_the_tail_costs_its_records(grow: Growth) -> None:
    """Topics, segments and the length of a queue change nothing of a step's work, nor of the bytes that are sent."""
    plain, grown = await tail_work(nothing), await tail_work(grow)
    assert grown[0] <= 1.05 * plain[0]
    assert grown[1] <= plain[1] + 4_096
    assert grown[2] <= plain[2] + 4 * len("topic")


async def test_a_step_touches_the_pages_of_its_records() -> None:
    """Bytes before them in the same segment are not looked at, and neither are bytes behind them."""
    async with CountedMachine(segment_size_bytes=LARGE_SEGMENT_BYTES).running() as log:
        while log.marks.visible.value < LARGE_SEGMENT_BYTES // 2:
            await append(log, *[message(BODY)] * 50)
        start = log.marks.visible.value
        steps = log.followers.tail(start_physical_offset=start, record_count_max=RECORD_COUNT_MAX).steps()
        await append(log, *[message(BODY)] * RECORD_COUNT)
        with touched_pages(log.chain.segments[0].buffer) as touched:
            count, _ = await next_step(steps)
        await steps.aclose()
        assert count == RECORD_COUNT
        assert 0 < touched.page_count <= (log.marks.visible.value - start) // PAGE_SIZE_BYTES + 2


async def test_a_tail_opens_the_segment_that_it_reads() -> None:
    """A follower far behind maps segment by segment, each once, and asks nothing else of the disk."""
    machine = CountedMachine()
    async with machine.running() as log:
        await fill(log, 8, BODY)
    async with machine.running() as log:
        start = 2 * SEGMENT_SIZE
        steps = log.followers.tail(start_physical_offset=start, record_count_max=RECORD_COUNT_MAX).steps()
        with machine.fs.counted() as calls:
            await next_step(steps)
        await steps.aclose()
    assert [(call.operation, call.path.name) for call in calls] == [("open_mapped", f"{start:020d}")]


async def entering_work(log: ComputedLog, **config: int) -> tuple[int, int]:
    """Instructions and memory of entering a few records in indexes that hold all that the log has so far."""
    store = IndexedStore(log, **config)
    indexer = await store.filled()
    works = []
    for _ in range(3):
        first = log.record_count
        log.record_count += RECORD_COUNT
        step = log.step(first, log.record_count)
        with store.fs.counted() as calls, instructions() as work:
            indexer.indexes.apply(step)
        assert not calls
        works.append(work.instruction_count)
    log.record_count += RECORD_COUNT
    step = log.step(log.record_count - RECORD_COUNT, log.record_count)
    with taken_memory() as memory:
        indexer.indexes.apply(step)
    assert indexer.indexes.reached.indexed_physical_offset == log.end_physical_offset
    return works[-1], memory.taken_bytes


GROWN_LOGS = {
    "many queues": (ComputedLog(20_000, topic_count=300), {}),
    "long queues": (ComputedLog(100_000, topic_count=10), {}),
    "many index files": (ComputedLog(20_500, topic_count=10), {"index_entry_capacity": 1_001}),
}


@pytest.mark.parametrize("name", GROWN_LOGS)
async def test_entering_a_step_costs_its_records(name: str) -> None:
    """Ten records of ten queues are the same work with hundreds of queues, long queues, and many index files."""
    plain = await entering_work(ComputedLog(1_000, topic_count=10))
    log, config = GROWN_LOGS[name]
    grown = await entering_work(log, **config)
    assert grown[0] <= 1.05 * plain[0]
    assert grown[1] <= plain[1] + 4_096
