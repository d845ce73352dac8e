# SPDX-License-Identifier: Apache-2.0
"""Counters of queues that RocketMQ began again: they continue RocketMQ's numbers after every kind of start."""

import pytest

from libs.formats import store_layout
from services.commitlog.engine.follow.queue_offset_check import QueueEnd, QueueVerdict
from tests.support.commitlog import DATA_DIR, Machine, append, message
from tests.support.foreign_records import append_offset, next_of, write_foreign


@pytest.mark.parametrize("keeps_snapshot", [True, False])
async def test_a_topic_that_rocketmq_made_again(*, keeps_snapshot: bool) -> None:
    """400 messages in four queues, deleted, created again, 100 more: the next message of each queue is number 25."""
    machine = Machine()
    async with machine.running() as log:
        for queue_id in range(4):
            await append(log, *(message(queue_id=queue_id) for _ in range(100)))
    write_foreign(machine, [(queue_id, number) for number in range(25) for queue_id in range(4)])
    if not keeps_snapshot:
        machine.fs.remove(DATA_DIR / store_layout.QUEUE_SNAPSHOT)
    async with machine.running() as log:
        assert [await append_offset(log, queue_id) for queue_id in range(4)] == [25] * 4
    async with machine.running() as log:
        assert [next_of(log, queue_id) for queue_id in range(4)] == [26] * 4


async def test_what_the_snapshot_counts_is_not_counted_again() -> None:
    """A start that scans records below the snapshot, with older generations, keeps the counters."""
    machine = Machine()
    async with machine.running() as log:
        await append(log, *(message() for _ in range(9)))
    write_foreign(machine, [(0, 0), (0, 1)])
    for _ in range(3):
        async with machine.running() as log:
            assert log.recovery.scan_start_physical_offset == 0
            assert next_of(log) == 2


async def test_an_indexer_that_is_behind_does_not_bring_the_old_end_back() -> None:
    """An end from an Indexer that is behind does not raise the counter of a queue that began again.

    Its last record exists and is the queue's number 8, but it is of an older generation. A lost record does not either.
    """
    machine = Machine()
    async with machine.running() as log:
        await append(log, *(message() for _ in range(8)))
        last = await append(log, message())
    write_foreign(machine, [(0, 0), (0, 1)])
    async with machine.running() as log:
        ends = [QueueEnd("orders", 0, 9, last.start_physical_offset)]
        assert await log.queue_offsets.compare(ends) == QueueVerdict(0, 0)
        assert await append_offset(log) == 2


async def test_a_topic_that_is_deleted_goes_on_counting_for_good() -> None:
    """Queue offsets of a deleted topic never repeat, even if an Indexer reports less or the snapshot is lost."""
    machine = Machine()
    async with machine.running() as log:
        await append(log, *(message() for _ in range(9)))
        await log.topics.delete("orders")
    async with machine.running() as log:
        assert await log.queue_offsets.compare([QueueEnd("orders", 0, 0, 0)]) == QueueVerdict(0, 0)
    async with machine.running() as log:
        assert await append_offset(log) == 9
    machine.fs.remove(DATA_DIR / store_layout.QUEUE_SNAPSHOT)
    async with machine.running() as log:
        assert next_of(log) == 10
