# SPDX-License-Identifier: Apache-2.0
"""No wake-up is lost: members with several filters come, wait, leave and are cancelled at any moment."""

import asyncio
import random
from collections.abc import Sequence

import pytest

from libs.machine.testing.manual_clock import ManualClock
from services.delivery.engine.own import group_engine
from services.delivery.engine.own.group_engine import GroupEngine
from services.delivery.engine.ports.messages import Wanted
from services.delivery.engine.receive.batch import Delivered
from services.delivery.engine.receive.settling import SettleRequest
from tests.support.memory_delivery import MemoryStore, delivering, engine_of
from tests.support.patience import LIMIT_S, eventually

GROUP, TOPIC = "g", "t"
FILTERS = [Wanted("a"), Wanted("b"), Wanted("*"), Wanted("a||b")]
NEVER_S = 2 * LIMIT_S
"""A member that is not woken in time fails the test."""


class Members:
    """The members of a group, and the messages that they have acknowledged."""

    def __init__(self, engine: GroupEngine, chance: random.Random) -> None:
        self.acked: set[str] = set()
        self._engine, self._chance = engine, chance
        self._tasks: list[asyncio.Task[None]] = []

    def stay(self, wanted: Wanted) -> None:
        """Begin a member that receives and settles until the end. Some of its messages fail."""
        self._tasks.append(asyncio.create_task(self._stay(wanted)))

    def come(self, wanted: Wanted) -> asyncio.Task[None]:
        """Begin a member that receives a single time, and may be cancelled."""
        self._tasks.append(asyncio.create_task(self._receive(wanted, self._chance.choice([0, 0.001, NEVER_S]))))
        return self._tasks[-1]

    async def stop(self) -> None:
        """Cancel all members."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _stay(self, wanted: Wanted) -> None:
        while True:
            await self._receive(wanted, NEVER_S, fails=self._chance.random() < 0.2)

    async def _receive(self, wanted: Wanted, wait_s: float, *, fails: bool = False) -> None:
        count = self._chance.choice([1, 1, 3])
        found = await self._engine.receive(GROUP, TOPIC, count=count, invisible_ms=None, wanted=wanted, wait_s=wait_s)
        await asyncio.shield(asyncio.create_task(self._settle(found, fails=fails)))

    async def _settle(self, found: Sequence[Delivered], *, fails: bool) -> None:
        verb = "nack" if fails else "ack"
        await self._engine.settling.settle([SettleRequest(one.handle, verb, 0) for one in found])  # type: ignore[arg-type]
        self.acked |= set() if fails else {one.message for one in found}


@pytest.mark.parametrize("seed", range(40))
async def test_no_wake_is_lost(monkeypatch: pytest.MonkeyPatch, seed: int) -> None:
    """Each message gets to a member that waits for it, without a look after a time."""
    monkeypatch.setattr(group_engine, "TOPIC_LOOK_S", NEVER_S)
    chance, store = random.Random(seed), MemoryStore(queue_count=2)
    store.queues(TOPIC)
    filters = FILTERS[: chance.choice([2, 2, 3, 4])]
    async with delivering(store, ManualClock()) as owner:
        members = Members(await engine_of(owner), chance)
        for wanted in filters:
            members.stay(wanted)
        for _ in range(6):
            await asyncio.sleep(0)
        comers: list[asyncio.Task[None]] = []
        sent: set[str] = set()
        for number in range(25):
            comers += [members.come(chance.choice(filters)) for _ in range(chance.randrange(3))]
            for _ in range(chance.randrange(4)):
                await asyncio.sleep(0)
            sent.add(message := f"{chance.choice('ab')}{number}")
            await store.append(TOPIC, message, queue_id=chance.randrange(2))
            for _ in range(chance.randrange(6)):
                await asyncio.sleep(0)
            for comer in comers:
                if chance.random() < 0.3:
                    comer.cancel()
        await eventually(lambda: sent <= members.acked)
        await members.stop()
