# SPDX-License-Identifier: Apache-2.0
"""SteadyTime: wall time that a step of the wall clock does not move, so that nothing expires early, or hours late."""

from libs.machine.clock import Clock


class SteadyTime:
    """The wall time of its making, and what has passed since by the monotonic clock."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._begin_ms = clock.now_ms()
        self._begin_s = clock.monotonic_s()

    def now_ms(self) -> int:
        """Return milliseconds since the epoch."""
        return self._begin_ms + int((self._clock.monotonic_s() - self._begin_s) * 1000)
