# SPDX-License-Identifier: Apache-2.0
"""A process ends in order, RocketMQ moves its groups, and the next process continues."""

import asyncio

import pytest

from libs.machine.testing.manual_clock import ManualClock
from services.delivery.engine.own.group_engine import GroupEngine
from services.delivery.engine.ports.messages import Wanted
from services.delivery.engine.receive.batch import Delivered
from services.delivery.engine.receive.settling import SettleRequest
from tests.support.memory_delivery import MemoryStore, delivering, engine_of
from tests.support.patience import LIMIT_S

GROUP, TOPIC = "g", "t"
JOURNAL = "rmq_sys_reput_delivery"


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


async def receive(engine: GroupEngine, count: int = 10, *, wait_s: float = LIMIT_S) -> list[Delivered]:
    return await engine.receive(GROUP, TOPIC, count=count, invisible_ms=1_000, wanted=Wanted(), wait_s=wait_s)


async def left(clock: ManualClock) -> MemoryStore:
    """A store with six messages whose Delivery ended in order: the group received four and acknowledged the first."""
    store = MemoryStore(queue_count=1)
    for number in range(6):
        await store.append(TOPIC, f"m{number}")
    async with delivering(store, clock) as owner:
        engine = await engine_of(owner)
        found = await receive(engine, 4)
        await engine.settling.settle([SettleRequest(found[0].handle, "ack")])
    clock.advance(1_000)
    return store


async def attempts(store: MemoryStore, clock: ManualClock, count: int) -> dict[str, int]:
    """The messages that the group gets now, `count` and no more, and their attempts."""
    async with delivering(store, clock) as owner:
        engine = await engine_of(owner)
        found: list[Delivered] = []
        while len(found) < count:
            found += await receive(engine)
        found += await receive(engine, wait_s=0.05)
        return {one.message: one.attempt for one in found}


async def test_the_index_knows_where_groups_are_after_an_orderly_end(clock: ManualClock) -> None:
    """RocketMQ would continue with the first unsettled message; with an unchanged store, all attempts are kept."""
    store = await left(clock)
    assert store.offsets[GROUP] == {(TOPIC, 0): 1}
    assert await attempts(store, clock, 5) == {"m1": 2, "m2": 2, "m3": 2, "m4": 1, "m5": 1}


@pytest.mark.parametrize(
    ("offset", "expected"),
    [
        (2, {"m2": 2, "m3": 2, "m4": 1, "m5": 1}),
        (5, {"m5": 1}),
        (9, {}),
        (0, {"m0": 1, "m1": 1, "m2": 1, "m3": 1, "m4": 1, "m5": 1}),
    ],
)
async def test_a_group_goes_on_where_rocketmq_left_it(
    offset: int, expected: dict[str, int], clock: ManualClock
) -> None:
    """Messages acknowledged there are not delivered again; others keep their attempts, also for later processes."""
    store = await left(clock)
    store.offsets[GROUP][TOPIC, 0] = offset
    assert await attempts(store, clock, len(expected)) == expected
    clock.advance(1_000)
    assert await attempts(store, clock, len(expected)) == {text: attempt + 1 for text, attempt in expected.items()}


async def test_the_journal_counts_unless_it_is_as_it_was_left(clock: ManualClock) -> None:
    """An index that lost its last changes, or got none, moves no group."""
    store = await left(clock)
    store.offsets[JOURNAL][JOURNAL, 1] -= 1
    store.offsets[GROUP][TOPIC, 0] = 0
    assert await attempts(store, clock, 5) == {"m1": 2, "m2": 2, "m3": 2, "m4": 1, "m5": 1}


async def test_what_is_buried_while_the_process_ends_does_not_come_again(clock: ManualClock) -> None:
    """A message whose letter is being written when the process ends is settled for the next process, as answered."""
    store = MemoryStore(queue_count=1)
    await store.append(TOPIC, "m")
    async with delivering(store, clock) as owner:
        engine = await engine_of(owner)
        (one,) = await receive(engine)
        is_under_way, arrives = store.held = asyncio.Event(), asyncio.Event()
        buried = asyncio.create_task(engine.settling.settle([SettleRequest(one.handle, "bury")]))
        await is_under_way.wait()
        ended = asyncio.create_task(owner.stop())
        for _ in range(100):  # let the stop run as far as it can
            await asyncio.sleep(0)
        arrives.set()
        assert [outcome.error for outcome in await buried] == [None]
        await ended
    clock.advance(60_000)
    assert await attempts(store, clock, 0) == {}
    assert [found.message for found in store.queues(f"%DLQ%{GROUP}")[0]] == ["m"]
