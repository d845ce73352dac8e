# SPDX-License-Identifier: Apache-2.0
"""Deadlines: what is to happen later unless it is taken back, which most of it is.

One timer for all: setting a deadline and taking it back cost a look into a table. It passes some `TICK_S` late.
The timer is set for the first deadline there is, or for one that was there and was taken back since.
Callers: one event loop.
"""

import asyncio
from collections.abc import Callable
from typing import Final, Protocol

TICK_S: Final = 0.02

ROUNDING_S: Final = 0.001
"""A loop counts its timers in milliseconds: one that came too early would look in vain."""


class Bound(Protocol):
    """What a deadline ends."""

    def expire(self) -> None:
        """The deadline has passed."""
        ...


class Deadlines:
    """See the module."""

    def __init__(self) -> None:
        self._ticks: dict[int, set[Bound]] = {}
        self._now_s: Callable[[], float] = asyncio.get_running_loop().time
        self._timer: asyncio.TimerHandle | None = None
        self._is_closed = False
        self._timer_tick = 0
        """For which tick the timer is set; it means nothing without a timer."""

    def set(self, bound: Bound, timeout_s: float) -> int:
        """Let `bound` expire after so many seconds. Returns the tick to take it back with."""
        tick = int((self._now_s() + timeout_s) / TICK_S) + 1
        waiting = self._ticks.get(tick)
        if waiting is None:
            waiting = self._ticks[tick] = set()
        waiting.add(bound)
        if (self._timer is None or tick < self._timer_tick) and not self._is_closed:
            self._arm(tick)
        return tick

    def take_back(self, bound: Bound, tick: int) -> None:
        """Let it not expire."""
        waiting = self._ticks.get(tick)
        if waiting is not None:
            waiting.discard(bound)
            if not waiting:
                del self._ticks[tick]

    def close(self) -> None:
        """Let nothing expire any more."""
        self._is_closed = True
        self._ticks.clear()
        if self._timer is not None:
            self._timer.cancel()

    def _arm(self, tick: int) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer_tick = tick
        self._timer = asyncio.get_running_loop().call_at(tick * TICK_S + ROUNDING_S, self._look)

    def _look(self) -> None:
        self._timer = None
        now = int(self._now_s() / TICK_S)
        for tick in sorted(tick for tick in self._ticks if tick <= now):
            for bound in self._ticks.pop(tick, ()):  # what expires may take others back
                bound.expire()
        if self._ticks:
            first = min(self._ticks)
            if self._timer is None or first < self._timer_tick:
                self._arm(first)
