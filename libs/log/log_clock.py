# SPDX-License-Identifier: Apache-2.0
"""LogClock: the time of a log, which never goes back and never stands still, whatever the machine's clock does.

It is the wall clock, as long as that is not behind. A clock that was set back leaves the log's time ahead of it: then
it goes on by monotonic time, a little slower (CATCH_UP_RATE), until the wall clock has caught up. So a delay that
counts from the log's time takes a ninth longer at most while that lasts, and is never shorter. Callers: one thread.
"""

from libs.machine.clock import STEP_MS, Clock

CATCH_UP_RATE = 0.9
"""How fast the log's time goes while it is ahead of the clock: what an hour was too much is made up for in ten."""


class LogClock:
    """See the module."""

    def __init__(self, clock: Clock, store_time_ms: int = 0) -> None:
        """`store_time_ms`: of the newest record that the log has."""
        self._clock = clock
        self._base_ms = store_time_ms
        self._base_s = clock.monotonic_s()
        """The log's time at some moment."""
        self._wall_less_ms: float | None = None
        """The wall clock less monotonic time, as of when it was believed last."""

    def now_ms(self) -> int:
        """Return milliseconds since 1970."""
        return max(self._clock.now_ms(), self._least_ms())

    def monotonic_s(self) -> float:
        """Return the machine's monotonic time, for how long something took."""
        return self._clock.monotonic_s()

    def ahead_ms(self) -> int:
        """Return how far the log's time is ahead of the wall clock, 0 if it is not."""
        return max(0, self._least_ms() - self._clock.now_ms())

    def saw(self, store_time_ms: int) -> None:
        """Note that the log has a record with this store time now."""
        if store_time_ms > self._least_ms():
            self._believe(store_time_ms)

    def look(self) -> None:
        """Note that time passed, also without a record. Call it now and then.

        A step of the clock counts for nothing until there is a record of that time: the clock may be set right before.
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
