# SPDX-License-Identifier: Apache-2.0
"""Dead letters: the list, the count and the replay to their original topics, over a log and an index in memory."""

import asyncio

import pytest

from libs.formats.records.delivery_record import Policy
from libs.machine.testing.manual_clock import ManualClock
from libs.requests.errors import DependencyUnavailable
from services.delivery.engine.dead_letters import dead_letters as room
from services.delivery.engine.dead_letters.dead_letters import NO_ORIGIN, Replay, ReplayedTopic
from services.delivery.engine.dead_letters.selection import Selection
from services.delivery.engine.own.counters import Counters
from services.delivery.engine.own.group_engine import GroupEngine
from services.delivery.engine.ports.messages import Wanted
from services.delivery.engine.receive.settling import SettleRequest
from services.delivery.errors import JournalLost
from tests.support.memory_delivery import MemoryStore, delivering, engine_of
from tests.support.patience import LIMIT_S

GROUP, TOPIC, LETTERS = "g", "t", "%DLQ%g"


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


async def with_letters(*messages: str, origin: str = TOPIC) -> MemoryStore:
    """A store whose group has these dead letters, at offsets 0, 1 and so on."""
    store = MemoryStore(queue_count=1)
    store.queues(TOPIC)
    for message in messages:
        await store.append(LETTERS, message, origin_topic=origin)
    return store


async def replay(
    engine: GroupEngine,
    selection: Selection = Selection(),  # noqa: B008 - it is frozen
    *,
    per_second_max: int = 0,
    count_max: int = 0,
    is_dry_run: bool = False,
) -> Replay:
    """Replay to the end, and return the last progress."""
    replays = engine.dead_letters.replay(
        GROUP, selection, per_second_max=per_second_max, count_max=count_max, is_dry_run=is_dry_run
    )
    *_, last = [one async for one in replays]
    assert last.is_done
    return last


def texts(store: MemoryStore, topic: str = TOPIC) -> list[str]:
    return [one.message for one in store.queues(topic)[0]]


async def left(engine: GroupEngine, selection: Selection = Selection()) -> list[str]:  # noqa: B008 - it is frozen
    """The letters that are listed."""
    found, position = await engine.dead_letters.page(GROUP, selection, (0, 0), 1_000)
    assert position is None
    return [one.message for one in found]


async def test_a_message_that_died_is_replayed_once_and_processed(clock: ManualClock) -> None:
    """A replay delivers a buried message again, as a first attempt, and a second replay finds no letter."""
    store = MemoryStore(queue_count=1)
    await store.append(TOPIC, "a")
    async with delivering(store, clock) as owner:
        engine = await engine_of(owner)
        first = (await engine.receive(GROUP, TOPIC, count=1, invisible_ms=None, wanted=Wanted(), wait_s=LIMIT_S))[0]
        await engine.settling.settle([SettleRequest(first.handle, "bury")])
        assert await engine.dead_letters.count(GROUP) == 1
        done = await replay(engine)
        assert done.topics == {TOPIC: ReplayedTopic(1, 0, "")}
        assert (done.passed_count, done.total_count, done.done_before_count) == (1, 1, 0)
        (again,) = await engine.receive(GROUP, TOPIC, count=9, invisible_ms=None, wanted=Wanted(), wait_s=LIMIT_S)
        assert (again.message, again.attempt) == ("a", 1)
        second = await replay(engine)
        assert (second.replayed_count, second.done_before_count) == (0, 1)
        assert await engine.dead_letters.count(GROUP) == 0
        assert Counters(owner).groups().replayed_letters_total == 1
        assert [lag.place.topic for lag in await engine.lags.of(GROUP)] == [TOPIC]
    assert texts(store) == ["a", "a"]


async def test_a_condition_chooses_and_the_rest_stays(clock: ManualClock) -> None:
    """Letters that do not pass the condition stay in the list, and the next replay takes them, also after a restart."""
    store = await with_letters("x1", "y1", "x2", "y2", "x3")
    async with delivering(store, clock) as owner:
        engine = await engine_of(owner)
        assert (await replay(engine, Selection(where="x"), is_dry_run=True)).replayed_count == 3
        assert texts(store) == []
        assert (await replay(engine, Selection(where="x"))).replayed_count == 3
        assert await left(engine) == ["y1", "y2"]
        assert await engine.dead_letters.count(GROUP) == 2
    async with delivering(store, clock) as owner:
        engine = await engine_of(owner)
        assert await left(engine) == ["y1", "y2"]
        done = await replay(engine)
        assert (done.replayed_count, done.done_before_count) == (2, 3)
        assert await left(engine) == []
    assert texts(store) == ["x1", "x2", "x3", "y1", "y2"]


