# SPDX-License-Identifier: Apache-2.0
"""GetDelayLevels tells how far each level is, why a level stands still, and why a process has no levels."""

import pytest
from google.protobuf.duration import from_milliseconds
from reput.delivery.v1 import delay_service_pb2 as pb

from libs.formats.records.delay_level import DELAY_LEVELS_TEXT
from libs.machine.testing.manual_clock import ManualClock
from libs.requests.errors import DependencyUnavailable
from libs.runtime.version import VERSION
from services.delivery.engine.delays import level as level_module
from services.delivery.engine.own.journal_owner import JournalOwner
from services.delivery.errors import NotOwner
from services.delivery.rpc.delay_servicer import DelayServicer
from tests.support.memory_delivery import MemoryStore, delivering, engine_of
from tests.support.patience import eventually

SECOND_MS, HOUR_MS = 1_000, 3_600_000


async def ask(owner: JournalOwner) -> list[pb.DelayLevel]:
    """Call GetDelayLevels."""
    return list((await DelayServicer(owner).GetDelayLevels(pb.GetDelayLevelsRequest(), None)).levels)


@pytest.fixture(autouse=True)
def _hurried(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(level_module, "PAUSE_S_MAX", 0.01)
    monkeypatch.setattr(level_module, "BACKOFF_MS_MAX", 100)


async def test_the_version_is_told() -> None:
    """The answer has the version of the service."""
    async with delivering(MemoryStore(), ManualClock()) as owner:
        answer = await DelayServicer(owner).GetDelayLevels(pb.GetDelayLevelsRequest(), None)
        assert answer.version == VERSION


async def test_levels_that_deliver() -> None:
    """Each level has its delay and the number of its messages. A call of a new process waits for the journal."""
    store, clock = MemoryStore(), ManualClock()
    for text in "12":
        await store.levels.send(17, text, clock.now_ms())
    async with delivering(store, clock) as owner:
        levels = await ask(owner)
        assert [level.level for level in levels] == list(range(1, 1 + len(DELAY_LEVELS_TEXT.split())))
        assert (levels[0].delay, levels[16].delay) == (from_milliseconds(SECOND_MS), from_milliseconds(HOUR_MS))
        engine = await engine_of(owner)
        await eventually(lambda: engine.delay_levels.levels[16].waiting_count == 2)
        assert [level.waiting_count for level in await ask(owner)] == [0] * 16 + [2, 0]
        clock.advance(HOUR_MS)
        await eventually(lambda: engine.delay_levels.levels[16].waiting_count == 0)
        assert len(store.levels.delivered) == 2
        assert not [one for one in await ask(owner) if one.waiting_count or one.last_error or one.lateness.seconds]


async def test_a_level_that_stands_still() -> None:
    """It has the log's reason, and the time since its next message was due. Other levels have no reason."""
    store, clock = MemoryStore(), ManualClock()
    await store.levels.send(1, "!!refused", clock.now_ms())
    async with delivering(store, clock) as owner:
        engine = await engine_of(owner)
        clock.advance(SECOND_MS + 500)
        await eventually(lambda: engine.delay_levels.levels[0].is_blocked)
        first, *others = await ask(owner)
        assert (first.waiting_count, first.lateness) == (1, from_milliseconds(500))
        assert "QUEUE_OUT_OF_RANGE: !!refused" in first.last_error
        assert not [level for level in others if level.last_error]


async def test_levels_that_wait_for_the_index(monkeypatch: pytest.MonkeyPatch) -> None:
    """While the Indexer does not answer its reason is that of the levels, and afterwards it is gone."""
    store, clock = MemoryStore(), ManualClock()
    async with delivering(store, clock) as owner:
        engine = await engine_of(owner)

        async def fails(*_: object, **__: object) -> None:
            raise DependencyUnavailable("indexer", "connection refused")

        with monkeypatch.context() as away:
            away.setattr(store.levels, "delayed", fails)
            await store.tell()
            await eventually(lambda: all(level.is_blocked for level in engine.delay_levels.levels))
            assert {level.last_error for level in await ask(owner)} == {
                str(DependencyUnavailable("indexer", "connection refused"))
            }
        await store.levels.send(1, "1", clock.now_ms())
        clock.advance(SECOND_MS)
        await eventually(lambda: len(store.levels.delivered) == 1)
        await store.tell()
        await eventually(lambda: not engine.delay_levels.levels[0].is_blocked)
        assert (await ask(owner))[0].last_error == ""


async def test_a_process_without_levels() -> None:
    """A process whose log follows refuses with the reason, as for all calls, so that a client asks the leader's."""
    store = MemoryStore()
    store.is_following = True
    async with delivering(store, ManualClock()) as owner:
        with pytest.raises(NotOwner, match="the log follows another one, whose own service delivers"):
            await ask(owner)


async def test_a_journal_that_can_not_be_read() -> None:
    """The reason is the journal's, and no message is delivered meanwhile."""
    store, clock = MemoryStore(), ManualClock()
    await store.write(store.next, b"not JSON", (), is_safe=True)
    await store.levels.send(1, "1", clock.now_ms() - SECOND_MS)
    async with delivering(store, clock) as owner:
        with pytest.raises(NotOwner, match="the journal's record at queue offset 0 can't be read"):
            await ask(owner)
    assert store.levels.delivered == []
