# SPDX-License-Identifier: Apache-2.0
"""LastAttempts: the deliveries after which a message has no attempt left, by the times at which they end.

Such a message is written to the dead letters when its time is over, also without a receive of the group.
Memory: some 150 bytes for each such delivery, and as much again for deliveries that ended otherwise.
Callers: a single thread.
"""

import asyncio
import heapq
from collections.abc import Callable, Iterable
from typing import NamedTuple

from libs.formats.records.delivery_record import Flight, Place
from services.delivery.engine.state.queue import QueueState

STALE_COUNT_MAX = 1_000
"""Entries of deliveries that ended otherwise are dropped together when they outnumber valid entries by this."""


class LastAttempt(NamedTuple):
    """A last delivery whose time is over."""

    queue: QueueState
    flight: Flight


class LastAttempts:
    """The last deliveries of all groups.

    `find` returns a queue, `attempts_max` returns how often a message of a group is delivered.
    """

    def __init__(self, find: Callable[[Place], QueueState | None], attempts_max: Callable[[str], int]) -> None:
        self.news = asyncio.Event()
        """Set when a new delivery ends before all deliveries known so far."""
        self._find, self._attempts_max = find, attempts_max
        self._ends: list[tuple[int, int, Place, Flight]] = []
        """A heap by time. A growing number follows the time, because places and flights can't be compared."""
        self._number = 0
        self._size_max = STALE_COUNT_MAX

    @property
    def size(self) -> int:
        """Number of deliveries that are kept, with the deliveries that ended otherwise."""
        return len(self._ends)

    def note(self, place: Place, flights: Iterable[Flight], at_ms: int = 0) -> None:
        """Keep the deliveries among these that are last attempts, until they end, or until the later time `at_ms`."""
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
        """Remove and return deliveries that are over. The caller notes deliveries again that it leaves unchanged."""
        taken: list[LastAttempt] = []
        while len(taken) < count and self._ends and self._ends[0][0] <= now_ms:
            _, _, place, flight = heapq.heappop(self._ends)
            queue = self._current(place, flight)
            if queue is not None and LastAttempt(queue, flight) not in taken:  # a delivery may have been noted twice
                taken.append(LastAttempt(queue, flight))
        return taken

    def _current(self, place: Place, flight: Flight) -> QueueState | None:
        """Return the queue of a delivery that is still the last delivery of its message, otherwise None."""
        queue = self._find(place)
        is_same = queue is not None and queue.flight(flight.offset) == flight
        return queue if is_same and flight.attempt >= self._attempts_max(place.group) else None
