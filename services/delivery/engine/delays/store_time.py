# SPDX-License-Identifier: Apache-2.0
"""StoreTime: the log's own time, from what its answers say, so that nothing is early by it. Never ahead of it.

An answer comes after its store time, so the log's clock is at least that far. The best of the last answers counts:
one that was slow makes nothing late, and a clock that was set back is followed.
"""

from collections import deque

from libs.machine.clock import Clock

ANSWER_COUNT = 16


class StoreTime:
    """See the module."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._aheads_ms: deque[float] = deque(maxlen=ANSWER_COUNT)

    def heard(self, store_time_ms: int) -> None:
        """Learn from an answer that came just now."""
        self._aheads_ms.append(store_time_ms - self._clock.monotonic_s() * 1000)

    @property
    def is_known(self) -> bool:
        """Whether any answer came."""
        return bool(self._aheads_ms)

    def now_ms(self) -> int:
        """Return milliseconds since the epoch, which the log's clock has passed. There was an answer before."""
        return int(max(self._aheads_ms) + self._clock.monotonic_s() * 1000)