async def test_a_copy_of_the_journal_keeps_what_was_replayed(clock: ManualClock) -> None:
    """When the journal begins anew with a copy, no letter is replayed again."""
    store = await with_letters("x1", "y1", "x2")
    async with delivering(store, clock) as owner:
        await replay(await engine_of(owner), Selection(where="x2"))
    store.segment_size_bytes = 1  # each look finds a new segment, and copies
    async with delivering(store, clock) as owner:
        await engine_of(owner)
        async with asyncio.timeout(LIMIT_S):
            while not store.offsets["rmq_sys_reput_delivery"].get(("rmq_sys_reput_delivery", 0)):  # noqa: ASYNC110
                await asyncio.sleep(0.02)
        store.min_journal_offset = store.offsets["rmq_sys_reput_delivery"]["rmq_sys_reput_delivery", 0]
    async with delivering(store, clock) as owner:
        assert await left(await engine_of(owner)) == ["x1", "y1"]


async def test_places_times_and_counts_choose(clock: ManualClock) -> None:
    """A caller can select single letters, letters of a time, and the first letters; all that is set must hold."""
    store = await with_letters("a", "b", "c", "d", "e")  # the time of a letter is its offset
    async with delivering(store, clock) as owner:
        engine = await engine_of(owner)
        assert await left(engine, Selection(places=((0, 3), (0, 1), (7, 0)))) == ["b", "d"]
        assert await left(engine, Selection(places=((0, 3), (0, 1)), start_ms=2)) == ["d"]
        assert await left(engine, Selection(start_ms=1, end_ms=3)) == ["b", "c"]
        await replay(engine, Selection(places=((0, 3),)))
        assert (await replay(engine, Selection(start_ms=1), count_max=2)).replayed_count == 2
        assert await left(engine) == ["a", "e"]


async def test_letters_come_page_by_page(clock: ManualClock) -> None:
    """Pages have as many letters as the caller asks for, and begin where the page before ended."""
    store = await with_letters("a", "b", "c")
    async with delivering(store, clock) as owner:
        engine = await engine_of(owner)
        first, position = await engine.dead_letters.page(GROUP, Selection(), (0, 0), 2)
        assert position == (0, 2)
        rest, end = await engine.dead_letters.page(GROUP, Selection(), position, 2)
        assert ([one.message for one in [*first, *rest]], end) == (["a", "b", "c"], None)


async def test_letters_that_go_nowhere_stay(clock: ManualClock) -> None:
    """A letter whose original topic takes no messages, or is unknown, is refused with the reason."""
    store = await with_letters("a", origin="gone")
    await store.append(LETTERS, "b")
    await store.append(LETTERS, "c", origin_topic=TOPIC)
    async with delivering(store, clock) as owner:
        engine = await engine_of(owner)
        done = await replay(engine)
        assert done.topics == {
            "gone": ReplayedTopic(0, 1, "there is no topic gone"),
            "": ReplayedTopic(0, 1, NO_ORIGIN),
            TOPIC: ReplayedTopic(1, 0, ""),
        }
        assert await left(engine) == ["a", "b"]


async def test_a_letter_that_somebody_has_is_not_replayed(clock: ManualClock) -> None:
    """A letter is either received by its group, or replayed, never both."""
    store = await with_letters("a", "b", "c")
    async with delivering(store, clock) as owner:
        engine = await engine_of(owner)
        await replay(engine, Selection(places=((0, 1),)))
        (a,) = await engine.receive(GROUP, LETTERS, count=1, invisible_ms=None, wanted=Wanted(), wait_s=LIMIT_S)
        done = await replay(engine)
        assert (done.replayed_count, done.done_before_count) == (1, 2)
        assert await engine.receive(GROUP, LETTERS, count=9, invisible_ms=None, wanted=Wanted(), wait_s=0) == []
        await engine.settling.settle([SettleRequest(a.handle, "ack")])
        assert await engine.dead_letters.count(GROUP) == 0
    assert texts(store) == ["b", "c"]


