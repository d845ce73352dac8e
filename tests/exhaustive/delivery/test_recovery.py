# SPDX-License-Identifier: Apache-2.0
"""The state of groups after random restarts, lost answers and refused writes."""

import asyncio
import random
from collections import Counter
from collections.abc import Sequence

import pytest

from libs.formats.records.delivery_record import Policy
from libs.machine.testing.manual_clock import ManualClock
from services.delivery.engine.own.journal_owner import JournalOwner
from services.delivery.engine.receive.batch import Delivered
from services.delivery.engine.receive.settling import SettleRequest
from tests.support.group_calls import GROUP, ack, filled, receive
from tests.support.memory_delivery import LOST, MemoryStore, delivering, engine_of
from tests.support.patience import LIMIT_S


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


class Run:
    """Random receives, settlements and faults from a seed, and the rules that always hold."""

    def __init__(self, seed: int, clock: ManualClock) -> None:
        self.chance = random.Random(seed)
        self.clock = clock
        self.acked: set[str] = set()
        """Messages whose ack succeeded."""
        self.maybe: set[str] = set()
        """Messages whose ack was sent, with or without an answer."""
        self.got: Counter[str] = Counter()
        self.held: list[Delivered] = []

    async def step(self, store: MemoryStore, owner: JournalOwner) -> None:
        engine = await engine_of(owner)
        match self.chance.randrange(8):
            case 0 | 1 | 2:
                self._see(await receive(engine, self.chance.randint(1, 4), wait_s=0.01))
            case 3 | 4 if self.held:
                one = self.held.pop(self.chance.randrange(len(self.held)))
                self.maybe.add(one.message)
                (outcome,) = await engine.settling.settle([SettleRequest(one.handle, "ack")])
                if outcome.error is None:
                    self.acked.add(one.message)
            case 5 if self.held:
                one = self.held.pop()
                await engine.settling.settle([SettleRequest(one.handle, "nack", self.chance.choice([0, 500]))])
            case 6:
                self.clock.advance(self.chance.choice([100, 1_000, 5_000]))
            case 7:
                which = self.chance.choice(["lost_answers", "refused_writes", "none", "none"])
                if which != "none":
                    setattr(store, which, 1)

    def _see(self, delivered: Sequence[Delivered]) -> None:
        for one in delivered:
            assert one.message not in self.acked, f"{one.message} came again after its ack was answered"
            self.got[one.message] += 1
        self.held += delivered


@pytest.mark.parametrize("seed", range(24))
async def test_whatever_happens_nothing_is_lost_and_nothing_settled_comes_again(seed: int, clock: ManualClock) -> None:
    """Restarts, lost answers and refused writes at any time: all is delivered, nothing after its ack succeeded."""
    store, run = await filled(30), Run(seed, clock)
    if seed % 2:
        store.segment_size_bytes = 3_000
    for _ in range(4):
        async with delivering(store, clock) as owner:
            engine = await engine_of(owner)
            await engine.set_policy(GROUP, Policy(is_ordered=bool(seed % 3), attempts_max=1_000))
            for _ in range(25):
                try:
                    await run.step(store, owner)
                except LOST:
                    continue
    async with delivering(store, clock) as owner:
        store.lost_answers = store.refused_writes = 0
        await _drain(run, owner)
    everything = {f"m{number}" for number in range(30)}
    assert run.acked | run.maybe == everything
    assert set(run.got) == everything


@pytest.mark.parametrize("seed", range(100, 104))
async def test_many_at_once_share_everything(seed: int, clock: ManualClock) -> None:
    """Consumers receive, settle and are late at the same time, over a slow index: each message is settled."""
    store, run = await filled(40), Run(seed, clock)
    store.pull_delay_s = 0.003

    async def work(owner: JournalOwner) -> None:
        for _ in range(25):
            try:
                await run.step(store, owner)
            except LOST:
                continue
            await asyncio.sleep(run.chance.choice([0, 0.001, 0.004]))

    async with delivering(store, clock) as owner:
        engine = await engine_of(owner)
        await engine.set_policy(GROUP, Policy(is_ordered=bool(seed % 2), attempts_max=1_000))
        await asyncio.gather(*(work(owner) for _ in range(4)))
        store.lost_answers = store.refused_writes = 0
        store.pull_delay_s = 0.0
        await _drain(run, owner)
    everything = {f"m{number}" for number in range(40)}
    assert run.acked | run.maybe == everything
    assert set(run.got) == everything


async def _drain(run: Run, owner: JournalOwner) -> None:
    engine = await engine_of(owner)
    async with asyncio.timeout(LIMIT_S):
        while True:
            run.clock.advance(1_000)
            found = await receive(engine, 10, wait_s=0.02)
            run._see(found)
            await ack(engine, found)
            run.acked |= {one.message for one in found}
            run.maybe |= {one.message for one in found}
            lags = await engine.lags.of(GROUP)
            if not found and all(lag.committed == lag.max_queue_offset for lag in lags):
                return
