# SPDX-License-Identifier: Apache-2.0
"""A rebuild while the service runs, and the refusal of calls that need the indexes."""

import asyncio

import pytest

from libs.formats.records import dispatch_columns
from libs.formats.records.dispatch_columns import DispatchBatch
from libs.kernel.scan.scan_columns import ScanColumns
from libs.machine.failpoints import armed
from libs.machine.testing.memory_fs import MemoryFs, everything_survives, nothing_survives
from libs.requests.errors import DependencyUnavailable
from services.indexer.engine.follow.completeness import Completeness
from services.indexer.engine.follow.indexes import Reached
from services.indexer.engine.follow.reput_state import ReputState
from services.indexer.engine.indexer import Indexer
from services.indexer.errors import Incomplete, QueueNotFound, RebuildRunning
from tests.support.fake_log import FakeLog
from tests.support.indexer import DATA_DIR, assert_complete, feed, make_indexer, running
from tests.support.patience import eventually
from tests.unit.services.indexer.engine.test_recovery import filled


async def caught_up(indexer: Indexer, log: FakeLog) -> None:
    """Wait until all of the log is indexed and calls are answered."""
    await eventually(
        lambda: (
            indexer.follow.completeness.is_complete
            and indexer.indexes.reached.indexed_physical_offset == log.end_physical_offset
        )
    )


def is_complete(indexer: Indexer) -> bool:
    """Whether calls are answered."""
    return indexer.follow.completeness.is_complete


async def test_everything_is_dropped_and_built_again() -> None:
    """A rebuild removes damaged data, appends continue meanwhile, and its end is reported after the sync."""
    log, fs = filled(120), MemoryFs()
    async with running(log, fs) as indexer:
        await caught_up(indexer, log)
        fs.open_mapped(DATA_DIR / "consumequeue/T/0/00000000000000000000").buffer[0] = 77
        indexer.upkeep.rebuild.begin()
        assert not is_complete(indexer)
        filled(10, log)
        states = [state async for state in indexer.upkeep.rebuild.watch()]
        assert states[-1].is_done
        assert not any(state.is_done for state in states[:-1])
        assert states[-1].rebuilt_physical_offset >= states[-1].target_physical_offset > 0
        assert states[-1].record_count >= 120
        assert indexer.follow.flush.flushed_physical_offset >= states[-1].target_physical_offset
        assert is_complete(indexer)
        await caught_up(indexer, log)
    await assert_complete(fs, log)


async def test_asked_for_in_the_middle_of_a_step(monkeypatch: pytest.MonkeyPatch) -> None:
    """A rebuild that is requested during a step does not end with that step."""
    log, fs = filled(20), MemoryFs()
    async with running(log, fs) as indexer:
        await caught_up(indexer, log)
        prepare = indexer.indexes.queues.prepare

        async def prepare_late(batch: DispatchBatch) -> None:
            monkeypatch.undo()
            await prepare(batch)
            indexer.upkeep.rebuild.begin()

        monkeypatch.setattr(indexer.indexes.queues, "prepare", prepare_late)
        filled(1, log)
        await eventually(lambda: indexer.upkeep.rebuild.is_running)
        states = [state async for state in indexer.upkeep.rebuild.watch()]
        assert states[-1].is_done
        assert states[-1].record_count >= 21
        await caught_up(indexer, log)
    await assert_complete(fs, log)


async def test_one_at_a_time_and_only_with_a_log() -> None:
    """A second rebuild is refused while the first runs; without the log none begins and nothing is dropped."""
    log, fs = filled(20), MemoryFs()
    async with running(log, fs) as indexer:
        await caught_up(indexer, log)
        indexer.upkeep.rebuild.begin()
        with pytest.raises(RebuildRunning):
            indexer.upkeep.rebuild.begin()
        await eventually(lambda: not indexer.upkeep.rebuild.is_running)
        log.go_down()
        await eventually(lambda: indexer.follow.reput.state is ReputState.CONNECTING)
        with pytest.raises(DependencyUnavailable):
            indexer.upkeep.rebuild.begin()
        assert is_complete(indexer)
        assert indexer.indexes.queues.sums.queue_count == 3


async def test_it_repairs_a_loop_that_has_stopped() -> None:
    """A unit that contradicts the log stops indexing for good, until a rebuild."""
    log, fs = filled(30), MemoryFs()
    indexer = make_indexer(log, fs)
    other = FakeLog()
    other.append("T", 0, body=b"another")
    feed(indexer, other)
    indexer.indexes.reached = Reached(epoch=1)
    indexer.start()
    await eventually(lambda: indexer.follow.reput.state is ReputState.STOPPED)
    indexer.upkeep.rebuild.begin()
    async for state in indexer.upkeep.rebuild.watch():
        last = state
    assert last.is_done
    assert last.state is ReputState.LIVE
    await indexer.close()
    await assert_complete(fs, log)


