# SPDX-License-Identifier: Apache-2.0
"""Watermark: a number that only grows, such as the end of the synced bytes, with its waiters.

Invariants: `value` never falls. Waiters are notified in the order of their numbers, and only when `value` has reached
the number. After `fail` the number is not expected to grow any more: waiters that asked for more get the failure, now
or later, and waiters that only observe wait for ever.
Callers: a single event loop. To advance a mark without waiters costs two comparisons.
"""

import asyncio
import bisect
from operator import itemgetter

CROWD_COUNT = 64
"""With so many waiters, the cancelled waiters are removed."""

_END = itemgetter(0)


class Watermark:
    """A number that only grows. `wanted` is the highest requested number. When it grows, `is_asked` is set."""

    __slots__ = ("_crowd_count", "_failure", "_waiters", "is_asked", "value", "wanted")

    def __init__(self, value: int = 0) -> None:
        self.value = value
        self.wanted = value
        self.is_asked = asyncio.Event()
        self._waiters: list[tuple[int, asyncio.Future[None], bool]] = []
        """Sorted by number: the number, the waiter's future, and whether the waiter has asked for the number."""
        self._crowd_count = CROWD_COUNT
        self._failure: type[Exception] | None = None

    @property
    def is_wanted(self) -> bool:
        """Whether a higher number than the present value is requested."""
        return self.wanted > self.value

    def hurry(self, end: int) -> None:
        """Ask the mark's writer to reach `end` soon."""
        if end > self.wanted:
            self.wanted = end
            self.is_asked.set()

    def soon(self, end: int) -> asyncio.Future[None]:
        """Call `hurry`. Returns a future that is done when `end` is reached, and failed when it will not be reached."""
        self.hurry(end)
        return self._wait(end, has_asked=True)

    def reached(self, end: int) -> asyncio.Future[None]:
        """Return a future that is done when `end` is reached, without a request. A caller that gives up cancels it."""
        return self._wait(end, has_asked=False)

    def advance(self, value: int) -> None:
        """Raise the mark to `value`. A mark that is as high already does not change."""
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
        """Fail the futures of all callers that asked for more, now or later."""
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
    future.exception()  # a caller that gave up does not retrieve the error
