# SPDX-License-Identifier: Apache-2.0
"""A receive that is repeated under its id gets its messages again, as far as they are still its own."""

from typing import Any

import pytest

from libs.formats.records.delivery_record import Policy
from libs.machine.testing.manual_clock import ManualClock
from services.delivery.engine.own.group_engine import GroupEngine
from services.delivery.engine.ports.messages import Wanted
from services.delivery.engine.receive.batch import Delivered
from services.delivery.engine.receive.settling import SettleRequest
from services.delivery.engine.state import attempts
from services.delivery.engine.state.attempts import Attempt, Attempts
from services.delivery.errors import HandleOutdated
from tests.support.memory_delivery import MemoryStore, delivering, engine_of
from tests.support.patience import LIMIT_S


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


async def receive(engine: GroupEngine, attempt_id: str, **more: Any) -> list[Delivered]:
    """Receive some messages of the topic."""
    words = {"count": 3, "invisible_ms": 1_000, "wanted": Wanted("*"), "wait_s": LIMIT_S, "attempt_id": attempt_id}
    return await engine.receive("g", "t", **(words | more))


async def test_the_same_again(clock: ManualClock) -> None:
    """In the same attempt, under new handles, without settled and due messages; other receives get other messages."""
    store = MemoryStore(queue_count=1)
    for number in range(6):
        await store.append("t", f"m{number}", key=number % 3 + 1)
    async with delivering(store, clock) as owner:
        engine = await engine_of(owner)
        first = await receive(engine, "a")
        assert [one.message for one in first] == ["m0", "m1", "m2"]
        same = await receive(engine, "a")
        assert [(one.message, one.attempt) for one in same] == [("m0", 1), ("m1", 1), ("m2", 1)]
        # A late nack with the former handle.
        (outcome,) = await engine.settling.settle([SettleRequest(first[0].handle, "nack", delay_ms=0)])
        assert isinstance(outcome.error, HandleOutdated)
        assert [one.message for one in await receive(engine, "b")] == ["m3", "m4", "m5"]
        await engine.settling.settle([SettleRequest(same[1].handle, "ack")])
        assert [one.message for one in await receive(engine, "a")] == ["m0", "m2"]
        clock.advance(1_500)
        again = await receive(engine, "c", count=6)
        assert {one.message: one.attempt for one in again} == dict.fromkeys(("m0", "m2", "m3", "m4", "m5"), 2)
        assert await receive(engine, "a", wait_s=0.05) == []
        assert [one.message for one in await receive(engine, "c")] == [one.message for one in again]


def test_more_handles_than_are_kept(clock: ManualClock) -> None:
    """A receive with more messages than all receives together may have is not kept, without an error."""
    kept, attempt = Attempts(clock), Attempt("g", "t", "a")
    kept.note(attempt, ["h"] * (attempts.HANDLE_COUNT_MAX + 1))
    assert not kept.handles(attempt)


async def test_an_ordered_group_does_not_stand_still(clock: ManualClock) -> None:
    """Later messages of a key wait for the message whose answer was lost, and a repeated receive gets it at once."""
    store = MemoryStore(queue_count=1)
    for number in range(2):
        await store.append("t", f"m{number}", key=7)
    async with delivering(store, clock) as owner:
        engine = await engine_of(owner)
        await engine.set_policy("g", Policy(is_ordered=True))
        lost = await receive(engine, "a")
        assert [one.message for one in lost] == ["m0"]
        assert await receive(engine, "b", wait_s=0.05) == []
        (same,) = await receive(engine, "a")
        await engine.settling.settle([SettleRequest(same.handle, "ack")])
        assert [one.message for one in await receive(engine, "b")] == ["m1"]


def test_what_is_remembered_is_bounded(clock: ManualClock, monkeypatch: pytest.MonkeyPatch) -> None:
    """By time, by receives, and by messages."""
    monkeypatch.setattr(attempts, "COUNT_MAX", 3)
    monkeypatch.setattr(attempts, "HANDLE_COUNT_MAX", 10)
    subject = Attempts(clock)
    names = [Attempt("g", "t", str(number)) for number in range(6)]

    def known() -> list[int]:
        return [number for number, name in enumerate(names) if subject.handles(name)]

    for name in names[:4]:
        subject.note(name, ["h"])
    assert known() == [1, 2, 3]
    subject.note(names[4], ["h"] * 9)
    assert known() == [3, 4]
    subject.note(names[4], ["h"] * 2)
    assert known() == [3, 4]
    clock.advance(round(attempts.KEPT_S * 1000) + 1)
    subject.note(names[5], ["h"])
    assert known() == [5]
