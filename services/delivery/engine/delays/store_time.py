# SPDX-License-Identifier: Apache-2.0
"""StoreTime: the log's own time, and the time of its machine's clock, from what its answers say. Never ahead of either.

An answer comes after its store time, so the log's time is at least that far. The best of the last answers counts: a
slow one makes nothing late. After a clock was set back the two differ, and the log's time goes slower until they meet.
"""

from collections import deque
from typing import NamedTuple

from libs.log.log_clock import CATCH_UP_RATE
from libs.machine.clock import STEP_MS, Clock

ANSWER_COUNT = 16


class _Answer(NamedTuple):
    log_ms: int
    ahead_ms: int
    at_s: float
    """When it came, by monotonic time."""


class StoreTime:
    """See the module."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._answers: deque[_Answer] = deque(maxlen=ANSWER_COUNT)
        self._wall_less_ms = 0.0
        """The wall clock of this machine less monotonic time, as of the last answer."""

    def heard(self, store_time_ms: int, ahead_ms: int = 0) -> None:
        """Learn from an answer that came just now, and said how far the log's time is ahead of its clock."""
        was_ahead = bool(self._answers) and self._answers[-1].ahead_ms > 0
        if self.is_doubtful or was_ahead != (ahead_ms > 0):
            self._answers.clear()
        self._wall_less_ms = self._less_ms()
        self._answers.append(_Answer(store_time_ms, ahead_ms, self._clock.monotonic_s()))

    @property
    def is_known(self) -> bool:
        """Whether any answer came."""
        return bool(self._answers)

    @property
    def is_doubtful(self) -> bool:
        """Whether there was no answer, or the clock of this machine was set since: the log's may be the same one."""
        return not self._answers or abs(self._less_ms() - self._wall_less_ms) > STEP_MS

    @property
    def ahead_ms(self) -> int:
        """How far the log's time is ahead of its machine's clock."""
        return max(0, self.now_ms() - self.clock_ms())

    def now_ms(self) -> int:
        """Return milliseconds since the epoch, which the log's time has passed; 0 before the first answer."""
        rates = ((one, CATCH_UP_RATE if one.ahead_ms else 1.0) for one in self._answers)
        return max((one.log_ms + self._since_ms(one, rate) for one, rate in rates), default=0)

    def clock_ms(self) -> int:
        """Return milliseconds since the epoch, which the clock of the log's machine has passed. As above."""
        return max((one.log_ms - one.ahead_ms + self._since_ms(one, 1.0) for one in self._answers), default=0)

    def _since_ms(self, answer: _Answer, rate: float) -> int:
        return int((self._clock.monotonic_s() - answer.at_s) * 1000 * rate)

    def _less_ms(self) -> float:
        return self._clock.now_ms() - self._clock.monotonic_s() * 1000
