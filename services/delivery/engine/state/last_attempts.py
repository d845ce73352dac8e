# SPDX-License-Identifier: Apache-2.0
"""LastAttempts: deliveries that no other one follows, by the times at which they end.

Such a message goes to the dead letters when its time is over, and nobody has to receive for that.
Memory: some 150 bytes for each such delivery, and as much again for those that ended otherwise. Callers: one thread.
"""

import asyncio
import heapq
from collections.abc import Callable, Iterable
from typing import NamedTuple

from libs.formats.records.delivery_record import Flight, Place
from services.delivery.engine.state.queue import QueueState

STALE_COUNT_MAX = 1_000
"""Entries of deliveries that ended otherwise which are dropped by the way only, besides as many as count."""


class LastAttempt(NamedTuple):
    """A delivery that is over, and that was the last one."""

    queue: QueueState
    flight: Flight


class LastAttempts:
    """`find` returns a queue, `attempts_max` how often a message of a group is delivered."""

    def __init__(self, find: Callable[[Place], QueueState | None], attempts_max: Callable[[str], int]) -> None:
        self.news = asyncio.Event()
        """Set when a delivery ends before all that were known."""
        self._find, self._attempts_max = find, attempts_max
        self._ends: list[tuple[int, int, Place, Flight]] = []
        """A heap of times, with a number that grows between them and what can't be compared."""
        self._number = 0
        self._size_max = STALE_COUNT_MAX

    @property
    def size(self) -> int:
        """Deliveries that are kept, those among them that ended otherwise."""
        return len(self._ends)

    def note(self, place: Place, flights: Iterable[Flight], at_ms: int = 0) -> None:
        """Remember those of these deliveries that are the last ones: until they end, or until a later time."""
        attempts_max = self._attempts_max(place.group)
        for flight in flights:
            if flight.attempt < attempts_max:
                continue
            self._number += 1
            entry = (max(flight.until_ms, at_ms), self._number, place, flight)
            heapq.heappush(self._ends, entry)
            if self._ends[0] is entry:
                self.news.set()
        if len(self._ends) > self._size_max:
            current = {entry[2:]: entry for entry in self._ends if self._current(*entry[2:]) is not None}
            self._ends = list(current.values())
            heapq.heapify(self._ends)
            self._size_max = 2 * len(self._ends) + STALE_COUNT_MAX

    def take(self, now_ms: int, count: int) -> list[LastAttempt]:
        """Return deliveries that are over, and forget them. The caller notes again those that it leaves as they are."""
        taken: list[LastAttempt] = []
        while len(taken) < count and self._ends and self._ends[0][0] <= now_ms:
            _, _, place, flight = heapq.heappop(self._ends)
            queue = self._current(place, flight)
            if queue is not None and LastAttempt(queue, flight) not in taken:  # it may have been noted twice
                taken.append(LastAttempt(queue, flight))
        return taken

    def _current(self, place: Place, flight: Flight) -> QueueState | None:
        """Return the queue of a delivery that is still the last one of its message."""
        queue = self._find(place)
        is_same = queue is not None and queue.flight(flight.offset) == flight
        return queue if is_same and flight.attempt >= self._attempts_max(place.group) else None
