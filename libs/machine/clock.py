# SPDX-License-Identifier: Apache-2.0
"""Clock: the only place that asks the machine for the time.

Wall time is for stored and displayed times; it may jump. Monotonic time is for durations, including a sleep of the
machine.
"""

import logging
import time
from typing import Protocol

from msgspec import Struct

STEP_MS = 1_000
"""A wall clock was set if it moved further than this against monotonic time."""

_log = logging.getLogger(__name__)


class Clock(Protocol):
    """Source of time. Safe to call from any thread."""

    def now_ms(self) -> int:
        """Return wall time in milliseconds since 1970-01-01 UTC."""
        ...

    def monotonic_s(self) -> float:
        """Return the seconds since some fixed moment. The value never decreases."""
        ...


class SystemClock:
    """The machine's clock."""

    def now_ms(self) -> int:
        """See `Clock.now_ms`."""
        return time.time_ns() // 1_000_000

    def monotonic_s(self) -> float:
        """See `Clock.monotonic_s`."""
        return time.clock_gettime(time.CLOCK_BOOTTIME)


class ClockStatistics(Struct, frozen=True):
    """The counts of the watch since the start of the process."""

    steps_total: int
    """Number of times that the clock was set by more than a second."""
    steps_back_total: int
    """Number of these times that it was set back."""
    last_step_ms: int
    """Size of the last step: above 0 ahead, below 0 back."""


class ClockWatch:
    """Detects that the clock was set: wall time moves against monotonic time by more than STEP_MS between two looks.

    An operator sets it, NTP does, or the machine was halted. Callers: `look` in a single thread, about once a second;
    `statistics` in any thread.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._less_ms = self._now_less_ms()
        self._count = self._back_count = 0
        self._last_ms = 0

    def look(self) -> None:
        """Log a line if the clock was set since the last look."""
        less_ms = self._now_less_ms()
        step_ms, self._less_ms = round(less_ms - self._less_ms), less_ms
        if abs(step_ms) <= STEP_MS:
            return
        self._count += 1
        self._back_count += step_ms < 0
        self._last_ms = step_ms
        way = "back" if step_ms < 0 else "ahead"
        _log.warning("the machine's clock was set %s by %.1f s", way, abs(step_ms) / 1000)

    def statistics(self) -> ClockStatistics:
        """Return a snapshot."""
        return ClockStatistics(self._count, self._back_count, self._last_ms)

    def _now_less_ms(self) -> float:
        """Return wall time less monotonic time."""
        return self._clock.now_ms() - self._clock.monotonic_s() * 1000
