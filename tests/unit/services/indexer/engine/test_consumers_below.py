# SPDX-License-Identifier: Apache-2.0
"""The groups that would miss entries if the log lost all data below an offset, or readers the records of a topic."""

from services.indexer.engine.groups.consumers_below import ConsumerBelow, consumers_below, topic_consumers_below
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


async def test_consumers_below_of_a_topic() -> None:
    """Offsets in other topics are left out. An offset below the first entry that is shown counts as that entry's."""
    log = FakeLog()
    for index in range(40):
        log.append("TU"[index % 2], 0)  # 20 entries each
    indexer = make_indexer(log)
    feed(indexer, log)
    queues = indexer.indexes.queues
    for group, offset in (("first", 0), ("middle", 8), ("last", 20)):
        indexer.groups.commit(group, {("T", 0): offset, ("U", 0): 0})
    begin, cut = (log.records[2 * number].physical_offset for number in (5, 10))
    queues.begin_topics({"T": begin})
    found = await topic_consumers_below(indexer.groups, queues, "T", cut, count_max=9)
    assert found == ([ConsumerBelow("first", "T", 0, 5, 10), ConsumerBelow("middle", "T", 0, 8, 10)], 2)
    (one,), count = await topic_consumers_below(indexer.groups, queues, "T", cut, count_max=1)
    assert (one.group, count) == ("first", 2)
    assert await topic_consumers_below(indexer.groups, queues, "T", begin, count_max=9) == ([], 0)
    assert await topic_consumers_below(indexer.groups, queues, "none", cut, count_max=9) == ([], 0)
