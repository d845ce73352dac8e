# SPDX-License-Identifier: Apache-2.0
"""InflightBudget: bounds the requests in flight, so that slow disks and slow callers cost time and not memory.

Callers: the loop that owns the log. Each `charge` is followed by a `give_back` of the same amount.
"""

import asyncio
import contextlib
from collections import deque
from collections.abc import Iterator

from libs.requests.errors import WindowFull


class InflightBudget:
    """A budget of bytes or of streams. `what` names it in error messages."""

    def __init__(self, what: str, limit: int) -> None:
        self.charged = 0
        self._what = what
        self._limit = limit
        self._waiters: deque[tuple[int, asyncio.Future[None]]] = deque()

    def charge(self, amount: int) -> None:
        """Charge at once. An amount above the limit is accepted while nothing else is charged. Raises WindowFull."""
        if not self._fits(amount):
            raise WindowFull(f"{self._what} in flight", limit=self._limit)
        self.charged += amount

    async def charge_waiting(self, amount: int) -> None:
        """Charge after all earlier waiters. An amount above the limit waits until everything has been given back."""
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
        """Give back an amount, and charge for the first waiters that now fit."""
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

    @contextlib.contextmanager
    def held_anyway(self, amount: int) -> Iterator[None]:
        """Charge for the time of a block, also above the limit, because the amount was accepted before."""
        self.charged += amount
        try:
            yield
        finally:
            self.give_back(amount)

    def _fits(self, amount: int) -> bool:
        return self.charged == 0 or self.charged + amount <= self._limit
