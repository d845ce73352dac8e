# SPDX-License-Identifier: Apache-2.0
"""BelievedTime: the time for the ages of records, which a jump of the clock can't change.

There are two sources for the time besides the clock's present value. The steady time is an earlier value of the clock
plus the monotonic time since. The witnessed time is the store time of the newest record plus the monotonic time since
the Janitor saw it. The clock is believed while it agrees with monotonic time and is not far ahead of the witnessed
time. Otherwise the time is that of the other two sources, or the clock's if that is earlier, so that no segment expires
before its time. The believed time advances also without appends, so segments still expire. They only expire later, by
the time in which no Janitor ran.
Callers: a single event loop. Not handled: a clock that was already wrong at the first look, if the records were
appended by the same clock.
"""

from msgspec import Struct

from libs.machine.clock import Clock
from services.janitor.engine.policy import HOUR_MS


class Believed(Struct, frozen=True):
    """The time for ages, in ms since the epoch. `note` says why it is not the clock's time, and is "" if it is."""

    now_ms: int
    note: str = ""


class BelievedTime:
    """The observer of a clock since its construction. A base is a clock time less the monotonic time of that moment."""

    def __init__(self, clock: Clock, *, ahead_ms_max: int, jump_ms_max: int) -> None:
        self._clock = clock
        self.ahead_ms_max, self.jump_ms_max = ahead_ms_max, jump_ms_max
        self._clock_base_ms = clock.now_ms() - self._monotonic_ms()
        self._witness_base_ms: int | None = None

    def look(self, newest_store_time_ms: int | None) -> Believed:
        """Return the believed time now, given the store time of the newest record."""
        now_ms, monotonic_ms = self._clock.now_ms(), self._monotonic_ms()
        jump_ms = now_ms - monotonic_ms - self._clock_base_ms
        has_jumped = abs(jump_ms) > self.jump_ms_max
        if not has_jumped:
            self._clock_base_ms += jump_ms
        steady_ms = self._clock_base_ms + monotonic_ms
        witnessed_ms = self._witnessed_ms(newest_store_time_ms, steady_ms, monotonic_ms)
        if steady_ms - witnessed_ms > self.ahead_ms_max:
            hours = (now_ms - witnessed_ms) / HOUR_MS
            why = f"the clock is {hours:.1f} hours ahead of the newest record and of the time that was watched since"
            return Believed(min(now_ms, witnessed_ms), _note(why))
        if has_jumped:
            why = f"the clock moved by {jump_ms / HOUR_MS:+.1f} hours against monotonic time"
            return Believed(min(now_ms, steady_ms), _note(why))
        return Believed(now_ms)

    def trust(self) -> None:
        """Believe the clock's present value, because a person has checked it."""
        self._clock_base_ms = self._witness_base_ms = self._clock.now_ms() - self._monotonic_ms()

    def _witnessed_ms(self, store_time_ms: int | None, steady_ms: int, monotonic_ms: int) -> int:
        """Return the witnessed time. A store time ahead of the steady time is taken as the steady time."""
        if store_time_ms is not None:
            base_ms = min(store_time_ms, steady_ms) - monotonic_ms
            self._witness_base_ms = base_ms if self._witness_base_ms is None else max(base_ms, self._witness_base_ms)
        return steady_ms if self._witness_base_ms is None else self._witness_base_ms + monotonic_ms

    def _monotonic_ms(self) -> int:
        return round(self._clock.monotonic_s() * 1000)


def _note(why: str) -> str:
    return f"{why}: what has expired by the clock alone waits; if the clock is right: reput janitor run --trust-clock"
