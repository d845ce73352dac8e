# SPDX-License-Identifier: Apache-2.0
"""Delayed messages: each is delivered once, none early, and a cancelled message never, also after faults."""

import asyncio
import random
from collections import Counter
from collections.abc import Sequence

import pytest

from libs.machine.testing.manual_clock import ManualClock
from libs.requests.errors import DependencyUnavailable
from services.delivery.engine.delays import delays as delays_module
from services.delivery.engine.own.counters import Counters
from services.delivery.engine.own.group_engine import GroupEngine
from services.delivery.engine.ports.messages import Note
from services.delivery.engine.ports.timers import Timed
from services.delivery.errors import AppendRefused, DelayedNotFound, DelayedTooLate, JournalLost
from tests.support.delayed_messages import TOPIC, made, texts
from tests.support.memory_delivery import MemoryStore, delivering, engine_of
from tests.support.memory_timers import Sent
from tests.support.patience import eventually

HOUR_MS = 3_600_000


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture(autouse=True)
def _hurried(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tests move the clock by hand, so Delivery looks at it often."""
    monkeypatch.setattr(delays_module, "WAIT_S_MAX", 0.005)


async def waits_for(engine: GroupEngine, count: int) -> None:
    """Return when `count` messages wait."""
    await eventually(lambda: engine.delays.count == count)


async def test_each_comes_at_its_time(clock: ManualClock) -> None:
    """In the order of their times, without a call. Properties for the wait are removed, except for the times."""
    store = made(clock)
    for number, delay_ms in enumerate((3_000, 90_000, 1_000, -5)):
        await store.timers.send(TOPIC, f"m{number}", due_ms=clock.now_ms() + delay_ms, TIMER_OUT_MS="1", A="b")
    async with delivering(store, clock) as owner:
        await eventually(lambda: texts(store) == ["m3"])
        for step_ms, expected in ((999, 1), (1, 2), (1_999, 2), (1, 3), (86_999, 3), (1, 4)):
            clock.advance(step_ms)
            await asyncio.sleep(0.03)
            await eventually(lambda: len(texts(store)) == expected)  # noqa: B023 - it is awaited at once
        assert texts(store) == ["m3", "m2", "m0", "m1"]
        counters = Counters(owner).delays()
        assert (counters.delivered_total, counters.messages_waiting, counters.messages_due) == (4, 0, 0)
    (one, *_) = store.queues(TOPIC)[0]
    due_ms = 1_700_000_000_000 - 5
    assert one.message.properties == {"TIMER_DELIVER_MS": str(due_ms), "TIMER_OUT_MS": "1", "A": "b"}


async def test_cancel(clock: ManualClock) -> None:
    """A cancelled message is never delivered, also by the next process. A cancel can be repeated, or be too late."""
    store, due_ms = made(clock), clock.now_ms() + 1_000
    for number in range(3):
        await store.timers.send(TOPIC, f"m{number}", due_ms=due_ms, UNIQ_KEY=f"u{number}")
    await store.timers.send(TOPIC, "plain", due_ms=due_ms)
    async with delivering(store, clock) as owner:
        queries = (await engine_of(owner)).delay_queries
        plain = store.timers.records[3].unique_id
        for message_id in ("u1", "u1", plain):
            assert (await queries.cancel(TOPIC, message_id)).unique_id == message_id
        for topic, message_id in (("other", "u0"), (TOPIC, "nobody")):
            with pytest.raises(DelayedNotFound):
                await queries.cancel(topic, message_id)
    async with delivering(store, clock) as owner:
        engine = await engine_of(owner)
        await waits_for(engine, 2)
        assert (await engine.delay_queries.cancel(TOPIC, "u1")).unique_id == "u1"
        clock.advance(1_000)
        await eventually(lambda: texts(store) == ["m0", "m2"])
        await waits_for(engine, 0)
        with pytest.raises(DelayedTooLate, match="u0"):
            await engine.delay_queries.cancel(TOPIC, "u0")
    marks = [one for one in store.timers.records if one.deletes]
    assert [(one.deletes, one.topic, one.due_ms) for one in marks] == [("u1", TOPIC, due_ms), (plain, TOPIC, due_ms)]


async def test_cancel_sees_what_is_not_indexed_yet(clock: ManualClock) -> None:
    """A cancel waits until the index has a message that was appended just now."""
    store = made(clock)
    await store.timers.send(TOPIC, "m", due_ms=clock.now_ms() + 1_000, UNIQ_KEY="u")
    async with delivering(store, clock) as owner:
        engine = await engine_of(owner)
        await store.timers.send(TOPIC, "n", due_ms=clock.now_ms() + 1_000, UNIQ_KEY="v")
        store.timers.indexed_behind = 1
        asked = asyncio.create_task(engine.delay_queries.cancel(TOPIC, "v"))
        await asyncio.sleep(0.05)
        store.timers.indexed_behind = 0
        assert (await asked).unique_id == "v"
        clock.advance(1_000)
        await eventually(lambda: texts(store) == ["m"])


async def test_due_while_it_is_cancelled(clock: ManualClock, monkeypatch: pytest.MonkeyPatch) -> None:
    """A message that is due while its cancel is being written waits for the outcome, and is not read."""
    store = made(clock)
    for name in ("u", "v"):
        await store.timers.send(TOPIC, name, due_ms=clock.now_ms() + 1_000, UNIQ_KEY=name)
    async with delivering(store, clock) as owner:
        engine = await engine_of(owner)
        await waits_for(engine, 2)
        asked: list[int] = []
        read = store.timers.read

        async def noted(physical_offsets: Sequence[int]) -> list[Timed | None]:
            asked.extend(physical_offsets)
            return await read(physical_offsets)

        monkeypatch.setattr(store.timers, "read", noted)
        is_under_way, arrives = store.held = asyncio.Event(), asyncio.Event()
        cancelled = asyncio.create_task(engine.delay_queries.cancel(TOPIC, "u"))
        await is_under_way.wait()
        clock.advance(1_000)
        await eventually(lambda: len(engine.delays.leaving) == 2)
        arrives.set()
        await cancelled
        await eventually(lambda: texts(store) == ["v"])
        assert asked == [store.timers.records[1].physical_offset]


async def test_due_while_its_cancel_fails(clock: ManualClock, monkeypatch: pytest.MonkeyPatch) -> None:
    """A due message is delivered if the log refuses its cancel."""
    store = made(clock)
    await store.timers.send(TOPIC, "u", due_ms=clock.now_ms() + 1_000, UNIQ_KEY="u")
    async with delivering(store, clock) as owner:
        engine = await engine_of(owner)
        await waits_for(engine, 1)
        is_under_way, arrives = store.held = asyncio.Event(), asyncio.Event()
        cancelled = asyncio.create_task(engine.delay_queries.cancel(TOPIC, "u"))
        await is_under_way.wait()

        def refuse(letters: Sequence[object]) -> None:
            if any(isinstance(letter, Note) for letter in letters):
                raise AppendRefused("MESSAGE_TOO_LARGE")

        monkeypatch.setattr(store.timers, "check", refuse)
        clock.advance(1_000)
        arrives.set()
        with pytest.raises(AppendRefused):
            await cancelled
        await eventually(lambda: texts(store) == ["u"])


async def test_a_log_that_follows_denies_no_message(clock: ManualClock) -> None:
    """Its Delivery and its log may lack a message that the leader has: the caller repeats the call elsewhere."""
    store = made(clock)
    async with delivering(store, clock) as owner:
        queries = (await engine_of(owner)).delay_queries
        store.is_following = True
        with pytest.raises((DependencyUnavailable, JournalLost)):
            await queries.cancel(TOPIC, "x")


async def test_marks_of_others(clock: ManualClock) -> None:
    """RocketMQ's cancel record cancels a message, if it is in time."""
    store = made(clock)
    await store.timers.send(TOPIC, "early", due_ms=clock.now_ms() - 1, UNIQ_KEY="e")
    await store.timers.send(TOPIC, "m", due_ms=clock.now_ms() + 1_000, UNIQ_KEY="u")
    async with delivering(store, clock) as owner:
        engine = await engine_of(owner)
        await eventually(lambda: texts(store) == ["early"])
        for unique_id in ("u", "e"):
            await store.timers.send(
                TOPIC, "", due_ms=clock.now_ms() + 1_000, UNIQ_KEY=unique_id, TIMER_DEL_UNIQKEY=unique_id
            )
        await waits_for(engine, 0)
        assert Counters(owner).delays().cancelled_total == 1
        with pytest.raises(DelayedTooLate):
            await engine.delay_queries.cancel(TOPIC, "e")
        clock.advance(2_000)
        await asyncio.sleep(0.05)
    assert texts(store) == ["early"]


async def test_list(clock: ManualClock) -> None:
    """By time in pages, and by key, without cancelled messages."""
    store, now_ms = made(clock), clock.now_ms()
    for number in range(30):
        await store.timers.send(TOPIC, f"m{number}", due_ms=now_ms + 30_000 * (30 - number), UNIQ_KEY=f"u{number}")
    async with delivering(store, clock) as owner:
        engine = await engine_of(owner)
        await waits_for(engine, 30)
        await engine.delay_queries.cancel(TOPIC, "u28")
        pages: list[list[str]] = []
        after: tuple[int, int] | None = (-1, -1)
        while after is not None:
            found, more = await engine.delay_queries.between(now_ms + 30_001, now_ms + 600_000, after, 7)
            pages.append([one.message.text for one in found])
            after = more
        assert sum(pages, []) == [f"m{number}" for number in range(27, 10, -1)]  # noqa: RUF017 - a few
        assert [len(page) for page in pages] == [7, 7, 3]
        assert [one.unique_id for one in await engine.delay_queries.by_key("", "u5")] == ["u5"]
        assert await engine.delay_queries.by_key("", "u28") == []


async def test_what_the_log_does_not_take(clock: ManualClock) -> None:
    """It holds up no other message, gets another queue if only its queue is refused, and is tried again otherwise."""
    store = made(clock)
    for number, text in enumerate(("a", "!queue", "!!topic", "b")):
        await store.timers.send(TOPIC, text, due_ms=clock.now_ms() + number)
    async with delivering(store, clock) as owner:
        clock.advance(10)
        await eventually(lambda: sorted(texts(store)) == ["!queue", "a", "b"])
        await eventually(lambda: Counters(owner).delays().messages_refused == 1)
        index = next(index for index, one in enumerate(store.timers.records) if one.message.text == "!!topic")
        store.timers.records[index].message.__dict__["text"] = "mended"
        clock.advance(10_000)
        await eventually(lambda: texts(store)[3:] == ["mended"])
        assert Counters(owner).delays().messages_refused == 0


async def test_roll(clock: ManualClock) -> None:
    """A long delay is appended again before retention, and is delivered once, at its time, or cancelled."""
    store, now_ms = made(clock), clock.now_ms()
    store.segment_size_bytes = 500
    await store.timers.send(TOPIC, "later", due_ms=now_ms + 40 * 24 * HOUR_MS)
    await store.timers.put(Sent("delay", {"REAL_TOPIC": TOPIC, "TIMER_DELAY_SEC": "172800"}, now_ms))
    first = store.timers.records[0].unique_id
    async with delivering(store, clock) as owner:
        engine = await engine_of(owner)
        await waits_for(engine, 2)
        for times in (2, 4, 6):
            clock.advance(13 * HOUR_MS)
            await eventually(lambda: Counters(owner).delays().rolled_total >= times)  # noqa: B023 - awaited
            store.timers.min_queue_offset = engine.delays.done.low
            store.timers.min_physical_offset = store.timers.records[engine.delays.done.low].physical_offset
        assert store.timers.records[-1].message.properties["TIMER_ROLL_TIMES"] >= "3"
        await waits_for(engine, 2)
        clock.advance(9 * HOUR_MS)
        await eventually(lambda: texts(store) == ["delay"])
        assert (await engine.delay_queries.cancel(TOPIC, first)).message.text == "later"
        assert Counters(owner).delays().lost_total == 0


async def test_due_while_it_is_rolled(clock: ManualClock, monkeypatch: pytest.MonkeyPatch) -> None:
    """A message that is due while it is appended again is delivered once."""
    store = made(clock)
    store.segment_size_bytes = 100
    await store.timers.send(TOPIC, "m", due_ms=clock.now_ms() + 60_000)
    async with delivering(store, clock) as owner:
        engine = await engine_of(owner)
        await waits_for(engine, 1)
        is_read, may_read, read = asyncio.Event(), asyncio.Event(), store.timers.read

        async def slow(physical_offsets: Sequence[int]) -> list[Timed | None]:
            is_read.set()
            await may_read.wait()
            return await read(physical_offsets)

        monkeypatch.setattr(store.timers, "read", slow)
        clock.advance(60_000)
        await is_read.wait()
        store.write_delay_s = 0.1
        rolled = asyncio.create_task(engine.delay_queries.roll())
        await eventually(lambda: bool(engine.delays.leaving) or rolled.done())
        may_read.set()
        await rolled
        await waits_for(engine, 0)
        assert Counters(owner).delays().rolled_total == 1
    assert texts(store) == ["m"]


async def test_due_while_others_are_rolled(clock: ManualClock) -> None:
    """If only a few fit into a batch, messages that are delivered meanwhile are not appended again."""
    store = made(clock)
    store.segment_size_bytes = 100
    for number in range(8):
        await store.timers.send(TOPIC, f"m{number}", due_ms=clock.now_ms() + 60_000)
    async with delivering(store, clock) as owner:
        engine = await engine_of(owner)
        await waits_for(engine, 8)
        store.write_delay_s, store.timers.rolled_count_max = 0.02, 1
        clock.advance(59_000)
        rolled = asyncio.create_task(engine.delay_queries.roll())
        await eventually(lambda: Counters(owner).delays().rolled_total > 0)
        clock.advance(1_000)
        await rolled
        await waits_for(engine, 0)
    assert sorted(texts(store)) == [f"m{number}" for number in range(8)]


async def test_rocketmq_delivered_some(clock: ManualClock) -> None:
    """Messages in the timer topic that RocketMQ has delivered are not delivered again."""
    store, now_ms = made(clock), clock.now_ms()
    out = {"REAL_TOPIC": TOPIC, "REAL_QID": "0", "TIMER_DELAY_SEC": "9", "TIMER_OUT_MS": str(now_ms - 9_000)}
    await store.append(TOPIC, Sent("was delivered", {**out, "TIMER_DEQUEUE_MS": str(now_ms)}))
    await store.append(TOPIC, Sent("was not", {"TIMER_OUT_MS": "5"}))  # another message with the same id
    for text in ("was delivered", "was not"):
        await store.timers.put(Sent(text, {**out, "TIMER_ROLL_TIMES": "1"}, now_ms - 100))
    async with delivering(store, clock):
        await eventually(lambda: texts(store) == ["was delivered", "was not", "was not"])
    async with delivering(store, clock) as owner:
        await waits_for(await engine_of(owner), 0)
        await asyncio.sleep(0.05)
    assert texts(store) == ["was delivered", "was not", "was not"]


async def test_rocketmq_goes_on_in_between(clock: ManualClock) -> None:
    """Messages that RocketMQ delivered, or appended again, while it had the store are delivered once."""
    store = made(clock)
    for text, due_ms in (("first", 10), ("theirs", 20_000), ("rolled", 90_000), ("ours", 90_000)):
        await store.timers.send(TOPIC, text, due_ms=clock.now_ms() + due_ms, UNIQ_KEY=text, TIMER_OUT_MS=text)
    async with delivering(store, clock) as owner:
        engine = await engine_of(owner)
        await waits_for(engine, 4)
        clock.advance(1_000)
        await waits_for(engine, 3)
    clock.advance(30_000)
    await store.append(TOPIC, Sent("theirs", {"TIMER_OUT_MS": "theirs", "TIMER_DEQUEUE_MS": "1"}))
    rolled = next(one.message for one in store.timers.records if one.unique_id == "rolled")
    await store.timers.put(Sent("rolled", {**rolled.properties, "TIMER_DEQUEUE_MS": "1", "TIMER_ROLL_TIMES": "1"}))
    async with delivering(store, clock) as owner:
        await waits_for(await engine_of(owner), 2)
        clock.advance(60_000)
        await waits_for(await engine_of(owner), 0)
    assert sorted(texts(store)) == ["first", "ours", "rolled", "theirs"]


async def test_an_orderly_end_leaves_nothing_done_behind_what_waits(clock: ManualClock) -> None:
    """RocketMQ reads the topic from a single offset on, and would deliver done messages after it again."""
    store = made(clock)
    for number, due_ms in enumerate((90_000, 10, 80_000, 20, 70_000)):
        await store.timers.send(TOPIC, f"m{number}", due_ms=clock.now_ms() + due_ms)
    async with delivering(store, clock) as owner:
        engine = await engine_of(owner)
        await waits_for(engine, 5)
        clock.advance(1_000)
        await waits_for(engine, 3)
    begin = store.offsets["rmq_sys_reput_delivery"]["rmq_sys_wheel_timer", 0]
    assert [one.message.text for one in store.timers.records[begin:]] == ["m4", "m0", "m2"]
    async with delivering(store, clock) as owner:
        await waits_for(await engine_of(owner), 3)
        clock.advance(90_000)
        await waits_for(await engine_of(owner), 0)
    assert Counter(texts(store)) == Counter(f"m{number}" for number in range(5))


async def test_a_copy_is_enough(clock: ManualClock) -> None:
    """Records before a whole copy of the journal are not needed."""
    store = made(clock)
    for number in range(40):
        await store.timers.send(TOPIC, f"m{number}", due_ms=clock.now_ms() + 1_000 * (number % 7))
    async with delivering(store, clock) as owner:
        engine = await engine_of(owner)
        clock.advance(3_000)
        await waits_for(engine, 16)
        store.segment_size_bytes = 100
        await asyncio.sleep(1.2)  # a turn of the maintenance
        store.segment_size_bytes = 1 << 40
    store.min_journal_offset = store.offsets["rmq_sys_reput_delivery"]["rmq_sys_reput_delivery", 0]
    assert store.min_journal_offset > 0
    async with delivering(store, clock) as owner:
        await waits_for(await engine_of(owner), 16)
        clock.advance(60_000)
        await eventually(lambda: len(texts(store)) == 40)
    assert max(Counter(texts(store)).values()) == 1


@pytest.mark.parametrize("count", [10_000, pytest.param(100_000, marks=[pytest.mark.long, pytest.mark.slow])])
async def test_many_in_a_day(count: int, clock: ManualClock, monkeypatch: pytest.MonkeyPatch) -> None:
    """Messages at random delays of a day, in a clock that runs faster: each once, none early."""
    store, chance = made(clock), random.Random(1)
    begin_ms = clock.now_ms()
    dues = [begin_ms + chance.randrange(24 * HOUR_MS) for _ in range(count)]
    for number, due_ms in enumerate(dues):
        store.timers.records.append(_record(number, due_ms))
    monkeypatch.setattr(store.timers, "read", _reader(store))
    async with delivering(store, clock, delayed_roll_hours=48) as owner:
        engine = await engine_of(owner)
        await eventually(lambda: engine.delays.next == count)
        for hour in range(24):
            clock.advance(HOUR_MS)
            wanted = sum(due_ms <= begin_ms + (hour + 1) * HOUR_MS for due_ms in dues)
            await eventually(lambda: len(store.queues(TOPIC)[0]) == wanted)  # noqa: B023 - awaited
    assert sorted(texts(store)) == sorted(str(number) for number in range(count))


def _record(number: int, due_ms: int) -> Timed:
    properties = {"TIMER_DELIVER_MS": str(due_ms)}
    place = {"topic": TOPIC, "queue_id": 0, "unique_id": str(number), "deletes": "", "is_cancelled": False}
    message = Sent(str(number), properties, 1_700_000_000_000)
    return Timed(
        queue_offset=number,
        physical_offset=number,
        size_bytes=100,
        due_ms=due_ms,
        out="",
        is_rolled_by_rocketmq=False,
        message=message,
        **place,  # type: ignore[arg-type]
    )


def _reader(store: MemoryStore) -> object:
    async def read(physical_offsets: list[int]) -> list[Timed]:
        return [store.timers.records[one] for one in physical_offsets]

    return read
