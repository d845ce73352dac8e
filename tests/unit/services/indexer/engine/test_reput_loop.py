# SPDX-License-Identifier: Apache-2.0
"""ReputLoop: follows the log, drops lost records, stops at an error of its indexes, and outlives disconnections."""

import logging
from collections.abc import Callable

import pytest
from msgspec.structs import replace

from libs.formats.records.dispatch_columns import DispatchBatch
from libs.formats.state.index_progress import Stepped, StepReason
from libs.formats.store_layout import file_name
from libs.machine.testing.memory_fs import MemoryFs
from services.indexer.engine.answer.query import KeyQuery, TimeQuery
from services.indexer.engine.follow.indexes import Reached
from services.indexer.engine.follow.reput_state import ReputState
from services.indexer.engine.statistics import statistics
from services.indexer.errors import Inapplicable
from tests.support.fake_log import FakeLog
from tests.support.indexer import DATA_DIR, feed, files, make_indexer, running
from tests.support.patience import eventually


def filled(count: int, log: FakeLog | None = None) -> FakeLog:
    log = log or FakeLog()
    for index in range(count):
        log.append("T", index % 2, tag="A", keys=f"k{index % 3}")
    return log


async def test_it_catches_up_and_then_follows_the_live_end() -> None:
    """Records before and after the start are indexed, and the state becomes LIVE."""
    log = filled(50)
    async with running(log) as indexer:
        await eventually(lambda: indexer.follow.reput.state is ReputState.LIVE)
        assert indexer.indexes.applied_record_count == 50
        filled(7, log)
        await eventually(lambda: indexer.indexes.reached.indexed_physical_offset == log.end_physical_offset)
        assert indexer.indexes.applied_record_count == 57
        assert indexer.indexes.reached.last_store_time_ms == log.records[-1].store_time_ms
        assert statistics(indexer).lag_bytes == 0


async def test_it_waits_for_a_log_that_is_not_there_and_returns_to_it() -> None:
    """Without the log the state is CONNECTING with its reason; later the loop continues."""
    log = filled(5)
    log.go_down()
    async with running(log) as indexer:
        await eventually(lambda: bool(indexer.follow.states.last_error))
        assert indexer.follow.reput.state is ReputState.CONNECTING
        assert "commitlog" in indexer.follow.states.last_error
        log.is_up = True
        await eventually(lambda: indexer.follow.reput.state is ReputState.LIVE)
        log.go_down()
        await eventually(lambda: indexer.follow.reput.state is ReputState.CONNECTING)
        log.is_up = True
        filled(5, log)
        await eventually(lambda: indexer.indexes.reached.indexed_physical_offset == log.end_physical_offset)
        assert indexer.indexes.applied_record_count == 10


async def test_it_says_when_the_log_was_heard() -> None:
    """The log counts as heard from its first step on, and also when it is away later."""
    log = filled(5)
    log.go_down()
    async with running(log) as indexer:
        await eventually(lambda: bool(indexer.follow.states.last_error))
        assert not indexer.follow.states.heard.is_set()
        assert not indexer.follow.completeness.changed.is_set()
        log.is_up = True
        await indexer.follow.states.heard.wait()
        await indexer.follow.completeness.changed.wait()
        log.go_down()
        await eventually(lambda: indexer.follow.reput.state is ReputState.CONNECTING)
        assert indexer.follow.states.heard.is_set()


async def test_after_an_unclean_stop_it_is_complete_with_the_last_record() -> None:
    """The indexes are complete with the last record of the log, and not with the handshake alone."""
    log, fs = filled(5), MemoryFs()
    make_indexer(log, fs)
    fs.crash()
    indexer = make_indexer(log, fs)
    steps = log.follow(0, 0)
    assert await indexer.follow.reput.apply(await anext(steps))
    assert not indexer.follow.completeness.changed.is_set()
    assert await indexer.follow.reput.apply(await anext(steps))
    assert indexer.follow.completeness.changed.is_set()
    assert indexer.follow.completeness.is_complete
    await steps.aclose()
    await indexer.close()


