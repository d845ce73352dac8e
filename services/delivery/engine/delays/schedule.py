# SPDX-License-Identifier: Apache-2.0
"""Schedule: the due times of records of the timer topic. Pure.

Entries lie in an array for each minute; only the entries of minutes that have begun are sorted. Entries that are done
stay until their time, so callers of `take` check `Done`. Memory: 32 bytes for each entry, some 150 bytes for a sorted
entry. Callers: a single thread.
"""

import heapq
from array import array
from collections.abc import Iterator

from services.delivery.engine.ports.timers import Entry

MINUTE_MS = 60_000


class Schedules:
    """The entries that are due by the log's time, and by the clock of its machine: the log's time may be ahead."""

    def __init__(self) -> None:
        self._by_log, self._by_clock = Schedule(), Schedule()

    def add(self, entry: Entry) -> None:
        """Add an entry."""
        (self._by_clock if entry.is_by_clock else self._by_log).add(entry)

    def take(self, log_ms: int, clock_ms: int, count: int) -> list[Entry]:
        """Remove and return due entries, at most `count` of each kind, the earliest first."""
        return self._by_log.take(log_ms, count) + self._by_clock.take(clock_ms, count)

    def wait_ms(self, log_ms: int, clock_ms: int) -> int | None:
        """Return the time in milliseconds until an entry may be due, None if nothing waits."""
        dues = (self._by_log.due_ms(), log_ms), (self._by_clock.due_ms(), clock_ms)
        return min((max(0, due_ms - now_ms) for due_ms, now_ms in dues if due_ms is not None), default=None)

    def due_count(self, log_ms: int, clock_ms: int) -> int:
        """Return about how many entries are due, with entries that are done."""
        return self._by_log.due_count(log_ms) + self._by_clock.due_count(clock_ms)

    def between(self, start_ms: int, end_ms: int, after: tuple[int, int]) -> Iterator[Entry]:
        """Yield the entries due in [start_ms, end_ms) and after a (due time, queue offset), in their order."""
        return heapq.merge(*(one.between(start_ms, end_ms, after) for one in (self._by_log, self._by_clock)))


class Schedule:
    """The entries that are due by the same clock."""

    def __init__(self) -> None:
        self._near: list[Entry] = []
        """A heap of the entries of minutes that have begun."""
        self._minutes: dict[int, array[int]] = {}
        self._order: list[int] = []
        """A heap of the minutes."""
        self._begun = -1
        """Entries up to this minute are near."""

    def add(self, entry: Entry) -> None:
        """Add an entry."""
        minute = entry.due_ms // MINUTE_MS
        if minute <= self._begun:
            heapq.heappush(self._near, entry)
            return
        if minute not in self._minutes:
            self._minutes[minute] = array("q")
            heapq.heappush(self._order, minute)
        self._minutes[minute].extend(entry)

    def take(self, now_ms: int, count: int) -> list[Entry]:
        """Remove and return due entries, at most `count`, the earliest first."""
        self._begin(now_ms)
        taken: list[Entry] = []
        while self._near and self._near[0].due_ms <= now_ms and len(taken) < count:
            taken.append(heapq.heappop(self._near))
        return taken

    def due_ms(self) -> int | None:
        """Return when the first entry is due, or an earlier time at which to ask again; None if there is no entry."""
        if self._near:
            return self._near[0].due_ms
        return self._order[0] * MINUTE_MS if self._order else None

    def due_count(self, now_ms: int) -> int:
        """Return about how many entries are due, with entries that are done."""
        return sum(entry.due_ms <= now_ms for entry in self._near)

    def between(self, start_ms: int, end_ms: int, after: tuple[int, int]) -> Iterator[Entry]:
        """Yield the entries due in [start_ms, end_ms) and after a (due time, queue offset), in their order."""
        near = sorted(entry for entry in self._near if start_ms <= entry.due_ms < end_ms and entry[:2] > after)
        yield from near
        for minute in sorted(self._order):
            if (minute + 1) * MINUTE_MS > max(start_ms, after[0]) and minute * MINUTE_MS < end_ms:
                found = (entry for entry in self._entries(minute) if start_ms <= entry.due_ms < end_ms)
                yield from sorted(entry for entry in found if entry[:2] > after)

    def _entries(self, minute: int) -> list[Entry]:
        values = self._minutes[minute]
        return [Entry(*values[at : at + 4]) for at in range(0, len(values), 4)]

    def _begin(self, now_ms: int) -> None:
        """Sort the minutes that have begun."""
        minute = now_ms // MINUTE_MS
        if minute <= self._begun:
            return
        self._begun = minute
        while self._order and self._order[0] <= minute:
            begun = heapq.heappop(self._order)
            self._near += self._entries(begun)
            del self._minutes[begun]
        heapq.heapify(self._near)
