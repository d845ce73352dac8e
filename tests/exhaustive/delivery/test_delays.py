# SPDX-License-Identifier: Apache-2.0
"""Delayed messages over random restarts, lost answers and refused writes."""

import asyncio
import contextlib
import random
from collections import Counter

import pytest

from libs.machine.testing.manual_clock import ManualClock
from services.delivery.engine.delays import delays as delays_module
from services.delivery.engine.own.group_engine import GroupEngine
from services.delivery.errors import DelayedTooLate
from tests.support.delayed_messages import TOPIC, made, texts
from tests.support.memory_delivery import LOST, MemoryStore, delivering, engine_of
from tests.support.patience import eventually


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture(autouse=True)
def _hurried(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tests move the clock by hand, so Delivery looks at it often."""
    monkeypatch.setattr(delays_module, "WAIT_S_MAX", 0.005)


class Run:
    """Random producers, cancels and faults from a seed, and the rules that always hold."""

    def __init__(self, seed: int, clock: ManualClock, store: MemoryStore) -> None:
        self.chance, self.clock, self.store = random.Random(seed), clock, store
        self.sent: list[str] = []
        self.cancelled: set[str] = set()
        self.maybe: set[str] = set()
        self.late: set[str] = set()

    async def step(self, engine: GroupEngine) -> None:
        match self.chance.randrange(8):
            case 0 | 1 | 2:
                name = f"m{len(self.sent)}"
                self.sent.append(name)
                due_ms = self.clock.now_ms() + self.chance.choice([0, 50, 900, 70_000, 200_000])
                await self.store.timers.send(TOPIC, name, due_ms=due_ms, UNIQ_KEY=name)
            case 3 | 4 if self.sent:
                await self._cancel(engine, self.chance.choice(self.sent))
            case 5 | 6:
                self.clock.advance(self.chance.choice([10, 1_000, 61_000]))
                await asyncio.sleep(self.chance.choice([0, 0, 0.01]))
            case 7:
                setattr(self.store, self.chance.choice(["lost_answers", "refused_writes", "calm"]), 1)

    async def _cancel(self, engine: GroupEngine, name: str) -> None:
        self.maybe.add(name)
        try:
            await engine.delay_queries.cancel(TOPIC, name)
        except DelayedTooLate:
            assert name not in self.cancelled
            self.late.add(name)
        else:
            assert name not in self.late
            self.cancelled.add(name)


@pytest.mark.parametrize("seed", range(20))
async def test_whatever_happens_each_comes_once(seed: int, clock: ManualClock) -> None:
    """Restarts, lost answers and refused writes at any time: no message is lost, early, twice, or cancelled."""
    store = made(clock)
    run = Run(seed, clock, store)
    if seed % 2:
        store.segment_size_bytes = 3_000
    store.write_delay_s = 0.002 * (seed % 3)
    for _ in range(3):
        async with delivering(store, clock) as owner:
            for _ in range(25):
                with contextlib.suppress(*LOST):
                    await run.step(await engine_of(owner))
    store.lost_answers = store.refused_writes = 0
    async with delivering(store, clock) as owner:
        clock.advance(300_000)
        engine = await engine_of(owner)
        await eventually(lambda: engine.delays.next == len(store.timers.records) and engine.delays.count == 0)
    delivered = Counter(texts(store))
    assert all(count == 1 for count in delivered.values())
    assert not run.cancelled & delivered.keys()
    assert run.late <= delivered.keys()
    assert set(run.sent) - run.maybe <= delivered.keys()
