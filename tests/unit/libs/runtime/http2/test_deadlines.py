# SPDX-License-Identifier: Apache-2.0
"""Deadlines: each passes once, not before its time, unless it is taken back; and between them nothing happens."""

import asyncio
import random
from collections.abc import Awaitable, Callable

import pytest
import uvloop

from libs.runtime.http2.deadlines import TICK_S, Deadlines
from tests.support.patience import eventually


class Bound:
    """Notes when it expired, and does something then."""

    def __init__(self, then: Callable[[], None] = lambda: None) -> None:
        self.times_s: list[float] = []
        self.expired = asyncio.Event()
        self._then = then

    def expire(self) -> None:
        """See libs.runtime.http2.deadlines.Bound."""
        self.times_s.append(asyncio.get_running_loop().time())
        self.expired.set()
        self._then()


@pytest.fixture(params=[asyncio.new_event_loop, uvloop.new_event_loop], ids=["asyncio", "uvloop"])
def run(request: pytest.FixtureRequest) -> Callable[[Awaitable[None]], None]:
    """Run something in a loop of either kind."""

    def in_loop(work: Awaitable[None]) -> None:
        with asyncio.Runner(loop_factory=request.param) as runner:
            runner.run(work)  # type: ignore[arg-type]  # each is a coroutine

    return in_loop


def test_each_passes_once_and_not_early(run: Callable[[Awaitable[None]], None]) -> None:
    """Deadlines pass once and not early, in any order of setting; deadlines that are taken back do not pass."""

    async def work() -> None:
        deadlines, chance = Deadlines(), random.Random(1)
        now_s = asyncio.get_running_loop().time
        kept, taken = [], []
        for number in range(300):
            bound, timeout_s = Bound(), chance.uniform(0, 0.3)
            due_s = now_s() + timeout_s
            tick = deadlines.set(bound, timeout_s)
            if number % 3:
                kept.append((bound, due_s))
            else:
                deadlines.take_back(bound, tick)
                taken.append(bound)
            if number % 50 == 0:
                await asyncio.sleep(0.01)
        await eventually(lambda: all(bound.times_s for bound, _ in kept))
        assert all(len(bound.times_s) == 1 and bound.times_s[0] >= due_s for bound, due_s in kept)
        assert not any(bound.times_s for bound in taken)

    run(work())


def test_what_expires_sets_others_and_takes_them_back(run: Callable[[Awaitable[None]], None]) -> None:
    """A deadline that is set by an expiry hides no earlier deadline, and all pass in order, also in a late loop."""

    async def work() -> None:
        deadlines, passed = Deadlines(), []
        gone = Bound(lambda: passed.append("gone"))
        tick = deadlines.set(gone, 4 * TICK_S)
        deadlines.set(Bound(lambda: passed.append("middle")), 3 * TICK_S)

        def change() -> None:
            passed.append("first")
            deadlines.take_back(gone, tick)
            deadlines.set(Bound(lambda: passed.append("late")), 8 * TICK_S)

        deadlines.set(Bound(change), 0)
        await eventually(lambda: "late" in passed)
        assert passed == ["first", "middle", "late"]

    run(work())


def test_nothing_happens_in_between(monkeypatch: pytest.MonkeyPatch) -> None:
    """A far deadline costs a single timer; a deadline that was taken back costs another."""

    async def work() -> None:
        loop, deadlines, far, near = asyncio.get_running_loop(), Deadlines(), Bound(), Bound()
        timers: list[float] = []

        def counted(when: float, callback: Callable[[], None]) -> asyncio.TimerHandle:
            timers.append(when)
            return asyncio.BaseEventLoop.call_at(loop, when, callback)  # type: ignore[arg-type]  # it is one

        monkeypatch.setattr(loop, "call_at", counted)
        deadlines.set(far, 10 * TICK_S)
        deadlines.take_back(near, deadlines.set(near, 4 * TICK_S))
        await far.expired.wait()
        first_s, second_s, *again_s = timers
        assert second_s < first_s
        assert again_s in ([first_s], [])  # a loop that was held up so long finds both due

    asyncio.run(work())


def test_nothing_passes_after_the_end(run: Callable[[Awaitable[None]], None]) -> None:
    """After the close neither earlier nor later deadlines pass."""

    async def work() -> None:
        deadlines, bounds = Deadlines(), [Bound(), Bound()]
        deadlines.set(bounds[0], 2 * TICK_S)
        deadlines.close()
        deadlines.set(bounds[1], 0)
        await asyncio.sleep(4 * TICK_S)
        assert not any(bound.times_s for bound in bounds)

    run(work())
