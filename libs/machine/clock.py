# SPDX-License-Identifier: Apache-2.0
"""Clock: the only place that asks the machine for the time.

Wall time is for what is stored and shown; it may jump. Monotonic time is for how long something took, a sleep of the
machine included.
"""

import time
from typing import Protocol


class Clock(Protocol):
    """Source of time. Safe to call from any thread."""

    def now_ms(self) -> int:
        """Return wall time in milliseconds since 1970-01-01 UTC."""
        ...

    def monotonic_s(self) -> float:
        """Return the seconds since some fixed moment. The value never goes back."""
        ...


class SystemClock:
    """The machine's clock."""

    def now_ms(self) -> int:
        """See `Clock.now_ms`."""
        return time.time_ns() // 1_000_000

    def monotonic_s(self) -> float:
        """See `Clock.monotonic_s`."""
        return time.clock_gettime(time.CLOCK_BOOTTIME)
