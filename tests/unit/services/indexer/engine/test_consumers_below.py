# SPDX-License-Identifier: Apache-2.0
"""The groups that would miss entries if the log lost all data below an offset."""

from services.indexer.engine.groups.consumers_below import ConsumerBelow, consumers_below
from tests.support.fake_log import FakeLog
from tests.support.indexer import feed, make_indexer


async def test_consumers_below() -> None:
    """The groups whose offset is below the first kept entry, the furthest behind first; nothing changes."""
    log = FakeLog()
    for index in range(60):
        log.append("T", index % 3)  # 20 entries each
    indexer = make_indexer(log)
    feed(indexer, log)
    indexer.groups.commit("late", {("T", 0): 2, ("T", 1): 9, ("T", 2): 11})
    indexer.groups.commit("later", {("T", 0): 0, ("U", 0): 5})
    indexer.groups.commit("far", {("T", 1): 20})
    cut = log.records[31].physical_offset  # entry 10 of queue 1; queue 0 keeps from 11 on, queue 2 from 10
    found, count = await consumers_below(indexer.groups, indexer.indexes.queues, cut, count_max=2)
    assert found == [ConsumerBelow("later", "T", 0, 0, 11), ConsumerBelow("late", "T", 0, 2, 11)]
    assert count == 3
    queue = indexer.indexes.queues.find("T", 0)
    assert queue is not None
    assert queue.min_queue_offset == 0
    assert await consumers_below(indexer.groups, indexer.indexes.queues, 0, count_max=9) == ([], 0)
    _, count = await consumers_below(indexer.groups, indexer.indexes.queues, 1 << 50, count_max=9)
    assert count == 4  # a group at the end misses nothing, even when all is gone
