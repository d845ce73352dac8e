# SPDX-License-Identifier: Apache-2.0
"""A group receives from the queues that its topic gets later."""

import pytest

from libs.formats.records.delivery_record import Policy
from libs.machine.testing.manual_clock import ManualClock
from services.delivery.engine.own.group_engine import GroupEngine
from services.delivery.engine.ports.messages import Wanted
from services.delivery.engine.receive.batch import Delivered
from services.delivery.engine.receive.positions import TOPIC_LOOK_S
from services.delivery.engine.receive.settling import SettleRequest
from tests.support.memory_delivery import MemoryStore, delivering, engine_of
from tests.support.patience import LIMIT_S

GROUP, TOPIC = "g", "t"
KEY = 7


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


async def receive(engine: GroupEngine, *, wait_s: float = LIMIT_S) -> list[str]:
    return [one.message for one in await delivered(engine, wait_s=wait_s)]


async def delivered(engine: GroupEngine, *, wait_s: float = LIMIT_S) -> list[Delivered]:
    return await engine.receive(GROUP, TOPIC, count=10, invisible_ms=None, wanted=Wanted(), wait_s=wait_s)


async def ack(engine: GroupEngine, *some: Delivered) -> None:
    assert all(
        outcome.error is None
        for outcome in await engine.settling.settle([SettleRequest(one.handle, "ack") for one in some])
    )


def look_again(clock: ManualClock) -> None:
    """Let the cached number of a topic's queues expire."""
    clock.advance(int(TOPIC_LOOK_S * 1000) + 1)


async def test_a_group_from_the_end_gets_all_of_queues_that_come_later(clock: ManualClock) -> None:
    """The end is valid for queues that exist when the group begins, with or without a member at the widening."""
    store = MemoryStore(queue_count=1)
    await store.append(TOPIC, "before it began")
    async with delivering(store, clock) as owner:
        engine = await engine_of(owner)
        await engine.set_policy(GROUP, Policy(from_end=True))
        assert await receive(engine, wait_s=0) == []
    store.widen(2)
    await store.append(TOPIC, "in the new queue", queue_id=1)
    async with delivering(store, clock) as owner:
        engine = await engine_of(owner)
        assert [(lag.place.queue_id, lag.unsettled_count) for lag in await engine.lags.of(GROUP)] == [(0, 0), (1, 1)]
        assert await receive(engine) == ["in the new queue"]
        store.widen(3)
        await store.append(TOPIC, "in a newer one", queue_id=2)
        look_again(clock)
        assert await receive(engine) == ["in a newer one"]


async def test_a_group_that_committed_elsewhere_gets_all_of_the_other_queues(clock: ManualClock) -> None:
    """A group with an offset in a queue of the topic has begun with this topic."""
    store = MemoryStore(queue_count=2)
    await store.append(TOPIC, "settled")
    await store.append(TOPIC, "new", queue_id=1)
    store.offsets[GROUP][TOPIC, 0] = 1
    async with delivering(store, clock) as owner:
        engine = await engine_of(owner)
        await engine.set_policy(GROUP, Policy(from_end=True))
        assert await receive(engine) == ["new"]


async def test_a_later_queue_of_an_ordered_group_waits_for_what_was_before_it(clock: ManualClock) -> None:
    """A key that moves to another queue keeps its order, also when another process takes over."""
    store, now_ms = MemoryStore(queue_count=1), clock.now_ms()
    await store.append(TOPIC, "1", key=KEY, store_time_ms=now_ms)
    async with delivering(store, clock) as owner:
        engine = await engine_of(owner)
        await engine.set_policy(GROUP, Policy(is_ordered=True, backoffs_ms=(0,)))
        (first,) = await delivered(engine)
        await store.append(TOPIC, "2", key=KEY, store_time_ms=now_ms + 1)
        store.widen(2)
        await store.append(TOPIC, "3", key=KEY, queue_id=1, store_time_ms=now_ms + 1)
        await store.append(TOPIC, "other", key=KEY + 1, store_time_ms=now_ms + 2)
        look_again(clock)
        (other,) = await delivered(engine)
        assert other.message == "other"
        await ack(engine, first)
        (second,) = await delivered(engine)
        assert second.message == "2"
        assert await receive(engine, wait_s=0) == []
        (_, lag) = await engine.lags.of(GROUP)
        assert (lag.unsettled_count, dict(lag.waits_for)) == (1, {0: 2})
    async with delivering(store, clock) as owner:
        engine = await engine_of(owner)
        assert await receive(engine, wait_s=0) == []
        await ack(engine, second)
        assert await receive(engine) == ["3"]
        await ack(engine, other)


async def test_queues_of_two_widenings_are_worked_off_one_after_the_other(clock: ManualClock) -> None:
    """A key that moved twice is delivered queue by queue."""
    store, now_ms = MemoryStore(queue_count=1), clock.now_ms()
    await store.append(TOPIC, "1", key=KEY, store_time_ms=now_ms)
    async with delivering(store, clock) as owner:
        engine = await engine_of(owner)
        await engine.set_policy(GROUP, Policy(is_ordered=True))
        some = await delivered(engine)
        store.widen(3)
        await store.append(TOPIC, "2", key=KEY, queue_id=2, store_time_ms=now_ms + 1)
        await store.append(TOPIC, "3", key=KEY, queue_id=1, store_time_ms=now_ms + 2)
        look_again(clock)
        for expected in ("2", "3"):
            assert await receive(engine, wait_s=0) == []
            await ack(engine, *some)
            some = await delivered(engine)
            assert [one.message for one in some] == [expected]


async def test_a_group_without_order_waits_for_no_queue(clock: ManualClock) -> None:
    """New queues are delivered beside the others."""
    store, now_ms = MemoryStore(queue_count=1), clock.now_ms()
    await store.append(TOPIC, "1", key=KEY, store_time_ms=now_ms)
    async with delivering(store, clock) as owner:
        engine = await engine_of(owner)
        assert await receive(engine) == ["1"]
        store.widen(2)
        await store.append(TOPIC, "2", key=KEY, queue_id=1, store_time_ms=now_ms + 1)
        look_again(clock)
        assert await receive(engine) == ["2"]
