# SPDX-License-Identifier: Apache-2.0
"""A clock that is set while messages wait: nothing is early, nothing is lost, and nothing goes round in a circle."""

import asyncio

import pytest

from libs.formats.records import timed as timed_record
from libs.machine.testing.manual_clock import ManualClock
from services.delivery.engine.delays import delays as delays_module
from services.delivery.engine.ports import Wanted
from tests.support.memory_delivery import MemoryStore, delivering, owned_of
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
    """The clock is moved by hand, so it is looked at often."""
    monkeypatch.setattr(delays_module, "WAIT_S_MAX", 0.005)


def made() -> MemoryStore:
    """A store whose topic has one queue."""
    store = MemoryStore(queue_count=1)
    store.queues(TOPIC)
    return store


def texts(store: MemoryStore) -> list[str]:
    """What was delivered."""
    return [found.message.text for found in store.queues(TOPIC)[0]]


async def delayed(store: MemoryStore, text: str, delay_ms: int) -> None:
    """Append a message that waits for a while, by the log's time."""
    place = {timed_record.REAL_TOPIC: TOPIC, timed_record.REAL_QUEUE_ID: "0"}
    await store.timers.put(Sent(text, {**place, timed_record.DELAY_MS: str(delay_ms)}, store.timers.now_ms()))


async def settled() -> None:
    """Let the loops look at the clock some times."""
    await asyncio.sleep(0.05)


async def ahead(store: MemoryStore, clock: ManualClock) -> None:
    """Let the log store something while the clock is an hour ahead, and set the clock right again."""
    clock.set_now_ms(clock.now_ms() + HOUR_MS)
    store.timers.now_ms()
    clock.set_now_ms(clock.now_ms() - HOUR_MS)
    await settled()


async def test_delays_after_the_clock_was_ahead(clock: ManualClock) -> None:
    """They end after their time by monotonic time, and a ninth of it; each comes once, and does not wait again."""
    store = made()
    async with delivering(store, clock) as ownership:
        await ahead(store, clock)
        for number in range(20):
            await delayed(store, f"m{number}", 2_000)
            clock.advance(1)
        clock.advance(1_990)
        await settled()
        assert texts(store) == []
        clock.advance(300)
        await eventually(lambda: len(texts(store)) == 20)
        await eventually(lambda: ownership.delay_counters().delivered_total == 20)
        assert (len(store.timers.records), len(set(texts(store)))) == (20, 20)
        assert ownership.delay_counters().late_ms_total <= 20 * 300


async def test_times_of_the_clock_after_it_was_ahead(clock: ManualClock) -> None:
    """A message for half an hour from now comes then, though the log's time is past that already."""
    store, due_ms = made(), clock.now_ms() + HOUR_MS // 2
    async with delivering(store, clock) as ownership:
        await ahead(store, clock)
        await store.timers.send(TOPIC, "m", due_ms=due_ms)
        await eventually(lambda: ownership.delay_counters().messages_waiting == 1)
        clock.set_now_ms(due_ms - 10)
        await settled()
        assert texts(store) == []
        clock.advance(10)
        await eventually(lambda: texts(store) == ["m"])


async def test_a_delay_is_a_time_of_the_clock_once_it_is_appended_again(clock: ManualClock) -> None:
    """The record that takes the place of one with a delay names the moment at which that ends, by the clock."""
    store = made()
    async with delivering(store, clock, delayed_roll_hours=5) as ownership:
        await ahead(store, clock)
        await delayed(store, "m", 48 * HOUR_MS)
        await eventually(lambda: ownership.delay_counters().messages_waiting == 1)
        clock.advance(6 * HOUR_MS)  # of which the log's time counts nine tenths, so it is 24 minutes ahead
        await eventually(lambda: ownership.delay_counters().rolled_total == 1)
    _, again, *_ = store.timers.records
    assert again.is_by_clock
    assert abs(again.due_ms - clock.now_ms() - 42.6 * HOUR_MS) < 1_000


@pytest.mark.parametrize("step", STEPS_MS)
async def test_a_step_while_messages_wait(step: str, clock: ManualClock) -> None:
    """Each comes once. Times of the clock come by the new clock, and delays are not made longer by a step back."""
    store, due_ms = made(), clock.now_ms() + 2 * HOUR_MS
    async with delivering(store, clock) as ownership:
        await delayed(store, "delay", 10_000)
        await store.timers.send(TOPIC, "time", due_ms=due_ms)
        await eventually(lambda: ownership.delay_counters().messages_waiting == 2)
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
    async with delivering(store, clock) as ownership:
        await ahead(store, clock)
        await store.transactions.begin("a")
        subject = (await owned_of(ownership)).transactions
        await eventually(lambda: subject.table.count == 1)
        await subject.tend()
        assert await subject.checks(["p"], 1, wait_s=0) == []
        clock.advance(7_000)
        await settled()
        await subject.tend()
        (check,) = await subject.checks(["p"], 1, wait_s=5)
        assert check.half.id == "a"


async def test_what_is_in_flight_when_the_clock_is_set_back_and_delivery_starts_again(clock: ManualClock) -> None:
    """It comes again after its time, not an hour later: what the process before wrote down is a time of the log."""
    store, group = made(), "g"
    await store.append(TOPIC, "a")
    async with delivering(store, clock) as ownership:
        owned = await owned_of(ownership)
        (one,) = await owned.receive(group, TOPIC, count=1, invisible_ms=30_000, wanted=Wanted(), wait_s=LIMIT_S)
    clock.set_now_ms(clock.now_ms() - HOUR_MS)
    async with delivering(store, clock) as ownership:
        owned = await owned_of(ownership)
        clock.advance(25_000)
        assert await owned.receive(group, TOPIC, count=1, invisible_ms=None, wanted=Wanted(), wait_s=0) == []
        clock.advance(10_000)
        (again,) = await owned.receive(group, TOPIC, count=1, invisible_ms=None, wanted=Wanted(), wait_s=LIMIT_S)
    assert (again.message, one.attempt, again.attempt) == ("a", 1, 2)
