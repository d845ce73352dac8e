# SPDX-License-Identifier: Apache-2.0
"""LogClock: the time of a log, which always advances, independent of steps of the machine's clock.

It is the wall clock's time, unless the wall clock is behind. When the wall clock was set back, the log's time is ahead
of it. The log's time then advances by monotonic time, a little slower (CATCH_UP_RATE), until the wall clock has caught
up. So a delay in the log's time takes at most a ninth longer meanwhile, and is never shorter. Callers: a single thread.
"""

from libs.machine.clock import STEP_MS, Clock

CATCH_UP_RATE = 0.9
"""Speed of the log's time while it is ahead of the clock: a lead of an hour is made up in ten hours."""


class LogClock:
    """The clock of a log."""

    def __init__(self, clock: Clock, store_time_ms: int = 0) -> None:
        """Begin at `store_time_ms`, the store time of the log's newest record."""
        self._clock = clock
        self._base_ms = store_time_ms
        self._base_s = clock.monotonic_s()
        """`_base_ms` is the log's time at the monotonic time `_base_s`."""
        self._wall_less_ms: float | None = None
        """The wall clock less monotonic time, when the wall clock was last believed."""

    def now_ms(self) -> int:
        """Return milliseconds since 1970."""
        return max(self._clock.now_ms(), self._least_ms())

    def monotonic_s(self) -> float:
        """Return the machine's monotonic time, for durations."""
        return self._clock.monotonic_s()

    def ahead_ms(self) -> int:
        """Return how far the log's time is ahead of the wall clock, 0 if it is not."""
        return max(0, self._least_ms() - self._clock.now_ms())

    def saw(self, store_time_ms: int) -> None:
        """Record that the log has a record with this store time."""
        if store_time_ms > self._least_ms():
            self._believe(store_time_ms)

    def look(self) -> None:
        """Record that time passed, also without a record. Callers: a loop, now and then.

        A step of the clock is ignored until there is a record of this time: the clock may be corrected before.
        """
        now_ms = self._clock.now_ms()
        less_ms = now_ms - self._clock.monotonic_s() * 1000
        is_steady = self._wall_less_ms is not None and abs(less_ms - self._wall_less_ms) <= STEP_MS
        if is_steady and now_ms > self._least_ms():
            self._believe(now_ms)

    def _believe(self, time_ms: int) -> None:
        self._base_ms, self._base_s = time_ms, self._clock.monotonic_s()
        if abs(time_ms - self._clock.now_ms()) <= STEP_MS:
            self._wall_less_ms = self._clock.now_ms() - self._base_s * 1000

    def _least_ms(self) -> int:
        return self._base_ms + int((self._clock.monotonic_s() - self._base_s) * 1000 * CATCH_UP_RATE)