async def test_a_step_that_cannot_be_entered_ends_it() -> None:
    """The watcher gets the error, and calls stay refused, because the indexes are incomplete."""
    log, fs = filled(30), MemoryFs()
    async with running(log, fs) as indexer:
        await caught_up(indexer, log)
        log.steps.append(dispatch_columns.encode(ScanColumns(1, 1), 7, 8))
        indexer.upkeep.rebuild.begin()
        states = [state async for state in indexer.upkeep.rebuild.watch()]
        assert states[-1].state is ReputState.STOPPED
        assert "expected 0 next" in states[-1].error
        assert not states[-1].is_done
        with pytest.raises(Incomplete):
            indexer.follow.completeness.begin()


async def test_whoever_watches_may_go_away() -> None:
    """The rebuild continues to its end when its watcher leaves."""
    log = filled(60)
    async with running(log) as indexer:
        await caught_up(indexer, log)
        indexer.upkeep.rebuild.begin()
        watching = indexer.upkeep.rebuild.watch()
        await anext(watching)
        await watching.aclose()
        await eventually(lambda: not indexer.upkeep.rebuild.is_running)
        await caught_up(indexer, log)


@pytest.mark.parametrize("survives", [nothing_survives, everything_survives], ids=["power cut", "kill"])
@pytest.mark.parametrize(
    "failpoint", ["write_atomic.before_rename", "write_atomic.after_rename", "create.before_rename"]
)
async def test_a_crash_in_the_middle(survives: object, failpoint: str) -> None:
    """After a crash in a rebuild the next start completes the indexes before it answers."""
    log, fs = filled(60), MemoryFs()
    indexer = make_indexer(log, fs)
    indexer.start()
    await caught_up(indexer, log)
    with armed(failpoint, "raise"):
        indexer.upkeep.rebuild.begin()
        await eventually(lambda: failpoint in indexer.follow.states.last_error)
        await indexer.follow.reput.stop()
        fs.crash(survives)  # type: ignore[arg-type]
    again = make_indexer(log, fs)
    assert not is_complete(again)
    fs.crash(everything_survives)
    await assert_complete(fs, log)


async def test_a_stop_in_the_middle_is_no_clean_one() -> None:
    """After a stop in a rebuild the next start knows that the indexes are incomplete."""
    log, fs = filled(60), MemoryFs()
    async with running(log, fs) as indexer:
        await caught_up(indexer, log)
        with armed("create.before_rename", "raise"):
            indexer.upkeep.rebuild.begin()
            await eventually(lambda: "create.before_rename" in indexer.follow.states.last_error)
            await indexer.follow.reput.stop()
    indexer = make_indexer(log, fs)
    assert not is_complete(indexer)
    fs.crash(everything_survives)
    await assert_complete(fs, log)


async def test_after_an_unclean_stop_calls_wait_until_all_is_there_again() -> None:
    """After an unclean stop calls are refused up to the log's end at the handshake.

    Until then queues may end earlier than readers have seen.
    """
    log, fs = filled(60), MemoryFs()
    feed(make_indexer(log, fs), log)
    fs.crash(nothing_survives)
    log.is_up = False
    indexer = make_indexer(log, fs)
    indexer.start()
    await eventually(lambda: indexer.follow.states.last_error != "")
    with pytest.raises(Incomplete):
        indexer.follow.completeness.begin()
    log.is_up = True
    await caught_up(indexer, log)
    await indexer.close()
    assert is_complete(make_indexer(log, fs))


async def test_a_lost_tail_ends_the_calls_at_work() -> None:
    """A call that began before the log lost its tail is refused; the next call is answered again."""
    log, fs = filled(60), MemoryFs()
    async with running(log, fs) as indexer:
        await caught_up(indexer, log)
        begun = indexer.follow.completeness.begin()
        log.lose_tail(log.records[30].physical_offset)
        await eventually(lambda: indexer.indexes.reached.epoch == 2)
        with pytest.raises(Incomplete):
            indexer.follow.completeness.verify(begun)
        await caught_up(indexer, log)
        indexer.follow.completeness.begin()


def test_an_error_in_what_was_lost_is_no_answer_either() -> None:
    """A queue that is missing in incomplete indexes raises Incomplete, and not QueueNotFound."""
    completeness = Completeness()

    def lose_and_miss() -> None:
        with completeness.answering():
            completeness.lose(100)
            raise QueueNotFound("T", 0)

    with pytest.raises(Incomplete):
        lose_and_miss()
    completeness.reach(99, is_end=False)
    with pytest.raises(Incomplete, match="99 of 100"):
        completeness.begin()
    completeness.reach(100, is_end=False)

    def miss() -> None:
        with completeness.answering():
            raise QueueNotFound("T", 0)

    with pytest.raises(QueueNotFound):
        miss()


async def test_a_target_that_the_log_says_later() -> None:
    """A loss before the first handshake ends at the log's end of that handshake, not at a later end."""
    completeness = Completeness()
    completeness.lose()
    with pytest.raises(Incomplete, match="unknown"):
        completeness.begin()
    completeness.hear(50)
    completeness.hear(80)
    completeness.reach(49, is_end=False)
    assert not completeness.is_complete
    waiting = asyncio.create_task(completeness.changed.wait())
    completeness.reach(50, is_end=False)
    await waiting
    assert completeness.is_complete
