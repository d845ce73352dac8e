# SPDX-License-Identifier: Apache-2.0
"""Holders: the connections that received the messages in flight, by their numbers.

The journal has none of this: after a new begin nobody knows who has a message that was delivered before.
Memory: COUNT_MAX messages, some 320 bytes each. A message that stays in flight keeps its entry, while others come.
Callers: the event loop's thread.
"""

from collections import OrderedDict
from collections.abc import Sequence

from libs.formats.records.delivery_record import Flight
from services.delivery.engine.state.queue import QueueState

COUNT_MAX = 20_000


class Holders:
    """The numbers of the connections that received messages last."""

    def __init__(self, count_max: int = COUNT_MAX) -> None:
        self._count_max = count_max
        self._found: OrderedDict[tuple[QueueState, int], tuple[int, int]] = OrderedDict()
        """Attempt and connection, by queue and queue offset; the oldest entry is first."""

    def __len__(self) -> int:
        """Return how many messages have an entry."""
        return len(self._found)

    def note(self, number: int, queue: QueueState, flights: Sequence[Flight]) -> None:
        """Record that a connection received these messages. The number 0 is that of no connection."""
        if not number:
            return
        for flight in flights:
            self._found.pop((queue, flight.offset), None)
            self._found[queue, flight.offset] = flight.attempt, number
        for _ in range(2 * len(flights)):  # an entry of a message in flight is put behind the others
            if len(self._found) <= self._count_max:
                return
            oldest, entry = self._found.popitem(last=False)
            if self._is_current(*oldest, entry[0]):
                self._found[oldest] = entry
        while len(self._found) > self._count_max:
            self._found.popitem(last=False)

    def of(self, queue: QueueState, flight: Flight) -> int:
        """Return the number of the connection that received a message in flight, 0 if it is not known."""
        attempt, number = self._found.get((queue, flight.offset), (0, 0))
        return number if attempt == flight.attempt else 0

    @staticmethod
    def _is_current(queue: QueueState, offset: int, attempt: int) -> bool:
        flight = queue.flight(offset)
        return flight is not None and flight.attempt == attempt
