# SPDX-License-Identifier: Apache-2.0
"""Messages with a delay level reach their topics when due, in order, and once, also after faults."""

import asyncio
import contextlib

import pytest

from libs.formats.records.delay_level import SCHEDULE_TOPIC
from libs.formats.state.system_topics import LEVELS_GROUP
from libs.machine.failpoints import armed
from libs.machine.testing.manual_clock import ManualClock
from services.delivery.engine.delays import level as level_module
from services.delivery.engine.own.counters import Counters
from services.delivery.engine.own.group_engine import GroupEngine
from tests.support.memory_delivery import LOST, MemoryStore, delivering, engine_of
from tests.support.patience import eventually

LEVEL_1_MS, LEVEL_2_MS = 1_000, 5_000
LONG_MS = 1 << 40


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def store() -> MemoryStore:
    return MemoryStore(queue_count=8)


@pytest.fixture(autouse=True)
def _hurried(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tests move the clock by hand, so the levels look at it often."""
    monkeypatch.setattr(level_module, "PAUSE_S_MAX", 0.01)
    monkeypatch.setattr(level_module, "BACKOFF_MS_MAX", 150)
    monkeypatch.setattr(level_module, "BEHIND_S", 0.01)


async def settle() -> None:
    """Give the levels time for some steps, so that a forbidden step could have happened."""
    await asyncio.sleep(0.05)


async def test_not_before_it_is_due(store: MemoryStore, clock: ManualClock) -> None:
    """A message waits for its whole delay, and messages behind it in the queue wait for it."""
    await store.levels.send(2, "1", clock.now_ms(), topic="Real", queue_id=5)
    async with delivering(store, clock) as owner:
        await engine_of(owner)
        clock.advance(LEVEL_2_MS - 1)
        await settle()
        assert store.levels.texts() == []
        await store.levels.send(2, "2", clock.now_ms())
        clock.advance(1)
        await eventually(lambda: store.levels.texts() == ["1"])
        await settle()
        assert store.levels.texts() == ["1"]
        clock.advance(LEVEL_2_MS)
        await eventually(lambda: store.levels.texts() == ["1", "2"])
        counters = Counters(owner).delay_levels()
        assert (counters.delivered_total, counters.lateness_ms, counters.levels_blocked) == (2, 0, 0)
    assert store.levels.delivered[0] == ("Real", 5, "1")


async def test_messages_that_come_later_are_counted(store: MemoryStore, clock: ManualClock) -> None:
    """The number of messages that wait includes messages that came while the first message was not due."""
    await store.levels.send(2, "1", clock.now_ms())
    async with delivering(store, clock) as owner:
        level = (await engine_of(owner)).delay_levels.levels[1]
        await eventually(lambda: level.waiting_count == 1)
        for text in "234":
            await store.levels.send(2, text, clock.now_ms())
        await eventually(lambda: level.waiting_count == 4)
        clock.advance(LEVEL_2_MS)
        await eventually(lambda: store.levels.texts() == ["1", "2", "3", "4"])
        assert (level.waiting_count, Counters(owner).delay_levels().messages_waiting) == (0, 0)


async def test_order_within_a_level(store: MemoryStore, clock: ManualClock) -> None:
    """Messages of several levels are delivered once each, in batches, every level in its order."""
    for number in range(1_500):
        await store.levels.send(1 + number % 3, str(number), clock.now_ms())
    clock.advance(LONG_MS)
    async with delivering(store, clock) as owner:
        await eventually(lambda: len(store.levels.texts()) == 1_500)
        await eventually(lambda: Counters(owner).delay_levels().delivered_total == 1_500)
        assert Counters(owner).delay_levels().messages_waiting == 0
    for level in range(3):
        mine = [int(text) for text in store.levels.texts() if int(text) % 3 == level]
        assert mine == list(range(level, 1_500, 3))
    assert len(store.journal_records) < 60


async def test_a_restart_goes_on(store: MemoryStore, clock: ManualClock) -> None:
    """After an orderly stop no message is delivered twice, and the Indexer has the offsets for RocketMQ."""
    await store.levels.send(1, "1", clock.now_ms())
    await store.levels.send(18, "2", clock.now_ms())
    clock.advance(LONG_MS)
    async with delivering(store, clock):
        await eventually(lambda: len(store.levels.texts()) == 2)
    assert store.offsets[LEVELS_GROUP] == {(SCHEDULE_TOPIC, 0): 1, (SCHEDULE_TOPIC, 17): 1}
    await store.levels.send(1, "3", clock.now_ms())
    clock.advance(LONG_MS)
    async with delivering(store, clock):
        await eventually(lambda: len(store.levels.texts()) == 3)
        await settle()
    assert sorted(store.levels.texts()) == ["1", "2", "3"]


async def test_offsets_of_another_program_count(store: MemoryStore, clock: ManualClock) -> None:
    """A new journal begins at the stored offsets; after an orderly stop it continues where RocketMQ has moved to."""
    for number in range(6):
        await store.levels.send(1, str(number), clock.now_ms())
    store.offsets[LEVELS_GROUP][SCHEDULE_TOPIC, 0] = 2
    store.levels.indexed_count = 4
    clock.advance(LONG_MS)
    async with delivering(store, clock):
        await eventually(lambda: store.levels.texts() == ["2", "3"])
    store.levels.indexed_count = None
    store.offsets[LEVELS_GROUP][SCHEDULE_TOPIC, 0] = 5
    async with delivering(store, clock) as owner:
        await engine_of(owner)
        await eventually(lambda: store.levels.texts() == ["2", "3", "5"])


async def test_offsets_without_an_orderly_stop_do_not_count(store: MemoryStore, clock: ManualClock) -> None:
    """After a crash the Indexer's offsets may be old: the journal counts."""
    for number in range(3):
        await store.levels.send(1, str(number), clock.now_ms())
    clock.advance(LONG_MS)
    with contextlib.suppress(*LOST):
        async with delivering(store, clock):
            await eventually(lambda: len(store.levels.texts()) == 3)
            store.next += 1  # another process writes the journal
    store.offsets[LEVELS_GROUP][SCHEDULE_TOPIC, 0] = 1
    async with delivering(store, clock) as owner:
        await engine_of(owner)
        await settle()
    assert store.levels.texts() == ["0", "1", "2"]


async def test_a_refused_message_stays_the_next(store: MemoryStore, clock: ManualClock) -> None:
    """Messages before it are delivered, its level stands still with a reason, and other levels go on."""
    for text in ("1", "2", "!!3", "4"):
        await store.levels.send(1, text, clock.now_ms())
    await store.levels.send(2, "other", clock.now_ms())
    clock.advance(LONG_MS)
    async with delivering(store, clock) as owner:
        await eventually(lambda: sorted(store.levels.texts()) == ["1", "2", "other"])
        await eventually(lambda: Counters(owner).delay_levels().levels_blocked == 1)
        level = (await engine_of(owner)).delay_levels.levels[0]
        assert "QUEUE_OUT_OF_RANGE" in str(level.loop.last_error)
        assert (level.waiting_count, Counters(owner).delay_levels().lateness_ms > 0) == (2, True)


async def test_a_message_whose_queue_is_gone(store: MemoryStore, clock: ManualClock) -> None:
    """The log chooses a queue for it, in its place in the order."""
    for text in ("1", "!2", "3"):
        await store.levels.send(1, text, clock.now_ms(), queue_id=7)
    clock.advance(LONG_MS)
    async with delivering(store, clock):
        await eventually(lambda: len(store.levels.texts()) == 3)
    assert store.levels.delivered == [("t", 7, "1"), ("t", None, "!2"), ("t", 7, "3")]


async def test_a_record_without_a_topic_stands_in_the_way(store: MemoryStore, clock: ManualClock) -> None:
    """Messages before it are delivered. It is never dropped in silence."""
    await store.levels.send(1, "1", clock.now_ms())
    await store.levels.send(1, "2", clock.now_ms(), topic="")
    await store.levels.send(1, "3", clock.now_ms())
    clock.advance(LONG_MS)
    async with delivering(store, clock) as owner:
        await eventually(lambda: store.levels.texts() == ["1"])
        level = (await engine_of(owner)).delay_levels.levels[0]
        await eventually(lambda: "does not name the topic" in str(level.loop.last_error))


async def test_messages_that_are_gone_are_counted(
    store: MemoryStore, clock: ManualClock, caplog: pytest.LogCaptureFixture
) -> None:
    """The level continues at the first message that the log still has."""
    for number in range(4):
        await store.levels.send(1, str(number), clock.now_ms())
    store.levels.min_queue_offsets[0] = 3
    clock.advance(LONG_MS)
    async with delivering(store, clock) as owner:
        await eventually(lambda: store.levels.texts() == ["3"])
        assert Counters(owner).delay_levels().lost_total == 3
    assert "3 messages are gone from the log" in caplog.text


async def test_an_index_that_is_behind(store: MemoryStore, clock: ManualClock) -> None:
    """While the index is built again, the level waits with a reason, and delivers nothing twice."""
    for number in range(3):
        await store.levels.send(1, str(number), clock.now_ms())
    clock.advance(LONG_MS)
    async with delivering(store, clock):
        await eventually(lambda: len(store.levels.texts()) == 3)
    store.levels.indexed_count = 1
    await store.levels.send(1, "3", clock.now_ms())
    clock.advance(LONG_MS)
    async with delivering(store, clock) as owner:
        level = (await engine_of(owner)).delay_levels.levels[0]
        await eventually(lambda: "ends at 1, before its position 3" in str(level.loop.last_error))
        store.levels.indexed_count = None
        await eventually(lambda: store.levels.texts() == ["0", "1", "2", "3"])


async def test_a_copy_of_the_journal_has_the_positions(store: MemoryStore, clock: ManualClock) -> None:
    """The position outlives the records that are older than the last copy."""
    await store.levels.send(1, "1", clock.now_ms())
    clock.advance(LONG_MS)
    store.segment_size_bytes = 100
    async with delivering(store, clock) as owner:
        await eventually(lambda: store.levels.texts() == ["1"])
        engine = await engine_of(owner)
        journal = store.offsets["rmq_sys_reput_delivery"]
        before = dict(journal)
        await eventually(lambda: bool(engine.groups.levels) and journal != before)
    store.min_journal_offset = store.offsets["rmq_sys_reput_delivery"]["rmq_sys_reput_delivery", 0]
    store.offsets[LEVELS_GROUP].clear()
    async with delivering(store, clock) as owner:
        assert (await engine_of(owner)).groups.levels == {0: 1}
        await settle()
    assert store.levels.texts() == ["1"]


async def test_a_copy_while_a_message_is_delivered(store: MemoryStore, clock: ManualClock) -> None:
    """A position that a copy of the journal has from before a delivery does not count after the delivery."""
    await store.levels.send(1, "1", clock.now_ms())
    clock.advance(LONG_MS)
    store.segment_size_bytes = 100
    async with delivering(store, clock):
        await eventually(lambda: store.levels.texts() == ["1"] and bool(store.offsets["rmq_sys_reput_delivery"]))
        begin, delays = ((asyncio.Event(), asyncio.Event()) for _ in range(2))
        store.held = begin
        await begin[0].wait()
        store.held = delays
        begin[1].set()
        await delays[0].wait()  # the record before the positions of the levels
        await store.levels.send(1, "2", clock.now_ms())
        clock.advance(LONG_MS)
        await settle()
        delays[1].set()
        await eventually(lambda: store.levels.texts() == ["1", "2"])
        await settle()
        store.next += 1  # another process writes the journal
        store.offsets[LEVELS_GROUP].clear()
    async with delivering(store, clock) as owner:
        await engine_of(owner)
        await settle()
    assert store.levels.texts() == ["1", "2"]


async def test_a_stop_during_a_write(store: MemoryStore, clock: ManualClock) -> None:
    """The batch that is being written ends first, so the position is that of the log."""
    await store.levels.send(1, "1", clock.now_ms())
    clock.advance(LONG_MS)
    with armed("delay.before_append", "raise"):
        async with delivering(store, clock) as owner:
            engine: GroupEngine = await engine_of(owner)
            await eventually(lambda: engine.delay_levels.levels[0].is_blocked)
    assert store.levels.texts() == []
    async with delivering(store, clock):
        await eventually(lambda: store.levels.texts() == ["1"])
