# SPDX-License-Identifier: Apache-2.0
"""What Delivery does for a message: shared calls make it little, and idle members of the group add nothing."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

import pytest

from libs.machine.testing.manual_clock import ManualClock
from services.delivery.engine.own.group_engine import GroupEngine
from services.delivery.engine.ports.messages import Wanted
from services.delivery.engine.receive.batch import Delivered
from services.delivery.engine.receive.settling import SettleRequest
from tests.cost.python_work import instructions
from tests.support.memory_delivery import MemoryStore, delivering, engine_of
from tests.support.patience import LIMIT_S

GROUP, TOPIC = "g", "t"


@asynccontextmanager
async def group_of(message_count: int) -> AsyncIterator[tuple[MemoryStore, GroupEngine]]:
    """A group with a topic of four queues and this many messages."""
    store = MemoryStore(queue_count=4)
    store.queues(TOPIC)
    async with delivering(store, ManualClock()) as owner:
        engine = await engine_of(owner)
        for number in range(message_count):
            await store.append(TOPIC, str(number), queue_id=number % 4)
        yield store, engine


async def receive(engine: GroupEngine, count: int) -> Sequence[Delivered]:
    return await engine.receive(GROUP, TOPIC, count=count, invisible_ms=None, wanted=Wanted(), wait_s=LIMIT_S)


async def work_of_message(count: int, call_count: int) -> int:
    """Instructions for a message of receives of `count` messages, settled by calls of `call_count` messages."""
    async with group_of(512) as (_, engine):
        await receive(engine, 1)
        await asyncio.sleep(0.1)  # what follows a start is done
        done = 0
        with instructions() as work:
            while done < 256:
                got = await receive(engine, count)
                some = [SettleRequest(one.handle, "ack") for one in got]
                calls = [some[first : first + call_count] for first in range(0, len(some), call_count)]
                await asyncio.gather(*map(engine.settling.settle, calls))
                done += len(got)
        return work.instruction_count // done


async def test_a_message_of_a_large_call_costs_little() -> None:
    """Receive and acknowledgement of 64 messages in a call each: at most 1,500 instructions for a message."""
    assert await work_of_message(64, 64) < 1_500


async def test_calls_of_a_turn_share_the_append() -> None:
    """64 calls of a turn cost little more than a single call, because the journal has a single record of them."""
    assert await work_of_message(64, 1) < 1.8 * await work_of_message(64, 64)


@pytest.mark.parametrize("burst", [1, 8])
async def test_idle_members_cost_nothing(burst: int) -> None:
    """A message costs the same with 300 members that wait as with 20."""

    async def work_with(member_count: int) -> int:
        async with group_of(0) as (store, engine):
            got: list[str] = []

            async def member() -> None:
                while True:
                    some = await receive(engine, 1)
                    got.extend(one.message for one in some)
                    await engine.settling.settle([SettleRequest(one.handle, "ack") for one in some])

            members = [asyncio.create_task(member()) for _ in range(member_count)]
            await asyncio.sleep(0.5)
            with instructions() as work:
                for first in range(0, 40, burst):
                    for number in range(first, first + burst):
                        await store.append(TOPIC, str(number), queue_id=number % 4)
                    while len(got) < first + burst:  # noqa: ASYNC110
                        await asyncio.sleep(0)
            for one in members:
                one.cancel()
            await asyncio.gather(*members, return_exceptions=True)
            assert sorted(got, key=int) == [str(number) for number in range(40)]
            return work.instruction_count // 40

    # the lesser of two: looks by the clock, which a slow machine makes more of, are no cost of a message
    few, many = [min([await work_with(count) for _ in range(2)]) for count in (20, 300)]
    assert many < 1.3 * few
