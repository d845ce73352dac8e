# SPDX-License-Identifier: Apache-2.0
"""Queues that another program began again while the log has their old records: the visible messages, after any stop."""

from pathlib import Path

import pytest

from libs.formats.records.message_id import encode_offset_id
from libs.machine.failpoints import FailpointRaised, armed
from libs.machine.testing.memory_fs import MemoryFs, everything_survives, nothing_survives
from services.indexer.engine.answer.query import KeyQuery
from services.indexer.engine.follow.reput_state import ReputState
from services.indexer.engine.indexer import Indexer
from tests.support.fake_log import FakeLog
from tests.support.indexer import feed, files, make_indexer, running
from tests.support.patience import eventually
from tests.support.queue_views import Survives, followed, killed, views, wanted

QUEUE_COUNT = 4


def begun_again(*, old: int = 100, new: int = 25) -> FakeLog:
    """A topic of four queues that was deleted and made again, beside another topic."""
    log = FakeLog()
    for count in (old, new):
        for queue_id in range(QUEUE_COUNT):
            log.set_next_queue_offset("re", queue_id, 0)
        for _ in range(count):
            for queue_id in range(QUEUE_COUNT):
                log.append("re", queue_id, keys="all")
            log.append("beside", 0)
    return log


async def compared(indexer: Indexer, log: FakeLog) -> None:
    """Wait until the ends were compared in the background, and all was built anew if they differ from the stop's."""
    await eventually(lambda: indexer.indexes.queues.sums.left is None and views(indexer) == wanted(log))
    await followed(indexer, log)


async def test_the_new_generation_is_what_is_shown() -> None:
    """The old units are gone, the other topic is whole, and the old records are found by key."""
    log, fs = begun_again(), MemoryFs()
    async with running(log, fs) as indexer:
        await followed(indexer, log)
        assert indexer.follow.reput.state is ReputState.LIVE
        assert views(indexer) == wanted(log)
        assert [views(indexer)["re", queue_id][:2] for queue_id in range(QUEUE_COUNT)] == [(0, 25)] * QUEUE_COUNT
        assert views(indexer)["beside", 0][1] == 125
        page = await indexer.answers.queries.by_key(KeyQuery("re", "all"), page_size=1_000, page_token="")
        assert len(page.found.sizes) == 125 * QUEUE_COUNT
        old = log.records[0]
        found = await indexer.answers.queries.by_offset_id(encode_offset_id(old.store_host, old.physical_offset))
        assert [view.physical_offset for view in found.views()] == [old.physical_offset]
        assert indexer.indexes.queues.stepped_over.record_count == 0
        log.append("re", 0)
        await followed(indexer, log)
        assert views(indexer)["re", 0][1] == 26
        indexer.upkeep.rebuild.begin()
        assert [state.is_done async for state in indexer.upkeep.rebuild.watch()][-1]
        assert views(indexer) == wanted(log)


async def test_files_are_those_of_a_queue_that_never_was_another() -> None:
    """The files are the same with log steps of any size, with or without an older queue."""
    log = begun_again(old=30, new=10)
    expected = None
    for record_count_max in (1, 7, 8_192):
        fs = MemoryFs()
        indexer = make_indexer(log, fs)
        for batch in log.batches(record_count_max=record_count_max):
            await indexer.follow.reput.apply(batch)
        assert views(indexer) == wanted(log)
        made = {name: data for name, data in files(fs).items() if name.startswith("consumequeue")}
        expected = expected or made
        assert made == expected


async def test_a_clean_stop_and_its_sums() -> None:
    """A later start finds the sums of the progress file, and needs no rebuild."""
    log, fs = begun_again(), MemoryFs()
    async with running(log, fs) as indexer:
        await followed(indexer, log)
    log.follow_starts.clear()
    for _ in range(2):
        indexer = make_indexer(log, fs)
        assert indexer.indexes.queues.sums.end == sum(high for _, high, _ in wanted(log).values())
        indexer.start()
        await followed(indexer, log)
        await killed(indexer, fs, everything_survives)
    assert log.follow_starts[0] == log.end_physical_offset
    assert 0 not in log.follow_starts


