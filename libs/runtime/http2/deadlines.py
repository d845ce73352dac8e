# SPDX-License-Identifier: Apache-2.0
"""Deadlines: the deadlines of calls. Most deadlines are taken back before they pass.

All deadlines share a single timer: setting and taking back a deadline cost a look-up in a table. A deadline passes up
to about a `TICK_S` late. The timer is set for the first deadline, or for an earlier deadline that was taken back since.
Callers: a single event loop.
"""

import asyncio
from collections.abc import Callable
from typing import Final, Protocol

TICK_S: Final = 0.02

ROUNDING_S: Final = 0.001
"""A loop rounds its timers to milliseconds. This addition keeps the timer from firing before its tick."""


class Bound(Protocol):
    """An object with a deadline."""

    def expire(self) -> None:
        """End it, because the deadline has passed."""
        ...


class Deadlines:
    """The deadlines of an event loop."""

    def __init__(self) -> None:
        self._ticks: dict[int, set[Bound]] = {}
        self._now_s: Callable[[], float] = asyncio.get_running_loop().time
        self._timer: asyncio.TimerHandle | None = None
        self._is_closed = False
        self._timer_tick = 0
        """The tick for which the timer is set. Without a timer it has no meaning."""

    def set(self, bound: Bound, timeout_s: float) -> int:
        """Let `bound` expire after `timeout_s`. Returns the tick, which `take_back` needs."""
        tick = int((self._now_s() + timeout_s) / TICK_S) + 1
        waiting = self._ticks.get(tick)
        if waiting is None:
            waiting = self._ticks[tick] = set()
        waiting.add(bound)
        if (self._timer is None or tick < self._timer_tick) and not self._is_closed:
            self._arm(tick)
        return tick

    def take_back(self, bound: Bound, tick: int) -> None:
        """Remove the deadline of `bound`."""
        waiting = self._ticks.get(tick)
        if waiting is not None:
            waiting.discard(bound)
            if not waiting:
                del self._ticks[tick]

    def close(self) -> None:
        """Remove all deadlines, and let none expire any more."""
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
            for bound in self._ticks.pop(tick, ()):  # an expiry may take other deadlines back
                bound.expire()
        if self._ticks:
            first = min(self._ticks)
            if self._timer is None or first < self._timer_tick:
                self._arm(first)
