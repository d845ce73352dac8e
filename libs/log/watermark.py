# SPDX-License-Identifier: Apache-2.0
"""Watermark: a number that only grows, such as the end of what is on the disk, and those who wait for it.

Invariants: `value` never goes back; who waits is told in the order of the numbers, and not before `value` is there.
After `fail` the number can't be believed to grow any more: those who asked for more are told so, now or later, and
those who only look on wait for ever.
Callers: one event loop. Moving a mark that nobody waits for costs two comparisons.
"""

import asyncio
import bisect
from operator import itemgetter

CROWD_COUNT = 64
"""With so many who wait those are looked for who have given up."""

_END = itemgetter(0)


class Watermark:
    """`wanted` is how far somebody needs it; `is_asked` is set when that grows, for whoever moves the mark."""

    __slots__ = ("_crowd_count", "_failure", "_waiters", "is_asked", "value", "wanted")

    def __init__(self, value: int = 0) -> None:
        self.value = value
        self.wanted = value
        self.is_asked = asyncio.Event()
        self._waiters: list[tuple[int, asyncio.Future[None], bool]] = []
        """By number: up to where somebody waits, and whether he has asked for it."""
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
        if self._waiters and self._waiters[0][0] <= value:
            count = bisect.bisect_right(self._waiters, value, key=_END)
            served, self._waiters = self._waiters[:count], self._waiters[count:]
            for _, future, _ in served:
                if not future.done():
                    future.set_result(None)

    def fail(self, failure: type[Exception]) -> None:
        """Tell all who asked for more, now or later, that it will not come."""
        self._failure = failure
        for _, future, has_asked in self._waiters:
            if has_asked and not future.done():
                _refuse(future, failure)
        self._forget_who_is_done()

    def _wait(self, end: int, *, has_asked: bool) -> asyncio.Future[None]:
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        if end <= self.value:
            future.set_result(None)
        elif has_asked and self._failure is not None:
            _refuse(future, self._failure)
        else:
            if len(self._waiters) >= self._crowd_count:
                self._forget_who_is_done()
            bisect.insort(self._waiters, (end, future, has_asked), key=_END)
        return future

    def _forget_who_is_done(self) -> None:
        self._waiters = [waiter for waiter in self._waiters if not waiter[1].done()]
        self._crowd_count = 2 * len(self._waiters) + CROWD_COUNT


def _refuse(future: asyncio.Future[None], failure: type[Exception]) -> None:
    future.set_exception(failure)
    future.exception()  # whoever gave up waiting does not ask for it