@pytest.mark.parametrize("survives", [nothing_survives, everything_survives], ids=["power cut", "kill"])
@pytest.mark.parametrize("point", ["generation.before_remove", "generation.after_remove", "queue.before_append"])
async def test_a_crash_at_any_point_costs_no_rebuild(point: str, survives: Survives) -> None:
    """The start continues at the synced end, replays the record, and has the same result."""
    log, fs = begun_again(), MemoryFs()
    begin = next(made for made in log.records[QUEUE_COUNT + 1 :] if made.queue_offset == 0 and made.topic == "re")
    indexer = make_indexer(log, fs)
    for batch in log.batches(end=begin.physical_offset):
        await indexer.follow.reput.apply(batch)
    await indexer.follow.flush.flush(is_thorough=True)
    (batch,) = log.batches(begin.physical_offset)
    with armed(point, "raise"), pytest.raises(FailpointRaised):
        await indexer.follow.reput.apply(batch)
    fs.crash(survives)
    log.follow_starts.clear()
    async with running(log, fs) as indexer:
        await followed(indexer, log)
        assert views(indexer) == wanted(log)
    assert min(log.follow_starts) > 0


@pytest.mark.parametrize("is_killed", [True, False])
async def test_a_begin_that_the_log_loses_never_was(*, is_killed: bool) -> None:
    """If the log loses the record that began the queue again, the older generation is restored."""
    log, fs = begun_again(), MemoryFs()
    begin = next(made for made in log.records[QUEUE_COUNT + 1 :] if made.queue_offset == 0 and made.topic == "re")
    async with running(log, fs) as indexer:
        await followed(indexer, log)
        if not is_killed:
            log.lose_tail(begin.physical_offset)
            await eventually(lambda: indexer.indexes.reached.epoch == 2)
            await followed(indexer, log)
            assert views(indexer) == wanted(log)
            assert indexer.follow.completeness.is_complete
    if is_killed:
        indexer = make_indexer(log, fs)
        indexer.start()
        await followed(indexer, log)
        await killed(indexer, fs, nothing_survives)
        log.lose_tail(begin.physical_offset)
    async with running(log, fs) as indexer:
        await eventually(lambda: indexer.indexes.reached.epoch == 2)
        await followed(indexer, log)
        assert views(indexer) == wanted(log)
        assert views(indexer)["re", 0][1] == 100


async def test_another_program_began_it_again_between_two_starts() -> None:
    """Another program removed the queue's files and made others, behind the indexed end.

    Sums and units are right afterwards.
    """
    log, fs = FakeLog(), MemoryFs()
    for _ in range(60):
        log.append("re", 0)
        log.append("beside", 0)
    async with running(log, fs) as indexer:
        await followed(indexer, log)
    log.set_next_queue_offset("re", 0, 0)
    for _ in range(60):
        log.append("re", 0)
    other = MemoryFs()
    feed(make_indexer(log, other), log)
    directory = Path("/data/consumequeue/re/0")
    for name in fs.list(directory):
        fs.remove(directory / name)
    for name in other.list(directory):
        fs.write_atomic(directory / name, other.read(directory / name))
    for stop in ("clean", "kill", "clean"):
        indexer = make_indexer(log, fs)
        indexer.start()
        await compared(indexer, log)
        assert views(indexer) == wanted(log)
        assert indexer.indexes.queues.sums.end in (-1, 120)
        if stop == "clean":
            await indexer.close()
        else:
            await killed(indexer, fs, everything_survives)
    assert indexer.indexes.queues.sums.end == 120


@pytest.mark.parametrize("survives", [nothing_survives, everything_survives], ids=["power cut", "kill"])
async def test_a_topic_whose_queues_an_operator_removed_goes_on(survives: Survives) -> None:
    """Removed queues continue at their ends, also after a crash.

    Each start reports the ends to the log.
    """
    log, fs = begun_again(), MemoryFs()
    indexer = make_indexer(log, fs)
    indexer.start()
    await followed(indexer, log)
    end = views(indexer)["re", 0][1]
    log.deleted_topics.add("re")
    removed = await indexer.upkeep.removal.remove_unused(dry_run=False)
    assert len(removed.ends) == QUEUE_COUNT
    log.deleted_topics.clear()
    assert [log.append("re", 0).queue_offset for _ in range(3)] == [end, end + 1, end + 2]
    await followed(indexer, log)
    assert views(indexer)["re", 0][:2] == (end, end + 3)
    await killed(indexer, fs, survives)
    async with running(log, fs) as indexer:
        await followed(indexer, log)
        assert views(indexer)["re", 0][1] == end + 3
        assert views(indexer)["re", 0][2][-3:] == wanted(log)["re", 0][2][-3:]
        await eventually(lambda: len(log.queue_checks) > 1)
        indexer.upkeep.rebuild.begin()
        assert [state.is_done async for state in indexer.upkeep.rebuild.watch()][-1]
        assert views(indexer) == wanted(log)
