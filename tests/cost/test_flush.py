# SPDX-License-Identifier: Apache-2.0
"""A flush costs dirty files only: files written to since the last flush, and the small files about them."""

import pytest

from services.commitlog.engine.durable.acknowledge import DURABILITY_LOCAL_DISK
from tests.cost.computed_log import ComputedLog
from tests.cost.counting_fs import bytes_by_operation, count_by_operation, paths_of
from tests.cost.indexed import IndexedStore
from tests.cost.python_work import instructions
from tests.cost.stored import BODY, CountedMachine
from tests.support.commitlog import append, fill

QUEUE_COUNTS = (10, 300)


async def store_of(queue_count: int) -> IndexedStore:
    """A store whose next record is for the first of so many queues."""
    return IndexedStore(ComputedLog(2 * queue_count, topic_count=queue_count))


@pytest.mark.parametrize("queue_count", QUEUE_COUNTS)
async def test_a_flush_syncs_the_queue_that_is_dirty(queue_count: int) -> None:
    """Of hundreds of queues only the queue with a new unit is synced, and the index file that is being written."""
    store = await store_of(queue_count)
    indexer = await store.filled()
    await indexer.follow.flush.flush(is_thorough=True)
    store.log.record_count += 1
    await store.catch_up(indexer)
    with store.fs.counted() as calls:
        await indexer.follow.flush.flush(is_thorough=True)
    synced = [path.relative_to(store.config.data_dir).parts[:2] for path in paths_of(calls, "sync")]
    assert synced[0] == ("consumequeue", "topic-00000")
    assert [parts[0] for parts in synced] == ["consumequeue", "index"]
    ballast = {"is_directory": 1, "exists": 1}
    assert count_by_operation(calls) == {"sync": 2, "write_atomic": 1, **ballast}


@pytest.mark.parametrize("queue_count", QUEUE_COUNTS)
async def test_a_flush_without_news_syncs_no_queue(queue_count: int) -> None:
    """Clean files are not synced, and a progress file that would say the same is not written again."""
    store = await store_of(queue_count)
    indexer = await store.filled()
    await indexer.follow.flush.flush(is_thorough=True)
    for is_thorough in (False, True):
        with store.fs.counted() as calls:
            await indexer.follow.flush.flush(is_thorough=is_thorough)
        assert {path.parent.name for path in paths_of(calls, "sync")} <= {"index"}
        assert not paths_of(calls, "write_atomic")


@pytest.mark.parametrize("is_thorough", [False, True])
async def test_the_work_of_a_flush_follows_what_is_dirty(is_thorough: bool) -> None:
    """With hundreds of queues and fifty index files a round takes no more instructions than with few."""
    works = []
    stores = [
        await store_of(10),
        await store_of(300),
        IndexedStore(ComputedLog(50_000, topic_count=10), index_entry_capacity=1_001, index_slot_count=1_024),
    ]
    for store in stores:
        indexer = await store.filled()
        await indexer.follow.flush.flush(is_thorough=True)
        store.log.record_count += 1
        await store.catch_up(indexer)
        with instructions() as work:
            await indexer.follow.flush.flush(is_thorough=is_thorough)
        works.append(work.instruction_count)
    assert max(works) <= 1.25 * works[0]  # the first unfinished index file is found by halving


@pytest.mark.parametrize("queue_count", QUEUE_COUNTS)
async def test_consumer_offsets_without_news_are_not_written(queue_count: int) -> None:
    """The file is written as a whole, as RocketMQ does, but not when nothing was committed."""
    store = await store_of(queue_count)
    indexer = await store.filled()
    await indexer.groups.save()
    with store.fs.counted() as calls:
        await indexer.groups.save()
    assert not calls


async def test_a_sync_of_the_log_syncs_the_segments_that_are_dirty() -> None:
    """With twenty segments, as with two, a sync covers only the file that was written to."""
    for segment_count in (2, 20):
        machine = CountedMachine()
        async with machine.running() as log:
            await fill(log, segment_count, BODY)
            await log.marks.flushed.soon(log.chain.max_physical_offset)
            await append(log)
            with machine.fs.counted() as calls, instructions() as work:
                await log.marks.flushed.soon(log.chain.max_physical_offset)
        synced = paths_of(calls, "sync")
        assert [path.name for path in synced] == [log.chain.segments[-1].path.name]
        assert work.instruction_count < 2_000


async def test_a_checkpoint_is_one_page() -> None:
    """The checkpoint is as large with twenty segments as with two, and the snapshot grows by a line for each."""
    sizes = []
    for segment_count in (2, 20):
        machine = CountedMachine()
        async with machine.running() as log:
            await fill(log, segment_count, BODY)
            await append(log, durability=DURABILITY_LOCAL_DISK)
            await log.snapshot.loop.stop()
            await log.snapshot.save()
            with machine.fs.counted() as calls:
                await log.checkpoint.save()
                await log.snapshot.save()
        assert count_by_operation(calls) == {"write_atomic": 1}
        sizes.append(bytes_by_operation(calls))
    assert sizes[0] == sizes[1]
