# SPDX-License-Identifier: Apache-2.0
"""FlushLoop: when data is durable, the recorded and reported progress, and the effect of a broken disk."""

import asyncio
import dataclasses
import threading

import pytest

from libs.machine.failpoints import armed
from libs.machine.testing.manual_clock import ManualClock
from libs.machine.testing.memory_fs import MemoryFs, nothing_survives
from libs.segments.errors import SyncFailed
from services.indexer.engine.follow.reput_state import ReputState
from tests.support.fake_log import FakeLog
from tests.support.indexer import SMALL, feed, make_indexer, running
from tests.support.patience import LIMIT_S, eventually


def filled(count: int) -> FakeLog:
    log = FakeLog()
    for index in range(count):
        log.append("T", index % 2, keys="k")
    return log


async def test_a_thorough_round_makes_everything_durable_and_says_so() -> None:
    """After a thorough round the flushed offset is the offset that was indexed before it."""
    log = filled(20)
    indexer = make_indexer(log)
    feed(indexer, log)
    assert indexer.follow.flush.flushed_physical_offset == 0
    await indexer.follow.flush.flush(is_thorough=True)
    report = indexer.follow.flush.report()
    assert report.flushed_physical_offset == report.indexed_physical_offset == log.end_physical_offset
    assert report.queue_flushed_time_ms == log.records[-1].store_time_ms


async def test_names_of_new_queues_are_durable_before_progress_tells_of_them() -> None:
    """A power cut after a thorough round loses no queue that was made since the round before."""
    log, fs = filled(20), MemoryFs()
    indexer = make_indexer(log, fs=fs)
    for batch in log.batches():
        await indexer.indexes.prepare(batch)
        indexer.indexes.apply(batch)
    await indexer.follow.flush.flush(is_thorough=True)
    fs.crash(nothing_survives)
    queues = make_indexer(log, fs=fs).indexes.queues
    assert [queues.end_of("T", queue_id) for queue_id in range(2)] == [
        indexer.indexes.queues.end_of("T", queue_id) for queue_id in range(2)
    ]


async def test_a_usual_round_leaves_small_changes_for_later() -> None:
    """Queues with few dirty pages wait; queues with enough are synced; progress is not written."""
    log = filled(10)
    for _ in range(900):
        log.append("B")
    indexer = make_indexer(log, config=dataclasses.replace(SMALL, queue_file_size_bytes=20 * 1000))
    feed(indexer, log)
    await indexer.follow.flush.flush(is_thorough=False)
    big, small = indexer.indexes.queues.find("B", 0), indexer.indexes.queues.find("T", 0)
    assert big is not None
    assert small is not None
    assert big.dirty_page_count == 0
    assert indexer.follow.flush.flushed_physical_offset == 0
    assert indexer.indexes.queues.begin_sync(0) != []


async def test_rounds_come_by_themselves_and_are_reported() -> None:
    """The loop flushes thoroughly in its interval and reports the indexed offset to the log."""
    log, clock = filled(20), ManualClock()
    async with running(log, clock=clock) as indexer:
        await eventually(lambda: any(r.indexed_physical_offset == log.end_physical_offset for r in log.reports))
        clock.advance(60_001)
        log.append("T", 0)
        await eventually(lambda: indexer.follow.flush.flushed_physical_offset == log.end_physical_offset)
        await eventually(lambda: log.reports[-1].flushed_physical_offset == log.end_physical_offset)
        assert log.reports[-1].epoch == 1


async def test_a_clean_stop_is_reported() -> None:
    """The last report to the log has all data that an orderly stop made durable."""
    log = filled(20)
    async with running(log) as indexer:
        await eventually(lambda: indexer.indexes.reached.indexed_physical_offset == log.end_physical_offset)
    assert log.reports[-1].flushed_physical_offset == log.end_physical_offset
    assert log.reports[-1].queue_flushed_time_ms == log.records[-1].store_time_ms


async def test_finished_index_files_are_synced_soon() -> None:
    """A full index file does not wait for the thorough round."""
    log = filled(100)
    indexer = make_indexer(log)
    feed(indexer, log)
    assert len(indexer.indexes.index.unfinished()) == 4
    await indexer.follow.flush.flush(is_thorough=False)
    assert len(indexer.indexes.index.unfinished()) == 1


