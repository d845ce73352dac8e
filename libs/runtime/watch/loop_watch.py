# SPDX-License-Identifier: Apache-2.0
"""LoopWatch: measures pauses of the event loop, in which no call was served.

A timer checks every TICK_S how late it is: a callback that was due had to wait for this time. A pause is measured too
short by up to a tick, because it may begin between two ticks. Every cause of a pause counts: a long step of ours, a
thread that kept the interpreter, a machine without a free core. The computing time of the loop's thread is reported
beside the pause. It separates our own long steps from pauses by the machine.
When the loop has almost no work, no call waits for it, and a tick has IDLE_TICK_S.
Cost: a hundred short callbacks a second, a single callback when idle, and no cost for each served call.
While a service starts, no call is served, so no pause is measured.
Callers: `running` in the loop's thread; `statistics` in any.
"""

import asyncio
import contextlib
import time
from collections.abc import Callable, Iterator

from msgspec import Struct

TICK_S = 0.01

IDLE_TICK_S = 1.0

BUSY_SHARE = 0.05
"""A loop is busy if its thread computes for more than this share of the time."""

BUSY_S = 1.0
"""A busy loop is checked every TICK_S for this time. Then, or at an idle tick, it is judged again."""

LONG_PAUSE_S = 0.02
"""Longer pauses are counted: no call of ours may block the loop for this time."""

IDLE_WORK_S_MAX = 0.9 * LONG_PAUSE_S
"""More work between two idle ticks ends idleness, so that a long step of ours always does."""

WINDOW_S = 60.0
"""The longest pause covers the current window and the window before: a scrape in each window misses no pause."""


class LoopStatistics(Struct, frozen=True):
    """Measurements of the watch. A pause that has not ended yet is included in the longest pauses."""

    longest_pause_ms: float
    """The longest pause of the event loop in the last minute or two."""
    longest_work_ms: float
    """The longest computing time of the loop's thread in a pause of the last minute or two."""
    longest_pause_since_start_ms: float
    """The longest pause of the event loop since the start."""
    longest_work_since_start_ms: float
    """The longest computing time of the loop's thread in a pause since the start."""
    long_pauses_total: int
    """Pauses of the event loop above 20 ms that are over."""


class _Longest:
    """The maximum of some times, since the start and lately."""

    def __init__(self) -> None:
        self.since_start_s = 0.0
        self._before_s = self._now_s = 0.0  # maximum of the window before, and of this window

    @property
    def lately_s(self) -> float:
        """The longest time of this window and the window before."""
        return max(self._before_s, self._now_s)

    def begin_window(self) -> None:
        """Begin the next window."""
        self._before_s, self._now_s = self._now_s, 0.0

    def note(self, time_s: float) -> None:
        """Record a time."""
        self._now_s = max(self._now_s, time_s)
        self.since_start_s = max(self.since_start_s, time_s)


class LoopWatch:
    """The watch of an event loop. `worked_s` returns the computing time of the calling thread so far.

    `each_second` is called about every second, for other checks. It must be quick.
    """

    def __init__(
        self,
        now_s: Callable[[], float] = time.monotonic,
        worked_s: Callable[[], float] = time.thread_time,
        each_second: Callable[[], None] = lambda: None,
    ) -> None:
        self._now_s = now_s
        self._each_second = each_second
        self._worked_s = worked_s
        self.due_s = 0.0
        """The time at which the next tick is due."""
        self._worked_before_s = 0.0
        self._tick_s = TICK_S
        self._judged_s = self._worked_judged_s = 0.0
        self._window_end_s = 0.0
        self._pause = _Longest()
        self._work = _Longest()
        self._long_pause_count = 0
        self._timer: asyncio.TimerHandle | None = None

    @contextlib.contextmanager
    def running(self) -> Iterator[None]:
        """Watch the running loop within the block."""
        self._tick_s, self._judged_s, self._worked_judged_s = TICK_S, self._now_s(), self._worked_s()
        self._window_end_s = self._judged_s + WINDOW_S
        self._wait()
        try:
            yield
        finally:
            assert self._timer is not None
            self._timer.cancel()
            self._timer = None

    def statistics(self) -> LoopStatistics:
        """Return a snapshot."""
        lasting_s = self._late_s() if self._timer is not None else 0.0
        return LoopStatistics(
            longest_pause_ms=1000 * max(self._pause.lately_s, lasting_s),
            longest_work_ms=1000 * self._work.lately_s,
            longest_pause_since_start_ms=1000 * max(self._pause.since_start_s, lasting_s),
            longest_work_since_start_ms=1000 * self._work.since_start_s,
            long_pauses_total=self._long_pause_count,
        )

    def _wait(self) -> None:
        self._worked_before_s = self._worked_s()
        self.due_s = self._now_s() + self._tick_s
        self._timer = asyncio.get_running_loop().call_later(self._tick_s, self._tick)

    def _tick(self) -> None:
        late_s, worked_s = self._late_s(), self._worked_s()
        seen_s = self.due_s + late_s
        if seen_s >= self._window_end_s:
            self._window_end_s = seen_s + WINDOW_S
            self._pause.begin_window()
            self._work.begin_window()
        self._pause.note(late_s)
        self._work.note(min(late_s, worked_s - self._worked_before_s))
        self._long_pause_count += late_s > LONG_PAUSE_S
        if self._tick_s == IDLE_TICK_S or seen_s - self._judged_s >= BUSY_S:
            self._judge(seen_s, worked_s)
        self._wait()

    def _judge(self, seen_s: float, worked_s: float) -> None:
        """Choose the next ticks by the computing time of the loop's thread since the last call."""
        was_idle = self._tick_s == IDLE_TICK_S
        worked_s_max = IDLE_WORK_S_MAX if was_idle else BUSY_SHARE * (seen_s - self._judged_s)
        is_busy = worked_s - self._worked_judged_s > worked_s_max
        self._tick_s = TICK_S if is_busy else IDLE_TICK_S
        self._judged_s, self._worked_judged_s = seen_s, worked_s
        self._each_second()

    def _late_s(self) -> float:
        return max(0.0, self._now_s() - self.due_s)
