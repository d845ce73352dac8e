# SPDX-License-Identifier: Apache-2.0
"""The coordinator, and LateDoor: a process' door to it. Requests and answers take their time, and get lost.

Invariants: a request that was sent may be carried out at any later moment, even if its sender is gone; the first view
that a member gets may be old, as from a coordinator's member that lags.
"""

import asyncio
import contextlib
import contextvars
from collections.abc import AsyncGenerator, Callable, Coroutine
from typing import Any, TypeVar

from libs.formats.state.leadership import LeadershipRecord
from services.commitlog.engine.elect.coordinator import CoordinatorUnavailable, View
from tests.crash.sim.loop import SimulatedLoop
from tests.support.memory_coordinator import Door, MemoryCoordinator

T = TypeVar("T")

TIMEOUT_S = 1.0
DELAYS_S = (0.0, 0.001, 0.001, 0.02)
OLD_RATIO, OLD_COUNT = 0.1, 4
"""The share of watches that begin with an older view, and the number of older views."""
LATE_S = (0.5, 0.9, 3.0, 9.0)


class WatchedCoordinator(MemoryCoordinator):
    """Tells of each change, with the former value, and of each end of a lease, before it."""

    def __init__(
        self,
        tell: Callable[[View, View], None],
        tell_end: Callable[[View], None],
        lease_s: float,
        now_s: Callable[[], float],
    ) -> None:
        super().__init__(lease_s, now_s)
        self._tell_of, self._tell_end = tell, tell_end
        self.history: list[View] = []
        self.loses_change: Callable[[LeadershipRecord], None] | None = None
        """Hears of the next change within a term, whose answer gets lost."""

    def put(self, seen: View, record: LeadershipRecord, holder: str, *, keeps: bool) -> View:
        """See `MemoryCoordinator`."""
        before = self.there
        after = super().put(seen, record, holder, keeps=keeps)
        self.history.append(after)
        self._tell_of(before, after)
        return after

    def expire(self) -> None:
        """See `MemoryCoordinator`."""
        self._tell_end(self._there)
        super().expire()


class LateDoor(Door):
    """`late_ratio` is how many of its requests, of their answers and of the views that it watches are much too late."""

    def __init__(self, coordinator: WatchedCoordinator, identity: str, loop: SimulatedLoop) -> None:
        super().__init__(coordinator, identity)
        self._watched = coordinator
        self._loop = loop
        self.late_ratio = 0.0
        self.unknown_count = 0

    async def read(self) -> View:
        """See `Coordinator`."""
        return await self._sent(super().read())

    async def watch(self) -> AsyncGenerator[View, None]:
        """See `Coordinator`."""
        chance = self._loop.chance
        history = self._watched.history
        if history and chance.random() < max(self.late_ratio, OLD_RATIO):
            yield chance.choice(history[-OLD_COUNT:])
        async with contextlib.aclosing(super().watch()) as views:
            async for view in views:
                if self.late_ratio and chance.random() < self.late_ratio:
                    await asyncio.sleep(chance.choice(LATE_S))
                yield view

    async def elect(self, seen: View, record: LeadershipRecord) -> View:
        """See `Coordinator`."""
        return await self._sent(super().elect(seen, record))

    async def renew(self) -> None:
        """See `Coordinator`."""
        await self._sent(super().renew())

    async def change(self, seen: View, record: LeadershipRecord) -> View:
        """See `Coordinator`."""
        view = await self._sent(super().change(seen, record))
        tell, self._watched.loses_change = self._watched.loses_change, None
        if tell is not None:
            tell(record)
            raise CoordinatorUnavailable("the answer is lost")
        return view

    async def release(self, seen: View, record: LeadershipRecord) -> None:
        """See `Coordinator`."""
        await self._sent(super().release(seen, record))

    async def _sent(self, call: Coroutine[Any, Any, T]) -> T:
        chance = self._loop.chance
        is_late = chance.random() < self.late_ratio
        before_s, after_s = chance.choice(LATE_S if is_late else DELAYS_S), chance.choice(DELAYS_S)
        if is_late and chance.random() < 0.5:  # the answer is late, not the request
            before_s, after_s = after_s, before_s
        task = contextvars.Context().run(self._loop.create_task, _late(call, before_s, after_s))
        task.add_done_callback(_heard)
        done, _ = await asyncio.wait([task], timeout=TIMEOUT_S)
        if not done:
            self.unknown_count += 1
            raise CoordinatorUnavailable("no answer in time")
        return task.result()


async def _late(call: Coroutine[Any, Any, T], before_s: float, after_s: float) -> T:
    await asyncio.sleep(before_s)
    result = await call
    await asyncio.sleep(after_s)
    return result


def _heard(task: asyncio.Task[Any]) -> None:
    """Fetch the exception of a task for which possibly no caller waited."""
    if not task.cancelled():
        task.exception()
