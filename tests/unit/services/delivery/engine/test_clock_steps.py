# SPDX-License-Identifier: Apache-2.0
"""A clock that is set while messages wait: no message is early, lost, or appended again and again."""

import asyncio
import contextlib

import pytest

from libs.formats.records import timed as timed_record
from libs.formats.records.delivery_record import Policy
from libs.machine.testing.manual_clock import ManualClock
from libs.requests.errors import DependencyUnavailable
from services.delivery.engine.delays import delays as delays_module
from services.delivery.engine.journal.copier import JournalCopier
from services.delivery.engine.own import journal_owner as owner_module
from services.delivery.engine.own.counters import Counters
from services.delivery.engine.own.group_engine import GroupEngine
from services.delivery.engine.ports.messages import Wanted
from services.delivery.engine.receive.batch import Delivered
from services.delivery.engine.receive.settling import SettleRequest
from services.delivery.errors import JournalLost
from tests.support.memory_delivery import MemoryStore, delivering, engine_of
from tests.support.memory_timers import Sent
from tests.support.patience import LIMIT_S, eventually

TOPIC = "t"
HOUR_MS = 3_600_000
STEPS_MS = {"ahead": HOUR_MS, "back": -HOUR_MS}


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture(autouse=True)
def _hurried(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tests move the clock by hand, so Delivery looks at it often."""
    monkeypatch.setattr(delays_module, "WAIT_S_MAX", 0.005)


def made() -> MemoryStore:
    """A store whose topic has a single queue."""
    store = MemoryStore(queue_count=1)
    store.queues(TOPIC)
    return store


def texts(store: MemoryStore) -> list[str]:
    """The texts of delivered messages."""
    return [found.message.text for found in store.queues(TOPIC)[0]]


async def delayed(store: MemoryStore, text: str, delay_ms: int) -> None:
    """Append a message that waits for `delay_ms`, by the log's time."""
    place = {timed_record.REAL_TOPIC: TOPIC, timed_record.REAL_QUEUE_ID: "0"}
    await store.timers.put(Sent(text, {**place, timed_record.DELAY_MS: str(delay_ms)}, store.timers.now_ms()))


async def settled() -> None:
    """Wait until the loops have looked at the clock several times."""
    await asyncio.sleep(0.05)


async def ahead(store: MemoryStore, clock: ManualClock) -> None:
    """Let the log store something while the clock is an hour ahead, and set the clock right again."""
    clock.set_now_ms(clock.now_ms() + HOUR_MS)
    store.timers.now_ms()
    clock.set_now_ms(clock.now_ms() - HOUR_MS)
    await settled()


async def test_delays_after_the_clock_was_ahead(clock: ManualClock) -> None:
    """They end after their time and at most a ninth of it, by monotonic time; each is delivered once."""
    store = made()
    async with delivering(store, clock) as owner:
        await ahead(store, clock)
        for number in range(20):
            await delayed(store, f"m{number}", 2_000)
            clock.advance(1)
        clock.advance(1_990)
        await settled()
        assert texts(store) == []
        clock.advance(300)
        await eventually(lambda: len(texts(store)) == 20)
        await eventually(lambda: Counters(owner).delays().delivered_total == 20)
        assert (len(store.timers.records), len(set(texts(store)))) == (20, 20)
        assert Counters(owner).delays().late_ms_total <= 20 * 300


async def test_times_of_the_clock_after_it_was_ahead(clock: ManualClock) -> None:
    """A message for half an hour from now comes then, though the log's time is past that already."""
    store, due_ms = made(), clock.now_ms() + HOUR_MS // 2
    async with delivering(store, clock) as owner:
        await ahead(store, clock)
        await store.timers.send(TOPIC, "m", due_ms=due_ms)
        await eventually(lambda: Counters(owner).delays().messages_waiting == 1)
        clock.set_now_ms(due_ms - 10)
        await settled()
        assert texts(store) == []
        clock.advance(10)
        await eventually(lambda: texts(store) == ["m"])


async def test_a_delay_is_a_time_of_the_clock_once_it_is_appended_again(clock: ManualClock) -> None:
    """The record that replaces a record with a delay has the time at which the delay ends, by the clock."""
    store = made()
    async with delivering(store, clock, delayed_roll_hours=5) as owner:
        await ahead(store, clock)
        await delayed(store, "m", 48 * HOUR_MS)
        await eventually(lambda: Counters(owner).delays().messages_waiting == 1)
        clock.advance(6 * HOUR_MS)  # the log's time advances by nine tenths of it, so it is 24 minutes ahead
        await eventually(lambda: Counters(owner).delays().rolled_total == 1)
    _, again, *_ = store.timers.records
    assert again.is_by_clock
    assert abs(again.due_ms - clock.now_ms() - 42.6 * HOUR_MS) < 1_000


@pytest.mark.parametrize("step", STEPS_MS)
async def test_a_step_while_messages_wait(step: str, clock: ManualClock) -> None:
    """Each comes once. Times of the clock come by the new clock, and delays are not made longer by a step back."""
    store, due_ms = made(), clock.now_ms() + 2 * HOUR_MS
    async with delivering(store, clock) as owner:
        await delayed(store, "delay", 10_000)
        await store.timers.send(TOPIC, "time", due_ms=due_ms)
        await eventually(lambda: Counters(owner).delays().messages_waiting == 2)
        clock.set_now_ms(clock.now_ms() + STEPS_MS[step])
        await settled()
        clock.advance(12_000)
        await eventually(lambda: texts(store) == ["delay"])
        clock.advance(due_ms - clock.now_ms() - 1)
        await settled()
        assert texts(store) == ["delay"]
        clock.advance(1)
        await eventually(lambda: texts(store) == ["delay", "time"])
    assert len(store.timers.records) == 2


async def test_transactions_after_the_clock_was_ahead(clock: ManualClock) -> None:
    """Their producers are asked at the time for that, by the log's time."""
    store = made()
    async with delivering(store, clock) as owner:
        await ahead(store, clock)
        await store.transactions.begin("a")
        subject = (await engine_of(owner)).transactions
        await eventually(lambda: subject.table.count == 1)
        await subject.run_maintenance()
        assert await subject.checks(["p"], 1, wait_s=0) == []
        clock.advance(7_000)
        await settled()
        await subject.run_maintenance()
        (check,) = await subject.checks(["p"], 1, wait_s=5)
        assert check.half.id == "a"


STEPS = {"ahead": [HOUR_MS], "back": [-HOUR_MS], "ahead_and_right": [HOUR_MS, -HOUR_MS], "twice": [HOUR_MS, HOUR_MS]}


@pytest.mark.parametrize("is_remote", [False, True], ids=["one_machine", "two_machines"])
@pytest.mark.parametrize("is_taken_over", [False, True], ids=["same_process", "next_process"])
@pytest.mark.parametrize("since_h", [0, 5])
@pytest.mark.parametrize("steps", STEPS)
async def test_what_is_in_flight_after_the_clock_was_set(
    steps: str, since_h: int, is_taken_over: bool, is_remote: bool, clock: ManualClock
) -> None:
    """A message is delivered again after its time, not early and at most a ninth later, by this or the next process.

    So is a message that is received hours after the step, while the log's time is slower than the elapsed time.
    """
    store, machine = made(), ManualClock() if is_remote else clock

    def advance(duration_ms: int) -> None:
        for one in {clock, machine}:
            one.advance(duration_ms)

    async def received(engine: GroupEngine, count: int = 1, wait_s: float = LIMIT_S) -> list[Delivered]:
        return await engine.receive("g", TOPIC, count=count, invisible_ms=60_000, wanted=Wanted(), wait_s=wait_s)

    for text in "abc":
        await store.append(TOPIC, text)
    async with contextlib.AsyncExitStack() as stack:
        owner = await stack.enter_async_context(delivering(store, clock, log_machine=machine))
        engine = await engine_of(owner)
        (first,) = await received(engine)
        for step_ms in STEPS[steps]:
            machine.set_now_ms(machine.now_ms() + step_ms)
            await heard(store, engine)
        if since_h:
            await engine.settling.settle([SettleRequest(first.handle, "ack")])
            advance(since_h * HOUR_MS)
            await heard(store, engine)
            (first,) = await received(engine)
            assert abs(first.until_ms - store.timers.now_ms() - 60_000) < 1_000
        advance(30_000)
        await heard(store, engine)
        if is_taken_over:
            owner = await stack.enter_async_context(delivering(store, clock, log_machine=machine))
            engine = await engine_of(owner)
        others = await received(engine, 10)
        assert first.message not in [one.message for one in others]
        await engine.settling.settle([SettleRequest(one.handle, "ack") for one in others])
        advance(29_000)
        assert await received(engine, wait_s=0) == []
        advance(8_000)
        (again,) = await received(engine)
        assert (again.message, again.attempt) == (first.message, 2)


SMALL_STEPS = {"set_right": (-HOUR_MS, [HOUR_MS]), "ahead_a_bit": (0, [300] * 5)}
"""Steps of the log's clock: a step some seconds before a delivery, and steps after each second of it."""


@pytest.mark.parametrize("is_taken_over", [False, True], ids=["same_process", "next_process"])
@pytest.mark.parametrize("steps", SMALL_STEPS)
async def test_what_is_in_flight_when_the_log_makes_up_for_a_little(
    steps: str, is_taken_over: bool, clock: ManualClock
) -> None:
    """A delivery lasts its time when the log's time jumps by less than a second.

    After a clock is set right, the slow log's time catches up at once; small steps add up.
    """
    store, machine = made(), ManualClock()
    before_ms, steps_ms = SMALL_STEPS[steps]

    async def passed(duration_ms: int, step_ms: int = 0) -> None:
        await heard(store, engine)  # no record is being written while the clock advances
        for one in (clock, machine):
            one.advance(duration_ms)
        machine.set_now_ms(machine.now_ms() + step_ms)
        await heard(store, engine)

    async def received(wait_s: float = LIMIT_S) -> list[Delivered]:
        return await engine.receive("g", TOPIC, count=1, invisible_ms=12_000, wanted=Wanted(), wait_s=wait_s)

    await store.append(TOPIC, "a")
    async with contextlib.AsyncExitStack() as stack:
        owner = await stack.enter_async_context(delivering(store, clock, log_machine=machine))
        engine = await engine_of(owner)
        await passed(0, before_ms)
        await passed(9_000)
        (first,) = await received()
        for step_ms in steps_ms:
            await passed(1_000, step_ms)
        if is_taken_over:
            owner = await stack.enter_async_context(delivering(store, clock, log_machine=machine))
            engine = await engine_of(owner)
        await passed(12_000 - 1_000 * len(steps_ms) - 100)
        assert await received(wait_s=0) == []
        await passed(1_500)
        (again,) = await received()
        assert (first.attempt, again.attempt) == (1, 2)


@pytest.mark.parametrize("is_heard_elsewhere", [False, True], ids=["log_starts_again", "another_process"])
async def test_the_log_s_clock_is_set_ahead_while_a_process_begins_anew(
    is_heard_elsewhere: bool, clock: ManualClock
) -> None:
    """A jump between two ownerships of a process is recorded once, also if another process recorded it meanwhile."""
    store, machine = made(), ManualClock()

    async def received(engine: GroupEngine, wait_s: float) -> list[Delivered]:
        return await engine.receive("g", TOPIC, count=1, invisible_ms=60_000, wanted=Wanted(), wait_s=wait_s)

    await store.append(TOPIC, "a")
    async with delivering(store, clock, log_machine=machine) as owner:
        engine = await engine_of(owner)
        await received(engine, LIMIT_S)
        if is_heard_elsewhere:
            async with delivering(store, clock, log_machine=machine) as other_ownership:
                other = await engine_of(other_ownership)
                machine.set_now_ms(machine.now_ms() + HOUR_MS)
                await heard(store, other)
        else:
            store.refused_writes = 1
            machine.set_now_ms(machine.now_ms() + HOUR_MS)
        with pytest.raises((DependencyUnavailable, JournalLost)):
            await heard(store, engine)
        engine = await engine_of(owner, began_count=2)
        assert engine.groups.behind_ms == pytest.approx(HOUR_MS, abs=100)
        for is_over in (False, True):
            for one in (clock, machine):
                one.advance(31_000 if is_over else 59_000)
            assert len(await received(engine, LIMIT_S if is_over else 0)) == is_over


async def heard(store: MemoryStore, engine: GroupEngine) -> None:
    """Let the log take a record, whose answer has the time, as Delivery does once a second."""
    await engine.set_policy("another", Policy())


async def test_the_time_is_asked_for_where_nothing_is_written(
    clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A Delivery without work notices that the log's clock was set back, and deliveries end at the right time."""
    monkeypatch.setattr(owner_module, "MAINTENANCE_INTERVAL_S", 0.005)
    store, machine = made(), ManualClock()
    async with delivering(store, clock, log_machine=machine) as owner:
        engine = await engine_of(owner)
        machine.set_now_ms(machine.now_ms() - HOUR_MS)
        record_count = len(store.journal_records)
        await eventually(lambda: len(store.journal_records) > record_count)
        for one in (clock, machine):
            one.advance(5 * HOUR_MS)
        await store.append(TOPIC, "a")
        (given,) = await engine.receive("g", TOPIC, count=1, invisible_ms=60_000, wanted=Wanted(), wait_s=LIMIT_S)
        assert abs(given.until_ms - store.timers.now_ms() - 60_000) < 1_000


async def test_a_jump_is_in_a_copy_of_the_journal(clock: ManualClock) -> None:
    """So a process that reads only the copy ends deliveries by the same time."""
    store = made()
    async with delivering(store, clock) as owner:
        engine = await engine_of(owner)
        clock.set_now_ms(clock.now_ms() + HOUR_MS)
        await heard(store, engine)
        assert engine.groups.behind_ms == HOUR_MS
        begin = len(store.journal_records)
        subject = JournalCopier(engine.groups, engine.delays.journal, store, store, engine.dead_letter_writer.before)
        await subject.run_maintenance()
    store.min_journal_offset = begin
    async with delivering(store, clock) as owner:
        assert (await engine_of(owner)).groups.behind_ms == HOUR_MS


async def test_what_is_in_flight_when_the_clock_is_set_back_and_delivery_starts_again(clock: ManualClock) -> None:
    """A message is delivered again after its time, not an hour later: the former process recorded times of the log."""
    store, group = made(), "g"
    await store.append(TOPIC, "a")
    async with delivering(store, clock) as owner:
        engine = await engine_of(owner)
        (one,) = await engine.receive(group, TOPIC, count=1, invisible_ms=30_000, wanted=Wanted(), wait_s=LIMIT_S)
    clock.set_now_ms(clock.now_ms() - HOUR_MS)
    async with delivering(store, clock) as owner:
        engine = await engine_of(owner)
        clock.advance(25_000)
        assert await engine.receive(group, TOPIC, count=1, invisible_ms=None, wanted=Wanted(), wait_s=0) == []
        clock.advance(10_000)
        (again,) = await engine.receive(group, TOPIC, count=1, invisible_ms=None, wanted=Wanted(), wait_s=LIMIT_S)
    assert (again.message, one.attempt, again.attempt) == ("a", 1, 2)
