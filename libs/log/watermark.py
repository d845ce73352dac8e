# SPDX-License-Identifier: Apache-2.0
"""Watermark: a number that only grows, such as the end of what is on the disk, and those who wait for it.

Invariants: `value` never goes back; who waits is told in the order of the numbers, and not before `value` is there.
After `fail` the number can't be believed to grow any more: those who asked for more are told so, now or later, and
those who only look on wait for ever.
Callers: one event loop. Moving a mark that nobody waits for costs two comparisons.
"""

import asyncio
import bisect
from typing import NamedTuple

CROWD_COUNT = 64
"""With so many who wait those are looked for who have given up."""


class _Waiter(NamedTuple):
    end: int
    future: asyncio.Future[None]
    has_asked: bool


class Watermark:
    """`wanted` is how far somebody needs it; `is_asked` is set when that grows, for whoever moves the mark."""

    __slots__ = ("_crowd_count", "_failure", "_waiters", "is_asked", "value", "wanted")

    def __init__(self, value: int = 0) -> None:
        self.value = value
        self.wanted = value
        self.is_asked = asyncio.Event()
        self._waiters: list[_Waiter] = []
        self._crowd_count = CROWD_COUNT
        self._failure: type[Exception] | None = None

    @property
    def is_wanted(self) -> bool:
        """Whether somebody needs more than is there."""
        return self.wanted > self.value

    def hurry(self, end: int) -> None:
        """Ask whoever moves the mark to reach `end` soon."""
        if end > self.wanted:
            self.wanted = end
            self.is_asked.set()

    def soon(self, end: int) -> asyncio.Future[None]:
        """Call `hurry`. Returns a future that is done when `end` is reached, and failed when it will not be reached."""
        self.hurry(end)
        return self._wait(end, has_asked=True)

    def reached(self, end: int) -> asyncio.Future[None]:
        """Return a future that is done when `end` is reached, without asking for it. Whoever gives up cancels it."""
        return self._wait(end, has_asked=False)

    def advance(self, value: int) -> None:
        """Move the mark up to `value`. A mark that is there already stays."""
        if value <= self.value:
            return
        self.value = value
        if self._waiters and self._waiters[0].end <= value:
            count = bisect.bisect_right(self._waiters, value, key=_end)
            served, self._waiters = self._waiters[:count], self._waiters[count:]
            for waiter in served:
                if not waiter.future.done():
                    waiter.future.set_result(None)

    def fail(self, failure: type[Exception]) -> None:
        """Tell all who asked for more, now or later, that it will not come."""
        self._failure = failure
        waiters, self._waiters = self._waiters, [waiter for waiter in self._waiters if not waiter.has_asked]
        for waiter in waiters:
            if waiter.has_asked and not waiter.future.done():
                _refuse(waiter.future, failure)

    def _wait(self, end: int, *, has_asked: bool) -> asyncio.Future[None]:
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        if end <= self.value:
            future.set_result(None)
        elif has_asked and self._failure is not None:
            _refuse(future, self._failure)
        else:
            self._forget_who_gave_up()
            bisect.insort(self._waiters, _Waiter(end, future, has_asked), key=_end)
        return future

    def _forget_who_gave_up(self) -> None:
        if len(self._waiters) >= self._crowd_count:
            self._waiters = [waiter for waiter in self._waiters if not waiter.future.done()]
            self._crowd_count = 2 * len(self._waiters) + CROWD_COUNT


def _end(waiter: _Waiter) -> int:
    return waiter.end


def _refuse(future: asyncio.Future[None], failure: type[Exception]) -> None:
    future.set_exception(failure)
    future.exception()  # whoever gave up waiting does not ask for it
