# SPDX-License-Identifier: Apache-2.0
"""Transactions over random restarts, lost answers, refused writes and repeated messages."""

import random

import pytest

from libs.formats.records.transaction_record import COMMIT, PARKED, ROLLBACK
from libs.machine.testing.manual_clock import ManualClock
from services.delivery.engine.own.journal_owner import JournalOwner
from services.delivery.engine.transactions import transactions
from services.delivery.engine.transactions.transactions import Transactions
from services.delivery.errors import TransactionEnded
from tests.support.memory_delivery import LOST, MemoryStore, delivering
from tests.support.patience import LIMIT_S, eventually
from tests.support.transaction_calls import FIRST_MS, INTERVAL_MS, asked, of, seen


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture(autouse=True)
def patiently(monkeypatch: pytest.MonkeyPatch) -> None:
    """Waits for the index are long, except in tests about these waits."""
    monkeypatch.setattr(transactions, "INDEXED_WAIT_S", LIMIT_S)


class Run:
    """Random producers and faults from a seed, and the rules that always hold."""

    def __init__(self, seed: int, store: MemoryStore, clock: ManualClock) -> None:
        self.chance = random.Random(seed)
        self.store, self.clock = store, clock
        self.begun: list[str] = []
        self.wanted: dict[str, set[str]] = {}
        """The requested ends of transactions, answered or not."""
        self.answered: dict[str, str] = {}

    async def step(self, owner: JournalOwner) -> None:
        subject = await of(owner)
        match self.chance.randrange(9):
            case 0 | 1:
                self.begun.append(f"m{len(self.begun)}")
                await self.store.transactions.begin(self.begun[-1])
            case 2 if self.begun:
                await self.store.transactions.begin(self.chance.choice(self.begun))  # it was repeated
            case 3 | 4 if self.begun:
                await self.end(subject, self.chance.choice(self.begun), self.chance.choice([COMMIT, ROLLBACK]))
            case 5:
                for name in await asked(subject, wait_s=0.01):
                    if self.chance.random() < 0.5:
                        await self.end(subject, name, self.chance.choice([COMMIT, ROLLBACK]))
            case 6:
                self.clock.advance(self.chance.choice([1_000, FIRST_MS, INTERVAL_MS]))
                await subject.run_maintenance()
            case 7:
                await subject.run_maintenance()
            case 8:
                which = self.chance.choice(["lost_answers", "refused_writes", "none"])
                if which != "none":
                    setattr(self.store, which, 1)
        self.judge()

    async def end(self, subject: Transactions, name: str, how: str) -> None:
        self.wanted.setdefault(name, set()).add(how)
        ended_as = how
        try:
            await subject.end(name, "p", how)
        except TransactionEnded as error:
            ended_as = error.ended_as
        assert self.answered.setdefault(name, ended_as) == ended_as, f"{name} ended twice"

    def judge(self) -> None:
        visible = seen(self.store)
        assert len(visible) == len(set(visible)), f"seen twice: {sorted(visible)}"
        assert all(COMMIT in self.wanted.get(name, ()) for name in visible), "seen without a commit"
        assert {name for name, how in self.answered.items() if how == COMMIT} <= set(visible)
        assert not any(how != COMMIT and name in visible for name, how in self.answered.items())


@pytest.mark.parametrize("seed", range(12))
async def test_whatever_dies_each_commit_is_seen_once_and_each_orphan_ends(
    seed: int, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Restarts, lost answers, refused writes and repeated messages between all steps."""
    monkeypatch.setattr(transactions, "INDEXED_WAIT_S", 0.3)  # a process that is replaced reads no more
    store = MemoryStore()
    run = Run(seed, store, clock)
    if seed % 2:
        store.segment_size_bytes = 2_000
    settings = {"transaction_check_count_max": 3}
    for _ in range(4):
        async with delivering(store, clock, **settings) as owner:
            for _ in range(25):
                try:
                    await run.step(owner)
                except LOST:
                    continue
    store.lost_answers = store.refused_writes = 0
    monkeypatch.setattr(transactions, "INDEXED_WAIT_S", LIMIT_S)
    async with delivering(store, clock, **settings) as owner:
        await _until_none_is_open(run, owner)
        run.judge()
        ends = [await _how(owner, name) for name in run.begun]
    parked = seen(store, "TRANS_CHECK_MAX_TIME_TOPIC")
    assert len(parked) == len(set(parked))
    assert sorted(name for name, how in zip(run.begun, ends, strict=True) if how == PARKED) == sorted(parked)
    assert sorted(name for name, how in zip(run.begun, ends, strict=True) if how == COMMIT) == sorted(seen(store))


async def _until_none_is_open(run: Run, owner: JournalOwner) -> None:
    subject = await of(owner)
    for _ in range(12):
        run.clock.advance(INTERVAL_MS)
        await eventually(lambda: subject.table.read_to == len(run.store.transactions.records))
        await subject.run_maintenance()
    assert subject.table.count == 0
    assert subject.table.floors()[0] == len(run.store.transactions.records)


async def _how(owner: JournalOwner, name: str) -> str:
    subject = await of(owner)
    try:
        await subject.end(name, "p", ROLLBACK)
    except TransactionEnded as error:
        return error.ended_as
    return ROLLBACK
