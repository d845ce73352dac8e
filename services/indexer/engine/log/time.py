# SPDX-License-Identifier: Apache-2.0
"""LogTime: the time by which delayed messages of one level are due.

The wall clock, but never behind the store time of a message that was seen plus the time since then. So a message waits
at most for its level's delay after it was first seen, however the clocks of log and Indexer differ or are set back.
RocketMQ's counterpart is correctDeliverTimestamp, which delivers at once what seems to wait for longer than its delay.
"""

from libs.machine.clock import Clock


class LogTime:
    """One level's time. Callers: the event loop's thread."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._seen_ms = 0
        self._seen_at_s = 0.0

    def now_ms(self) -> int:
        """Return milliseconds since 1970."""
        return max(self._clock.now_ms(), self._least_ms())

    def saw(self, store_time_ms: int) -> None:
        """Note that a message with this store time is in the log now."""
        if store_time_ms > self._least_ms():
            self._seen_ms, self._seen_at_s = store_time_ms, self._clock.monotonic_s()

    def _least_ms(self) -> int:
        return self._seen_ms + round((self._clock.monotonic_s() - self._seen_at_s) * 1000)