@pytest.mark.parametrize("record_count_max", [1, 3, 8192])
def test_the_size_of_steps_leaves_no_trace(record_count_max: int) -> None:
    """Small and large steps, with ends of segments between them, build the same files."""
    log, expected = filled(40, FakeLog(segment_size_bytes=1500)), MemoryFs()
    feed(make_indexer(log, expected), log)
    fs = MemoryFs()
    feed(make_indexer(log, fs), log, record_count_max=record_count_max)
    assert files(fs) == files(expected)


def test_a_batch_may_be_entered_again() -> None:
    """Entering all batches twice builds the same files as entering them once."""
    log, fs = filled(40), MemoryFs()
    indexer = make_indexer(log, fs)
    feed(indexer, log)
    once = files(fs)
    indexer.indexes.reached = Reached(epoch=1)
    feed(indexer, log)
    assert files(fs) == once


@pytest.mark.parametrize("bound_index", [0, 1, 17, 39])
async def test_what_the_log_lost_is_taken_back(bound_index: int) -> None:
    """When the log restarts without its tail, the indexes are cut to the common history and equal a clean build."""
    log, fs = filled(40), MemoryFs()
    async with running(log, fs) as indexer:
        await eventually(lambda: indexer.indexes.reached.indexed_physical_offset == log.end_physical_offset)
        log.lose_tail(log.records[bound_index].physical_offset)
        log.append("other", 0, keys="k0")
        await eventually(
            lambda: (
                indexer.indexes.reached.epoch == 2
                and indexer.indexes.reached.indexed_physical_offset == log.end_physical_offset
            )
        )
        clean = make_indexer(log, expected := MemoryFs())
        feed(clean, log)
        for topic, queue_id in (("T", 0), ("T", 1), ("other", 0)):
            mine, theirs = indexer.indexes.queues.find(topic, queue_id), clean.indexes.queues.find(topic, queue_id)
            assert (mine.max_queue_offset if mine else 0) == (theirs.max_queue_offset if theirs else 0)
        for topic in ("T", "other"):
            page = await indexer.answers.queries.by_key(KeyQuery(topic, "k0"), page_size=99, page_token="")
            wanted = [r.physical_offset for r in reversed(log.records) if r.topic == topic and b"k0" in r.properties]
            assert [view.physical_offset for view in page.found.views()] == wanted
    queue_files = {name: data for name, data in files(fs).items() if name.startswith("consumequeue")}
    assert queue_files == {name: data for name, data in files(expected).items() if name.startswith("consumequeue")}


async def test_a_log_that_was_trimmed_meanwhile_leaves_a_recorded_gap(caplog: pytest.LogCaptureFixture) -> None:
    """Records deleted before they were indexed are logged and counted, and indexing continues."""
    log, fs = filled(10), MemoryFs()
    async with running(log, fs) as indexer:
        await eventually(lambda: indexer.indexes.reached.indexed_physical_offset == log.end_physical_offset)
    end = log.end_physical_offset
    filled(20, log)
    log.trim(log.records[25].physical_offset)
    with caplog.at_level(logging.ERROR):
        async with running(log, fs) as indexer:
            await eventually(lambda: indexer.indexes.reached.indexed_physical_offset == log.end_physical_offset)
            assert statistics(indexer).gaps_total == 1
            queue = indexer.indexes.queues.find("T", 0)
            assert queue is not None
            assert (queue.min_queue_offset, queue.max_queue_offset) == (13, 15)
    assert f"the records from {end} to {log.min_physical_offset} were deleted before they were indexed" in caplog.text


