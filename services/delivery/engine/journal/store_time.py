# SPDX-License-Identifier: Apache-2.0
"""StoreTime: the log's time, and the time of its machine's clock, derived from its answers. Never ahead of either.

An answer arrives after its store time, so the log's time has passed this store time. The best of the last answers is
used, so a slow answer makes no time late. After a clock was set back the two times differ, and the log's time runs
slower until they meet. An answer shows a jump if its store time is later than the time that can have passed since a
former answer: the log's clock was set ahead. `on_jump` is called with the jump.
"""

from collections import deque
from collections.abc import Callable
from typing import NamedTuple

from libs.log.log_clock import CATCH_UP_RATE
from libs.machine.clock import STEP_MS, Clock

ANSWER_COUNT = 16
JUMP_MS = 50
"""A store time is a jump if it is later than the elapsed time allows by more than this many milliseconds.

Deliveries end by elapsed time, so small jumps count, too: after its clock was set back, the log's time is slow, and it
catches up at once when the clock is set right. Smaller differences are the drift of two machines' clocks.
"""


class _Answer(NamedTuple):
    log_ms: int
    ahead_ms: int
    asked_s: float
    at_s: float
    """`asked_s`, `at_s`: monotonic times of the request and of its answer."""


class StoreTime:
    """The time of the log and the clock of its machine, as an ownership knows them."""

    def __init__(self, clock: Clock) -> None:
        self.on_jump: Callable[[int], None] = lambda _: None
        """Called with the milliseconds by which the log's time has jumped ahead, before `now_ms` shows the jump."""
        self._clock = clock
        self._answers: deque[_Answer] = deque(maxlen=ANSWER_COUNT)
        self._wall_less_ms = 0.0
        """The wall clock of this machine less monotonic time, as of the last answer."""
        self._was_told_otherwise = False

    def asks(self) -> float:
        """Return the time of a request that will be answered with a store time, for `heard`."""
        return self._clock.monotonic_s()

    def heard(self, store_time_ms: int, ahead_ms: int, asked_s: float) -> None:
        """Record an answer that arrived now: its store time, and how far the log's time is ahead of its clock."""
        jump_ms = self._jump_ms(store_time_ms, asked_s)
        was_ahead = bool(self._answers) and self._answers[-1].ahead_ms > 0
        is_other = was_ahead != (ahead_ms > 0) or abs(ahead_ms - self.ahead_ms) > STEP_MS
        if jump_ms or is_other or self.is_doubtful:
            self._answers.clear()
        self._wall_less_ms, self._was_told_otherwise = self._less_ms(), False
        if jump_ms:
            self.on_jump(jump_ms)
        self._answers.append(_Answer(store_time_ms, ahead_ms, asked_s, self._clock.monotonic_s()))

    def told(self, ahead_ms: int) -> None:
        """Record how far the log's time is ahead of its clock now, from an answer without a store time."""
        self._was_told_otherwise = self.is_known and abs(ahead_ms - self.ahead_ms) > STEP_MS

    @property
    def is_known(self) -> bool:
        """Whether an answer has arrived."""
        return bool(self._answers)

    @property
    def is_doubtful(self) -> bool:
        """Whether there was no answer, or the log's or this machine's clock was set since: it may be the same clock."""
        is_set = abs(self._less_ms() - self._wall_less_ms) > STEP_MS
        return not self._answers or is_set or self._was_told_otherwise

    @property
    def ahead_ms(self) -> int:
        """How far the log's time is ahead of its machine's clock."""
        return max(0, self.now_ms() - self.clock_ms())

    def now_ms(self) -> int:
        """Return milliseconds since the epoch, which the log's time has passed; 0 before the first answer."""
        slow_ms = (one.log_ms + self._since_ms(one.at_s, CATCH_UP_RATE) for one in self._answers if one.ahead_ms)
        return max(self.clock_ms(), *slow_ms, 0)

    def latest_ms(self) -> int:
        """Return the latest possible time of the log without a step ahead, in milliseconds since the epoch."""
        return min((one.log_ms + self._since_ms(one.asked_s) for one in self._answers), default=0)

    def clock_ms(self) -> int:
        """Return milliseconds since the epoch, which the clock of the log's machine has passed; 0 before an answer."""
        return max((one.log_ms - one.ahead_ms + self._since_ms(one.at_s) for one in self._answers), default=0)

    def _jump_ms(self, store_time_ms: int, asked_s: float) -> int:
        """Return the largest possible jump that this store time shows, in milliseconds, 0 without a jump."""
        if not self._answers or store_time_ms <= self.latest_ms() + JUMP_MS:
            return 0
        return store_time_ms + self._since_ms(asked_s) - self.now_ms()

    def _since_ms(self, at_s: float, rate: float = 1.0) -> int:
        return int((self._clock.monotonic_s() - at_s) * 1000 * rate)

    def _less_ms(self) -> float:
        return self._clock.now_ms() - self._clock.monotonic_s() * 1000
