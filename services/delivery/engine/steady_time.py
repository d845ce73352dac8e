# SPDX-License-Identifier: Apache-2.0
"""SteadyTime: time that a step of the wall clock does not move, so that nothing expires early, or hours late.

It begins with the log's time, which never goes back: what a process wrote down is not hours ahead for the next one.
"""

from libs.machine.clock import Clock


class SteadyTime:
    """The log's time at its making, the wall time where that is not known, and what has passed since, monotonically."""

    def __init__(self, clock: Clock, log_ms: int = 0) -> None:
        self._clock = clock
        self._begin_ms = log_ms or clock.now_ms()
        self._begin_s = clock.monotonic_s()

    def now_ms(self) -> int:
        """Return milliseconds since the epoch."""
        return self._begin_ms + int((self._clock.monotonic_s() - self._begin_s) * 1000)