async def test_a_new_indexer_on_a_trimmed_log_has_no_gap() -> None:
    """The first start on a trimmed log begins at the log's first record and records no gap."""
    log = filled(20)
    log.trim(log.records[15].physical_offset)
    async with running(log) as indexer:
        await eventually(lambda: indexer.indexes.reached.indexed_physical_offset == log.end_physical_offset)
        assert indexer.follow.reput.gap_count == 0
        queue = indexer.indexes.queues.find("T", 1)
        assert queue is not None
        assert (queue.min_queue_offset, queue.max_queue_offset) == (7, 10)


def _moved(batch: DispatchBatch) -> DispatchBatch:
    return replace(batch, start_physical_offset=batch.start_physical_offset + 1)


def _overlapping(batch: DispatchBatch) -> DispatchBatch:
    return replace(batch, record_sizes=batch.record_sizes + 1)


def _sizeless(batch: DispatchBatch) -> DispatchBatch:
    return replace(batch, record_sizes=batch.record_sizes * 0)


def _backwards(batch: DispatchBatch) -> DispatchBatch:
    return replace(batch, end_physical_offset=-1)


def _beyond(batch: DispatchBatch) -> DispatchBatch:
    return replace(batch, end_physical_offset=batch.end_physical_offset - 1)


@pytest.mark.parametrize("spoil", [_moved, _overlapping, _sizeless, _backwards, _beyond])
def test_a_batch_that_does_not_continue_the_log_is_refused(spoil: Callable[[DispatchBatch], DispatchBatch]) -> None:
    """A batch that does not follow the batch before, or contradicts itself, changes nothing that is visible."""
    log = filled(10)
    indexer = make_indexer(log, MemoryFs())
    feed(indexer, log, end=log.records[4].physical_offset)
    (batch,) = log.batches(indexer.indexes.reached.indexed_physical_offset)
    before = indexer.indexes.reached.indexed_physical_offset
    with pytest.raises(Inapplicable):
        indexer.indexes.apply(spoil(batch))
    assert indexer.indexes.reached.indexed_physical_offset == before
    indexer.indexes.apply(batch)
    assert indexer.indexes.reached.indexed_physical_offset == log.end_physical_offset


async def test_a_record_that_fits_nowhere_is_stepped_over(caplog: pytest.LogCaptureFixture) -> None:
    """A record that fits nowhere is logged with its place and counted; all other records are indexed, its key, too."""
    log, fs = filled(10), MemoryFs()
    log.set_next_queue_offset("T", 0, 99)
    odd = log.append("T", 0, keys="odd")
    log.append("../x", 0)
    log.set_next_queue_offset("T", 0, 5)
    filled(2, log)
    with caplog.at_level(logging.ERROR):
        async with running(log, fs) as indexer:
            await eventually(lambda: indexer.indexes.reached.indexed_physical_offset == log.end_physical_offset)
            page = await indexer.answers.queries.by_key(KeyQuery("T", "odd"), page_size=9, page_token="")
            assert [view.physical_offset for view in page.found.views()] == [odd.physical_offset]
            assert {
                end.queue_id: end.end_queue_offset for i in range(2) if (end := indexer.indexes.queues.end_of("T", i))
            } == {
                0: 6,
                1: 6,
            }
            place = odd.physical_offset
            notes = indexer.indexes.queues.stepped_over.notes()
            assert notes[0] == Stepped("T", 0, StepReason.QUEUE_OFFSET, 1, place, place, 99)
            assert [note.reason for note in notes] == [StepReason.QUEUE_OFFSET, StepReason.NAME]
            assert statistics(indexer).stepped_over_record_count == 2
    assert f"physical offset {place} with queue offset 99" in caplog.text
    for is_rebuilt in (False, True):
        async with running(log, fs) as indexer:
            if is_rebuilt:
                await eventually(lambda: indexer.follow.reput.state is ReputState.LIVE)
                indexer.upkeep.rebuild.begin()
                assert [state.is_done async for state in indexer.upkeep.rebuild.watch()][-1]
            assert indexer.indexes.queues.stepped_over.notes() == notes


