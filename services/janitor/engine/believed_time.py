# SPDX-License-Identifier: Apache-2.0
"""BelievedTime: the time to count ages by, which a clock that jumped can't move.

Two things say how late it is without the clock of this moment: the clock of before, going on with monotonic time; and a
witness, which is the store time of the newest record and what went by since it was seen. The clock is believed while it
goes along with monotonic time and is not far ahead of the witness. Otherwise ages are counted by the other two, or by
the clock if that is earlier, so that nothing expires before its time. The believed time does not stand still: a store
without appends goes on expiring, only later by what nobody has watched.
Callers: one event loop. Not handled: a clock that was wrong already when it was first seen, with the records that were
appended by it.
"""

from dataclasses import dataclass

from libs.machine.clock import Clock
from services.janitor.engine.policy import HOUR_MS


@dataclass(frozen=True, slots=True)
class Believed:
    """The time to count ages by, in ms since the epoch, and why it is not the clock's, or "" if it is."""

    now_ms: int
    note: str = ""


class BelievedTime:
    """Watches a clock from its making on. A base is a time of the clock less the monotonic time of the same moment."""

    def __init__(self, clock: Clock, *, ahead_ms_max: int, jump_ms_max: int) -> None:
        self._clock = clock
        self.ahead_ms_max, self.jump_ms_max = ahead_ms_max, jump_ms_max
        self._clock_base_ms = clock.now_ms() - self._monotonic_ms()
        self._witness_base_ms: int | None = None

    def look(self, newest_store_time_ms: int | None) -> Believed:
        """Return the time now, given the store time of the newest record."""
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
        """Believe the clock as it is now, because a person has looked at it."""
        self._clock_base_ms = self._witness_base_ms = self._clock.now_ms() - self._monotonic_ms()

    def _witnessed_ms(self, store_time_ms: int | None, steady_ms: int, monotonic_ms: int) -> int:
        """Return how late it is at least. A store time ahead of the steady clock witnesses no more than that clock."""
        if store_time_ms is not None:
            base_ms = min(store_time_ms, steady_ms) - monotonic_ms
            self._witness_base_ms = base_ms if self._witness_base_ms is None else max(base_ms, self._witness_base_ms)
        return steady_ms if self._witness_base_ms is None else self._witness_base_ms + monotonic_ms

    def _monotonic_ms(self) -> int:
        return round(self._clock.monotonic_s() * 1000)


def _note(why: str) -> str:
    return f"{why}: what has expired by the clock alone waits; if the clock is right: reput janitor run --trust-clock"