async def test_two_replays_at_once_replay_each_letter_once(clock: ManualClock) -> None:
    """The second replay finds the letter done."""
    store = await with_letters(*map(str, range(250)))
    store.write_delay_s = store.pull_delay_s = 0.005
    async with delivering(store, clock) as owner:
        engine = await engine_of(owner)
        first, second = await asyncio.gather(replay(engine), replay(engine))
        assert first.replayed_count + second.replayed_count == 250
    assert sorted(texts(store), key=int) == [str(number) for number in range(250)]


async def test_an_answer_that_got_lost_doubles_nothing(clock: ManualClock) -> None:
    """A replay that fails may be repeated: letters that the log has are done, also if the answer was lost."""
    store = await with_letters("a", "b", "c")
    async with delivering(store, clock) as owner:
        engine = await engine_of(owner)
        await engine.positions.begin(GROUP, LETTERS)
        store.lost_answers = 1
        with pytest.raises(JournalLost):
            await replay(engine, count_max=2)
        assert texts(store) == ["a", "b"]
        done = await replay(await engine_of(owner, began_count=2))
        assert (done.replayed_count, done.done_before_count) == (1, 2)
    assert texts(store) == ["a", "b", "c"]


async def test_a_refused_write_replays_nothing(clock: ManualClock) -> None:
    """A log that takes no message settles no letter."""
    store = await with_letters("a")
    async with delivering(store, clock) as owner:
        engine = await engine_of(owner)
        await engine.positions.begin(GROUP, LETTERS)
        store.refused_writes = 1
        with pytest.raises(DependencyUnavailable):
            await replay(engine)
        assert (await replay(await engine_of(owner, began_count=2))).replayed_count == 1


async def test_letters_that_expired_cost_nothing(clock: ManualClock) -> None:
    """Letters that are gone from the log are not counted, and do not hold up later letters."""
    store = await with_letters("a", "b", "c", "d")
    store.min_offsets[LETTERS, 0] = 2
    async with delivering(store, clock) as owner:
        engine = await engine_of(owner)
        assert await engine.dead_letters.count(GROUP) == 2
        await replay(engine)
        queue = engine.groups.queues(GROUP)[0]
        assert (queue.next, queue.ahead_count) == (4, 0)


async def test_from_end_is_for_messages_not_for_letters(clock: ManualClock) -> None:
    """A group that begins at the end of queues has all of its letters."""
    store = await with_letters("a")
    async with delivering(store, clock) as owner:
        engine = await engine_of(owner)
        await engine.set_policy(GROUP, Policy(from_end=True))
        assert (await replay(engine)).replayed_count == 1


async def test_a_limit_of_speed_is_kept(clock: ManualClock) -> None:
    """A replay is no faster than its limit, and yields its progress meanwhile."""
    store = await with_letters(*map(str, range(60)))
    async with delivering(store, clock) as owner:
        engine = await engine_of(owner)
        loop = asyncio.get_running_loop()
        start_s = loop.time()
        replays = engine.dead_letters.replay(GROUP, Selection(), per_second_max=40, count_max=0, is_dry_run=False)
        told = [one.replayed_count async for one in replays]
        assert loop.time() - start_s >= 1.4
    assert len(told) >= 2
    assert told == sorted(told)
    assert told[-1] == 60


async def test_what_is_done_before_earlier_ones_is_bounded(clock: ManualClock, monkeypatch: pytest.MonkeyPatch) -> None:
    """A replay ends with WindowFull before letters that are done before earlier letters take too much memory."""
    monkeypatch.setattr(room, "AHEAD_COUNT_MAX", 2)
    monkeypatch.setattr(room, "BATCH_COUNT", 1)
    store = await with_letters("y", "x1", "x2", "x3")
    async with delivering(store, clock) as owner:
        engine = await engine_of(owner)
        with pytest.raises(room.WindowFull):
            await replay(engine, Selection(where="x"))
        await replay(engine)
        assert await left(engine) == []