async def test_units_that_contradict_the_log_stop_indexing(caplog: pytest.LogCaptureFixture) -> None:
    """The loop stops, reports place and reason in status, metric and log, and queries continue."""
    log = filled(10)
    other = FakeLog()
    other.append("T", 0, body=b"another")
    indexer = make_indexer(log, MemoryFs())
    feed(indexer, other)
    indexer.indexes.reached = Reached(epoch=1)
    with caplog.at_level(logging.CRITICAL):
        indexer.start()
        await eventually(lambda: indexer.follow.reput.state is ReputState.STOPPED)
    assert "T/0 holds another record at queue offset 0" in indexer.follow.states.last_error
    assert statistics(indexer).stopped == 1
    assert "operator" in caplog.text
    assert log.follow_starts == [0]
    assert indexer.follow.states.heard.is_set()
    await indexer.close()


async def test_units_that_a_file_has_lost_come_again() -> None:
    """If a queue's file has lost units, a record behind its end is not stepped over, and all is built anew."""
    log, fs = filled(10), MemoryFs()
    async with running(log, fs) as indexer:
        await eventually(lambda: indexer.indexes.reached.indexed_physical_offset == log.end_physical_offset)
    path = DATA_DIR / "consumequeue" / "T" / "0" / file_name(0)
    fs.open_mapped(path).buffer[60:] = bytes(20 * 16 - 60)
    filled(2, log)
    async with running(log, fs) as indexer:
        await eventually(lambda: indexer.indexes.reached.indexed_physical_offset == log.end_physical_offset)
        queue = indexer.indexes.queues.find("T", 0)
        assert queue is not None
        units = queue.read(0, 100).physical_offsets.tolist()
        assert units == [made.physical_offset for made in log.records if made.queue_id == 0]
        assert indexer.indexes.queues.stepped_over.record_count == 0


async def test_a_malformed_step_does_not_stop_it_for_good() -> None:
    """After an error that is no verdict on a record (here: of the connection) the loop reconnects."""
    log = filled(3)
    log.steps = [b""]
    async with running(log) as indexer:
        await eventually(lambda: bool(indexer.follow.states.last_error))
        assert indexer.follow.reput.state is ReputState.CONNECTING
        log.steps = []
        await eventually(lambda: indexer.indexes.reached.indexed_physical_offset == log.end_physical_offset)


async def test_a_log_that_was_replaced_is_readable_from_its_own_begin() -> None:
    """After the log was replaced, its messages are readable from its first byte on.

    The deletions of the former log do not count.
    """
    log = filled(40)
    async with running(log) as indexer:
        log.trim(log.records[30].physical_offset)
        log.append("T", 0)
        await eventually(lambda: indexer.indexes.queues.min_physical_offset == log.min_physical_offset)
        log.min_physical_offset = 0
        log.lose_tail(0)
        made = log.append("T", 0)
        await eventually(
            lambda: (
                indexer.indexes.reached.epoch == 2
                and indexer.indexes.reached.indexed_physical_offset == log.end_physical_offset
            )
        )
        assert indexer.indexes.queues.min_physical_offset == 0
        queue = indexer.indexes.queues.find("T", 0)
        assert queue is not None
        assert (queue.min_queue_offset, queue.max_queue_offset) == (0, 1)
        page = await indexer.answers.queries.by_time(TimeQuery("T", None), page_size=9, page_token="")
        assert [view.physical_offset for view in page.found.views()] == [made.physical_offset]


async def test_a_stream_that_delivers_ends_the_failures_before_it() -> None:
    """After a stream delivers, the failure count and the last error are cleared, so that later waits are short."""
    log = filled(5)
    log.go_down()
    async with running(log) as indexer:
        loop = indexer.follow.reput.loop
        await eventually(lambda: loop.failures_in_row_count >= 2)
        log.is_up = True
        await eventually(lambda: indexer.follow.reput.state is ReputState.LIVE)
        assert (loop.failures_in_row_count, loop.last_error) == (0, None)
