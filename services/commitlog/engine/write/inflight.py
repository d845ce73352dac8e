# SPDX-License-Identifier: Apache-2.0
"""InflightBudget: bounds what waits at once, so that slow disks and slow callers cost waiting and not memory.

Callers: the loop that owns the log. Every `charge` is followed by one `give_back` of the same amount.
"""

import asyncio
import contextlib
from collections import deque
from collections.abc import Iterator

from libs.requests.errors import WindowFull


class InflightBudget:
    """An amount that may be charged, of bytes or of streams. `what` names it in messages."""

    def __init__(self, what: str, limit: int) -> None:
        self.charged = 0
        self._what = what
        self._limit = limit
        self._waiters: deque[tuple[int, asyncio.Future[None]]] = deque()

    def charge(self, amount: int) -> None:
        """Charge at once. Raises WindowFull. An amount above the limit is let through alone."""
        if not self._fits(amount):
            raise WindowFull(f"{self._what} in flight", limit=self._limit)
        self.charged += amount

    async def charge_waiting(self, amount: int) -> None:
        """Charge, after waiting for those who came before. An amount above the limit waits for all to be given back."""
        if not self._waiters and self._fits(amount):
            self.charged += amount
            return
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiters.append((amount, future))
        try:
            await future
        except asyncio.CancelledError:
            if future.done() and not future.cancelled():
                self.give_back(amount)
            raise

    def give_back(self, amount: int) -> None:
        """Give back, and let those go on for whom it is enough."""
        self.charged -= amount
        assert self.charged >= 0
        while self._waiters and (self._waiters[0][1].done() or self._fits(self._waiters[0][0])):
            waiting, future = self._waiters.popleft()
            if not future.done():
                self.charged += waiting
                future.set_result(None)

    @contextlib.contextmanager
    def held(self, amount: int) -> Iterator[None]:
        """Charge at once for the time of a block. Raises WindowFull."""
        self.charge(amount)
        try:
            yield
        finally:
            self.give_back(amount)

    def _fits(self, amount: int) -> bool:
        return self.charged == 0 or self.charged + amount <= self._limit
