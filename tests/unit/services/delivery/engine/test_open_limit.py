# SPDX-License-Identifier: Apache-2.0
"""The limit of messages in flight holds for all groups together."""

import asyncio

import pytest

from libs.machine.testing.manual_clock import ManualClock
from services.delivery.engine.own import group_engine
from services.delivery.engine.ports.messages import Wanted
from services.delivery.engine.receive.settling import SettleRequest
from tests.support.memory_delivery import MemoryStore, delivering, engine_of
from tests.support.patience import LIMIT_S


async def test_a_receive_takes_no_more_than_is_left() -> None:
    """A receive for more messages than the limit of all groups leaves gets only these, also of another group."""
    store = MemoryStore()
    for body in "abcdefgh":
        await store.append("t", body)
    async with delivering(store, ManualClock(), open_count_max=5) as owner:
        engine = await engine_of(owner)
        for group, count, expected in (("g", 3, 3), ("other", 8, 2)):
            found = await engine.receive(group, "t", count=count, invisible_ms=None, wanted=Wanted("*"), wait_s=LIMIT_S)
            assert len(found) == expected
        assert engine.groups.open_count == 5


async def test_room_that_one_group_makes_wakes_a_member_of_another(monkeypatch: pytest.MonkeyPatch) -> None:
    """The member waits for its message when the limit is reached, and gets it as soon as another group settles one."""
    monkeypatch.setattr(group_engine, "TOPIC_LOOK_S", 3_600.0)
    store = MemoryStore(queue_count=1)
    await store.append("t", "a")
    store.queues("other")
    async with delivering(store, ManualClock(), open_count_max=1) as owner:
        engine = await engine_of(owner)
        waiting = asyncio.create_task(
            engine.receive("other", "other", count=1, invisible_ms=None, wanted=Wanted(), wait_s=3_600.0)
        )
        await asyncio.sleep(0.1)
        (first,) = await engine.receive("g", "t", count=1, invisible_ms=None, wanted=Wanted(), wait_s=LIMIT_S)
        await store.append("other", "b")
        await asyncio.sleep(0.3)
        assert not waiting.done()
        await engine.settling.settle([SettleRequest(first.handle, "ack")])
        async with asyncio.timeout(LIMIT_S):
            (second,) = await waiting
        assert second.message == "b"
