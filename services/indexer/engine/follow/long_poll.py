# SPDX-License-Identifier: Apache-2.0
"""LongPolls: who waits for the next message of which queue.

Invariants: at most `count_max` wait at once; a wake-up ends every wait for its queue; a waiter that goes away leaves
nothing behind. Callers: the event loop's thread. A waiter must look at the queue and begin to wait without an await
in between, otherwise it misses a message; RocketMQ's counterpart is PullRequestHoldService.
"""

import asyncio

from libs.requests.errors import Stopping, WindowFull


class LongPolls:
    """Waiters by topic and queue id."""

    def __init__(self, count_max: int) -> None:
        self._count_max = count_max
        self._waiters: dict[tuple[str, int], set[asyncio.Future[None]]] = {}
        self.is_closed = False
        """Whether the service stops: whoever begins something long asks first."""
        self.count = 0
        """How many wait now."""

    async def wait(self, topic: str, queue_id: int, timeout_s: float) -> None:
        """Wait until the queue has grown, or for this time. Raises WindowFull when too many wait, and Stopping."""
        self.check_open()
        if self.count >= self._count_max:
            raise WindowFull("waiting pulls", limit=self._count_max)
        loop = asyncio.get_running_loop()
        waiter: asyncio.Future[None] = loop.create_future()
        timer = loop.call_later(timeout_s, _end, waiter)
        waiters = self._waiters.setdefault((topic, queue_id), set())
        waiters.add(waiter)
        self.count += 1
        try:
            await waiter
        finally:
            timer.cancel()
            self.count -= 1
            waiters.discard(waiter)
            if not waiters and self._waiters.get((topic, queue_id)) is waiters:
                del self._waiters[topic, queue_id]
        self.check_open()

    def check_open(self) -> None:
        """Raise Stopping after `close`."""
        if self.is_closed:
            raise Stopping

    def wake(self, queues: list[tuple[str, int]]) -> None:
        """End the waits for these queues."""
        for queue in queues:
            for waiter in self._waiters.get(queue, ()):
                _end(waiter)

    def close(self) -> None:
        """End all waits, now and from now on, with Stopping."""
        self.is_closed = True
        self.wake(list(self._waiters))


def _end(waiter: asyncio.Future[None]) -> None:
    if not waiter.done():
        waiter.set_result(None)