async def test_the_index_time_is_that_of_the_full_files() -> None:
    """The index time is the time of the full files.

    RocketMQ fills an unfinished file again from the segment that holds this time: a later time would cost keys.
    """
    log = filled(20)
    indexer = make_indexer(log)
    feed(indexer, log)
    await indexer.follow.flush.flush(is_thorough=True)
    assert indexer.follow.flush.report().index_flushed_time_ms == 0
    for _ in range(80):
        log.append("T", keys="k")
    feed(indexer, log)
    await indexer.follow.flush.flush(is_thorough=True)
    begin_ms = indexer.indexes.index.unfinished()[0].header.begin_time_ms
    earlier = [record.store_time_ms for record in log.records if record.store_time_ms < begin_ms]
    assert indexer.follow.flush.report().index_flushed_time_ms == earlier[-1]


@pytest.mark.parametrize("point", ["segment.before_sync", "index_file.before_sync"])
async def test_a_failed_sync_stops_indexing(point: str) -> None:
    """After a failed sync indexing stops, the process ends, progress stays, and the stop is unclean.

    The content of the disk is unknown then.
    """
    log, fs = filled(20), MemoryFs()
    indexer = make_indexer(log, fs)
    feed(indexer, log)
    with armed(point, "raise"), pytest.raises((SyncFailed, OSError)):
        await indexer.follow.flush.flush(is_thorough=True)
    assert indexer.follow.reput.state is ReputState.STOPPED
    assert indexer.follow.states.last_error
    assert len(log.failures) == 1
    assert indexer.follow.flush.flushed_physical_offset == 0
    with armed(point, "raise"), pytest.raises((SyncFailed, OSError)):
        await indexer.close()
    again = make_indexer(log, fs)
    assert again.indexes.reached.indexed_physical_offset == 0


async def test_a_sync_that_succeeds_after_a_failed_one_proves_nothing() -> None:
    """The stop stays unclean although a second sync succeeds.

    The kernel drops pages that it could not write.
    """
    log, fs = filled(20), MemoryFs()
    indexer = make_indexer(log, fs)
    feed(indexer, log)
    with armed("index_file.before_sync", "raise"), pytest.raises(SyncFailed, match="index_file"):
        await indexer.follow.flush.flush(is_thorough=True)
    with pytest.raises(SyncFailed, match="index_file"):
        await indexer.close()
    assert make_indexer(log, fs).indexes.reached.indexed_physical_offset == 0


async def test_an_end_waits_for_the_sync_under_way() -> None:
    """Queues are not closed while a thread syncs them, even without further data to sync."""
    log, entered, go_on = filled(20), threading.Event(), threading.Event()

    def wait() -> None:
        entered.set()
        assert go_on.wait(LIMIT_S)

    indexer = make_indexer(log, config=dataclasses.replace(SMALL, flush_interval_ms=1, flush_pages_min=0))
    with armed("segment.before_sync", wait):
        indexer.start()
        assert await asyncio.to_thread(entered.wait, LIMIT_S)
        ending = asyncio.create_task(indexer.abandon())
        await asyncio.wait([ending], timeout=0.05)
        assert not ending.done()
        go_on.set()
        await ending
    assert asyncio.all_tasks() == {asyncio.current_task()}


async def test_a_stop_waits_for_the_sync_under_way() -> None:
    """A stop in a round waits for its end, so that progress covers only synced data."""
    log, fs, clock = filled(20), MemoryFs(), ManualClock()
    indexer = make_indexer(log, fs, clock=clock)
    feed(indexer, log)
    clock.advance(60_001)
    entered, go_on = threading.Event(), threading.Event()

    def hold() -> None:
        entered.set()
        assert go_on.wait(LIMIT_S)

    with armed("segment.before_sync", hold):
        indexer.follow.flush.start()
        assert await asyncio.to_thread(entered.wait, LIMIT_S)
        stopping = asyncio.create_task(indexer.close())
        await asyncio.sleep(0.05)
        assert not stopping.done()
        go_on.set()
        await stopping
    fs.crash(nothing_survives)
    again = make_indexer(log, fs)
    assert again.indexes.reached.indexed_physical_offset == log.end_physical_offset
    queue = again.indexes.queues.find("T", 0)
    assert queue is not None
    assert queue.max_queue_offset == 10
