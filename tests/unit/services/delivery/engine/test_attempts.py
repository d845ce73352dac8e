# SPDX-License-Identifier: Apache-2.0
"""A receive that is repeated under its id gets what it was given, as far as that is still its own."""

from typing import Any

import pytest

from libs.formats.records.delivery_record import Policy
from libs.machine.testing.manual_clock import ManualClock
from services.delivery.engine import attempts
from services.delivery.engine.attempts import Attempt, Attempts
from services.delivery.engine.owned import Owned, Wish
from services.delivery.engine.ports import Wanted
from services.delivery.engine.subscription import Delivered
from services.delivery.errors import HandleOutdated
from tests.support.memory_delivery import MemoryStore, delivering, owned_of
from tests.support.patience import LIMIT_S


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


async def receive(owned: Owned, attempt_id: str, **more: Any) -> list[Delivered]:
    """Receive some messages of the topic."""
    words = {"count": 3, "invisible_ms": 1_000, "wanted": Wanted("*"), "wait_s": LIMIT_S, "attempt_id": attempt_id}
    return await owned.receive("g", "t", **(words | more))


async def test_the_same_again(clock: ManualClock) -> None:
    """In the same attempt, under new handles; what was settled, or is due, is not among them; others get others."""
    store = MemoryStore(queue_count=1)
    for number in range(6):
        await store.append("t", f"m{number}", key=number % 3 + 1)
    async with delivering(store, clock) as ownership:
        owned = await owned_of(ownership)
        first = await receive(owned, "a")
        assert [one.message for one in first] == ["m0", "m1", "m2"]
        same = await receive(owned, "a")
        assert [(one.message, one.attempt) for one in same] == [("m0", 1), ("m1", 1), ("m2", 1)]
        (outcome,) = await owned.settle([Wish(first[0].handle, "nack", delay_ms=0)])  # by whoever noticed late
        assert isinstance(outcome.error, HandleOutdated)
        assert [one.message for one in await receive(owned, "b")] == ["m3", "m4", "m5"]
        await owned.settle([Wish(same[1].handle, "ack")])
        assert [one.message for one in await receive(owned, "a")] == ["m0", "m2"]
        clock.advance(1_500)
        again = await receive(owned, "c", count=6)
        assert {one.message: one.attempt for one in again} == dict.fromkeys(("m0", "m2", "m3", "m4", "m5"), 2)
        assert await receive(owned, "a", wait_s=0.05) == []
        assert [one.message for one in await receive(owned, "c")] == [one.message for one in again]


async def test_an_ordered_group_does_not_stand_still(clock: ManualClock) -> None:
    """What follows in order waits for the message whose answer was lost, and that comes at once."""
    store = MemoryStore(queue_count=1)
    for number in range(2):
        await store.append("t", f"m{number}", key=7)
    async with delivering(store, clock) as ownership:
        owned = await owned_of(ownership)
        await owned.set_policy("g", Policy(is_ordered=True))
        lost = await receive(owned, "a")
        assert [one.message for one in lost] == ["m0"]
        assert await receive(owned, "b", wait_s=0.05) == []
        (same,) = await receive(owned, "a")
        await owned.settle([Wish(same.handle, "ack")])
        assert [one.message for one in await receive(owned, "b")] == ["m1"]


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
