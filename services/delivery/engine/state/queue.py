# SPDX-License-Identifier: Apache-2.0
"""QueueState: what became of the messages of one queue, as one group sees it.

Every message below `next` is in flight, held, or settled, and everything that is neither of the first two is settled.
Messages from `next` on may be settled, too: before anybody receives them, as dead letters are that are replayed.
A message is held because one with its key is in flight, or, also without a key (0), for members whose filter it passes.
Invariants: of messages with the same key at most one is in flight, and those after it are held; a message's stamp grows
with each delivery, so that a handle of a former one fits no more; `apply` is the only way to change anything.
Memory: some 300 bytes for each message in flight, 100 for each that is held or settled ahead; however many others pass
one that is not settled. Callers: one thread.
"""

import heapq
from collections import deque
from collections.abc import Set as AbstractSet

from libs.formats.records.delivery_record import Copied, Flight, Moved, Place, Postponed, Settled, Took

QueueEvent = Took | Settled | Postponed | Moved | Copied

STALE_COUNT_MAX = 1_000
"""Entries of a heap that are dropped by the way only, besides as many as there are messages."""


class QueueState:
    """See the module."""

    def __init__(self, place: Place, start: int = 0) -> None:
        self.place = place
        self.next = start
        self._flights: dict[int, Flight] = {}
        self._held: dict[int, int] = {}
        """Keys of messages that were passed and not delivered."""
        self._waiting: dict[int, deque[int]] = {}
        """Held messages by key, in their order."""
        self._busy: dict[int, int] = {}
        """Which message of a key is in flight."""
        self._free: set[int] = set()
        """Keys of which one is held and none in flight."""
        self._aside: set[int] = set()
        """Held messages without a key."""
        self._due: list[tuple[int, int, int]] = []
        """A heap of times, offsets and stamps. Those of former deliveries are dropped when they come up."""
        self._open: list[int] = []
        """A heap of offsets in flight or held. Those that are settled are dropped when they come up."""
        self._ahead: set[int] = set()
        """Offsets behind `next` that are settled. `next` is never one of them."""

    @property
    def open_count(self) -> int:
        """Messages that are in flight or held."""
        return len(self._flights) + len(self._held)

    @property
    def flight_count(self) -> int:
        """Messages that were delivered and are not settled."""
        return len(self._flights)

    @property
    def first_blocked(self) -> tuple[int, Flight] | None:
        """The message in flight that others of its key wait for, and how many; of several the first one."""
        offsets = [offset for key, offset in self._busy.items() if key in self._waiting]
        if not offsets:
            return None
        flight = self._flights[min(offsets)]
        return len(self._waiting[flight.key]), flight

    def waiting(self, now_ms: int) -> list[int]:
        """Return when the messages are due that nobody has: they were given back, or their receivers' time is over."""
        return [one.until_ms for one in self._flights.values() if one.until_ms <= max(now_ms, one.stamp)]

    @property
    def committed(self) -> int:
        """The first message that is not settled."""
        while self._open and self._open[0] not in self._flights and self._open[0] not in self._held:
            heapq.heappop(self._open)
        return min(self._open[0], self.next) if self._open else self.next

    @property
    def ahead_count(self) -> int:
        """Messages from `next` on that are settled."""
        return len(self._ahead)

    def is_settled(self, offset: int) -> bool:
        """Return whether a message is done with."""
        return offset in self._ahead if offset >= self.next else not self.is_open(offset)

    def unsettled_count(self, least: int, most: int) -> int:
        """Return how many messages of a queue that reaches from `least` to `most` are not done with."""
        ahead_count = sum(offset >= least for offset in self._ahead)
        return self.open_count + max(0, most - max(self.next, least) - ahead_count)

    def open_offsets(self) -> list[int]:
        """Return the messages that are in flight or held, in their order."""
        return sorted([*self._flights, *self._held])

    def is_open(self, offset: int) -> bool:
        """Return whether a message is in flight or held."""
        return offset in self._flights or offset in self._held

    def flight(self, offset: int) -> Flight | None:
        """Return the delivery of a message that is in flight."""
        return self._flights.get(offset)

    def flights(self) -> list[Flight]:
        """Return the deliveries of all messages that are in flight."""
        return list(self._flights.values())

    def key(self, offset: int) -> int:
        """Return the key of a message that is in flight or held."""
        flight = self._flights.get(offset)
        return self._held.get(offset, 0) if flight is None else flight.key

    def attempts(self, offset: int) -> int:
        """Return how often a message was delivered."""
        flight = self._flights.get(offset)
        return 0 if flight is None else flight.attempt

    def is_blocked(self, key: int) -> bool:
        """Return whether a message of this key has to wait, if it is the next one that is passed."""
        return key != 0 and (key in self._busy or key in self._waiting)

    def due_ms(self, but_not: AbstractSet[int] = frozenset()) -> int | None:
        """Return when the first message in flight may be delivered again: 0 if a held one may be now, None if none.

        `but_not` are messages that are not for the one who asks.
        """
        if self._is_any_free(but_not):
            return 0
        if but_not:
            times = (one.until_ms for offset, one in self._flights.items() if offset not in but_not)
            return min(times, default=None)
        self._drop_stale()
        return self._due[0][0] if self._due else None

    def ready(self, now_ms: int, count: int, but_not: AbstractSet[int] = frozenset()) -> list[int]:
        """Return messages that may be delivered, again or after being held, in the order of the queue."""
        if but_not:
            due = ((one.until_ms, offset) for offset, one in self._flights.items() if offset not in but_not)
            found = [offset for _, offset in heapq.nsmallest(count, (one for one in due if one[0] <= now_ms))]
        else:
            found = self._first_due(now_ms, count)
        free = [offset for key in self._free if (offset := self._waiting[key][0]) not in but_not]
        aside = self._aside - but_not if but_not else self._aside
        return sorted(found + heapq.nsmallest(count - len(found), [*free, *aside]))

    def _is_any_free(self, but_not: AbstractSet[int]) -> bool:
        if not but_not:
            return bool(self._free or self._aside)
        return any(self._waiting[key][0] not in but_not for key in self._free) or not self._aside <= but_not

    def _first_due(self, now_ms: int, count: int) -> list[int]:
        found: list[int] = []
        kept: list[tuple[int, int, int]] = []
        while len(found) < count:
            self._drop_stale()
            if not self._due or self._due[0][0] > now_ms:
                break
            entry = heapq.heappop(self._due)
            if not kept or entry != kept[-1]:  # an extension that keeps the handle may have said the same twice
                kept.append(entry)
                found.append(entry[1])
        for entry in kept:
            heapq.heappush(self._due, entry)
        return found

    def apply(self, event: QueueEvent) -> None:
        """Let this have happened. What does not fit, because it was settled meanwhile, is passed over."""
        if isinstance(event, Took):
            self._take(event)
        elif isinstance(event, Settled):
            for offset in event.offsets:
                self._forget(offset)
            self._ahead.update(offset for offset in event.offsets if offset >= self.next)
            self._go_to(self.next)
        elif isinstance(event, Postponed):
            for flight in event.flights:
                if flight.offset in self._flights:
                    self._put(flight)
        else:
            for offset in [*self._flights, *self._held]:
                self._forget(offset)
            self._ahead = set(event.ahead) if isinstance(event, Copied) else set()
            self.next = event.next
            if isinstance(event, Copied):
                self._take(Took(self.place, event.next, event.flights, event.held))

    def copied(self) -> Copied:
        """Return all that is known."""
        flights = tuple(self._flights[offset] for offset in sorted(self._flights))
        return Copied(self.place, self.next, flights, tuple(sorted(self._held.items())), tuple(sorted(self._ahead)))

    def _take(self, event: Took) -> None:
        for flight in event.flights:
            self._release(flight.offset)
            self._put(flight)
            self._push_open(flight.offset)
        for offset, key in event.held:
            self._held[offset] = key
            self._push_open(offset)
            if not key:
                self._aside.add(offset)
                continue
            self._waiting.setdefault(key, deque()).append(offset)
            if key not in self._busy:
                self._free.add(key)
        self._go_to(event.next)

    def _go_to(self, offset: int) -> None:
        """Go on at an offset, or behind what is settled from there on. Never back."""
        before, self.next = self.next, max(self.next, offset)
        while self.next in self._ahead:
            self.next += 1
        if self.next > before and self._ahead:
            self._ahead = {one for one in self._ahead if one > self.next}

    def _put(self, flight: Flight) -> None:
        self._flights[flight.offset] = flight
        if flight.key:
            self._busy[flight.key] = flight.offset
            self._free.discard(flight.key)
        heapq.heappush(self._due, (flight.until_ms, flight.offset, flight.stamp))
        if len(self._due) > 2 * len(self._flights) + STALE_COUNT_MAX:
            self._due = [(one.until_ms, one.offset, one.stamp) for one in self._flights.values()]
            heapq.heapify(self._due)

    def _push_open(self, offset: int) -> None:
        heapq.heappush(self._open, offset)
        if len(self._open) > 2 * self.open_count + STALE_COUNT_MAX:
            self._open = self.open_offsets()

    def _forget(self, offset: int) -> None:
        self._release(offset)
        flight = self._flights.pop(offset, None)
        if flight is not None and self._busy.get(flight.key) == offset:
            del self._busy[flight.key]
            if flight.key in self._waiting:
                self._free.add(flight.key)

    def _release(self, offset: int) -> None:
        """Let a message be held no more."""
        key = self._held.pop(offset, None)
        self._aside.discard(offset)
        if key:
            waiting = self._waiting[key]
            waiting.remove(offset)
            if not waiting:
                del self._waiting[key]
                self._free.discard(key)

    def _drop_stale(self) -> None:
        while self._due:
            until_ms, offset, stamp = self._due[0]
            flight = self._flights.get(offset)
            if flight is not None and (flight.until_ms, flight.stamp) == (until_ms, stamp):
                return
            heapq.heappop(self._due)
