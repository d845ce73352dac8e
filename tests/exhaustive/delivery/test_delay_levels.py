# SPDX-License-Identifier: Apache-2.0
"""Messages with a delay level over random faults."""

import asyncio
import contextlib
import random
from collections import Counter
from collections.abc import Iterator

import pytest

from libs.machine.testing.manual_clock import ManualClock
from services.delivery.engine.delays import level as level_module
from tests.support.memory_delivery import LOST, MemoryStore, delivering, engine_of
from tests.support.patience import eventually

LONG_MS = 1 << 40


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def store() -> MemoryStore:
    return MemoryStore(queue_count=8)


@pytest.fixture(autouse=True)
def _hurried(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tests move the clock by hand, so the levels look at it often."""
    monkeypatch.setattr(level_module, "PAUSE_S_MAX", 0.01)
    monkeypatch.setattr(level_module, "BACKOFF_MS_MAX", 150)
    monkeypatch.setattr(level_module, "BEHIND_S", 0.01)


def _faults(store: MemoryStore, chance: random.Random) -> Iterator[None]:
    while True:
        match chance.randrange(4):
            case 0:
                store.lost_answers = 1
            case 1:
                store.refused_writes = 1
            case 2:
                store.next += 1
            case _:
                pass
        yield


@pytest.mark.parametrize("seed", range(8))
async def test_each_once_whatever_fails(store: MemoryStore, clock: ManualClock, seed: int) -> None:
    """Lost answers, refused writes and other owners neither lose nor repeat a message, and keep the order."""
    chance = random.Random(seed)
    faults, sent = _faults(store, chance), 0
    for _ in range(6):
        async with delivering(store, clock) as owner:
            with contextlib.suppress(*LOST):
                await engine_of(owner)
            for _ in range(chance.randrange(1, 12)):
                await store.levels.send(1 + chance.randrange(2), str(sent), clock.now_ms())
                sent += 1
                clock.advance(chance.randrange(3_000))
                next(faults)
                await asyncio.sleep(chance.random() * 0.02)
    store.lost_answers = store.refused_writes = 0
    clock.advance(LONG_MS)
    async with delivering(store, clock):
        await eventually(lambda: len(store.levels.texts()) >= sent)
    assert Counter(store.levels.texts()) == Counter(map(str, range(sent)))
    for queue_id, queue in store.levels.queues.items():
        mine = [one.message.text for one in queue]
        assert [text for text in store.levels.texts() if text in set(mine)] == mine, queue_id
