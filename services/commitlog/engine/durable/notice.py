# SPDX-License-Identifier: Apache-2.0
"""EndNotice: tells those who follow the log that its end has moved.

A notice may be missed or late, so nobody relies on it alone: `wait` ends at its time-out too, and callers look for
themselves. Notifying costs one test while nobody waits. Callers: the loop that owns the log.
"""

import asyncio


class EndNotice:
    """Wakes every waiter at once."""

    def __init__(self) -> None:
        self._waiters: dict[asyncio.Future[None], None] = {}

    def notify(self) -> None:
        """Wake all who wait now."""
        if self._waiters:
            waiters, self._waiters = self._waiters, {}
            for waiter in waiters:
                if not waiter.done():
                    waiter.set_result(None)

    async def wait(self, timeout_s: float) -> None:
        """Return at the next notice, at the latest after the time-out."""
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiters[waiter] = None
        try:
            async with asyncio.timeout(timeout_s):
                await waiter
        except TimeoutError:
            pass
        finally:
            self._waiters.pop(waiter, None)
