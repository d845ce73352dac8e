# SPDX-License-Identifier: Apache-2.0
"""LongPolls: the calls that wait for the next message of a queue, and the calls that wait for a record to be indexed.

Invariants: at most `count_max` calls of each kind wait at once; a wake-up ends all waits for the new messages and
records; a cancelled wait leaves nothing behind. Callers: the event loop's thread. A caller must check the queue or the
record and begin to wait without an await in between, otherwise it misses a wake-up. RocketMQ's counterpart is
PullRequestHoldService.
"""

import asyncio
import bisect
import itertools
from collections.abc import Iterable
from typing import NamedTuple

from libs.formats.limits import INT64_MAX
from libs.requests.errors import Stopping, WindowFull


class _Awaited(NamedTuple):
    """A record that a call waits for. The number distinguishes calls that wait for the same record."""

    physical_offset: int
    number: int
    waiter: asyncio.Future[None]


class LongPolls:
    """The waiting calls by topic and queue id, and by physical offset."""

    def __init__(self, count_max: int) -> None:
        self.count_max = count_max
        self._waiters: dict[tuple[str, int], set[asyncio.Future[None]]] = {}
        self._awaited: list[_Awaited] = []  # in order of the offsets
        self._numbers = itertools.count()
        self.is_closed = False
        """Whether the service stops. A caller checks it before it begins a long operation."""
        self.count = 0
        """Number of calls that wait for a queue now."""

    async def wait(self, topic: str, queue_id: int, timeout_s: float) -> None:
        """Wait until the queue has grown, at most for this time. Raises WindowFull when too many wait, and Stopping."""
        waiter = self._waiter("waiting pulls", self.count)
        waiters = self._waiters.setdefault((topic, queue_id), set())
        waiters.add(waiter)
        self.count += 1
        try:
            await _end_of(waiter, timeout_s)
        finally:
            self.count -= 1
            waiters.discard(waiter)
            if not waiters and self._waiters.get((topic, queue_id)) is waiters:
                del self._waiters[topic, queue_id]
        self.check_open()

    async def wait_indexed(self, physical_offset: int, timeout_s: float) -> None:
        """Wait until the record at this offset is indexed, at most for this time. Raises the errors of `wait`."""
        awaited = _Awaited(physical_offset, next(self._numbers), self._waiter("waits for a record", len(self._awaited)))
        bisect.insort(self._awaited, awaited)
        try:
            await _end_of(awaited.waiter, timeout_s)
        finally:
            del self._awaited[bisect.bisect_left(self._awaited, awaited)]
        self.check_open()

    def _waiter(self, what: str, count: int) -> asyncio.Future[None]:
        self.check_open()
        if count >= self.count_max:
            raise WindowFull(what, limit=self.count_max)
        return asyncio.get_running_loop().create_future()

    def check_open(self) -> None:
        """Raise Stopping after `close`."""
        if self.is_closed:
            raise Stopping

    def wake(self, queues: Iterable[tuple[str, int]], indexed_physical_offset: int) -> None:
        """End the waits for these queues, and for all records below this offset."""
        for queue in queues:
            for waiter in self._waiters.get(queue, ()):
                _end(waiter)
        for awaited in self._awaited:
            if awaited.physical_offset >= indexed_physical_offset:
                break
            _end(awaited.waiter)

    def look_again(self) -> None:
        """End all waits, as if messages had come."""
        self.wake(self._waiters, INT64_MAX + 1)

    def close(self) -> None:
        """End all waits, now and from now on, with Stopping."""
        self.is_closed = True
        self.look_again()


async def _end_of(waiter: asyncio.Future[None], timeout_s: float) -> None:
    timer = asyncio.get_running_loop().call_later(timeout_s, _end, waiter)
    try:
        await waiter
    finally:
        timer.cancel()


def _end(waiter: asyncio.Future[None]) -> None:
    if not waiter.done():
        waiter.set_result(None)
