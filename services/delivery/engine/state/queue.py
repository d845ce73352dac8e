# SPDX-License-Identifier: Apache-2.0
"""QueueState: the state of the messages of a queue for a group.

A message below `next` is in flight, held or settled; if it is neither in flight nor held, it is settled.
Messages from `next` on may be settled before a member receives them: replayed dead letters are.
A message is held because a message with its key is in flight, or for members whose filter it passes, also without a
key (0).
Invariants: at most a single message of each key is in flight, and later messages with this key are held; a message's
stamp grows with each delivery, so that the handle of a former delivery is outdated; `apply` is the only way to change
the state.
Memory: some 300 bytes for each message in flight, 100 for each message that is held or settled ahead, independently of
the number of messages that were settled after an open message. Callers: a single thread.
"""

import heapq
from collections import deque
from collections.abc import Set as AbstractSet

from libs.formats.records.delivery_record import Copied, Flight, Moved, Place, Postponed, Settled, Took

QueueEvent = Took | Settled | Postponed | Moved | Copied

STALE_COUNT_MAX = 1_000
"""Outdated entries of a heap are dropped together when they outnumber the messages by this."""


class QueueState:
    """The state of a queue for a group, and its events."""

    def __init__(self, place: Place, start: int = 0) -> None:
        self.place = place
        self.next = start
        self._flights: dict[int, Flight] = {}
        self._held: dict[int, int] = {}
        """Keys of held messages, by queue offset."""
        self._waiting: dict[int, deque[int]] = {}
        """Held messages by key, in their order."""
        self._busy: dict[int, int] = {}
        """Queue offset of the message in flight, by key."""
        self._free: set[int] = set()
        """Keys with held messages and none in flight."""
        self._aside: set[int] = set()
        """Held messages without a key."""
        self._due: list[tuple[int, int, int]] = []
        """A heap of times, offsets and stamps. Entries of former deliveries are dropped at the top of the heap."""
        self._open: list[int] = []
        """A heap of offsets in flight or held. Settled offsets are dropped at the top of the heap."""
        self._ahead: set[int] = set()
        """Settled offsets after `next`. `next` is never among them."""

    @property
    def open_count(self) -> int:
        """Number of messages that are in flight or held."""
        return len(self._flights) + len(self._held)

    @property
    def flight_count(self) -> int:
        """Number of messages that were delivered and are not settled."""
        return len(self._flights)

    @property
    def first_blocked(self) -> tuple[int, Flight] | None:
        """The first message in flight for which messages of its key wait, and how many wait; None if there is none."""
        offsets = [offset for key, offset in self._busy.items() if key in self._waiting]
        if not offsets:
            return None
        flight = self._flights[min(offsets)]
        return len(self._waiting[flight.key]), flight

    def waiting(self, now_ms: int) -> list[int]:
        """Return the due times of messages that were given back, or whose consumers' time is over."""
        return [one.until_ms for one in self._flights.values() if not one.is_with_receiver(now_ms)]

    @property
    def committed(self) -> int:
        """Queue offset of the first message that is not settled."""
        while self._open and self._open[0] not in self._flights and self._open[0] not in self._held:
            heapq.heappop(self._open)
        return min(self._open[0], self.next) if self._open else self.next

    @property
    def ahead_count(self) -> int:
        """Number of settled messages from `next` on."""
        return len(self._ahead)

    def is_settled(self, offset: int) -> bool:
        """Return whether a message is settled."""
        return offset in self._ahead if offset >= self.next else not self.is_open(offset)

    def unsettled_count(self, least: int, most: int) -> int:
        """Return how many messages of a queue that reaches from `least` to `most` are not settled."""
        ahead_count = sum(offset >= least for offset in self._ahead)
        return self.open_count + max(0, most - max(self.next, least) - ahead_count)

    def undelivered_before(self, offset: int) -> int:
        """Return how many messages from `next` on and before an offset are not settled."""
        return max(0, offset - self.next) - sum(one < offset for one in self._ahead)

    def blocker(self, offset: int) -> int | None:
        """Return the message in flight for which a held message waits, None if it waits for a member."""
        return self._busy.get(self._held.get(offset, 0))

    def open_offsets(self) -> list[int]:
        """Return the offsets of messages that are in flight or held, in their order."""
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
        """Return whether the next message with this key has to wait."""
        return key != 0 and (key in self._busy or key in self._waiting)

    def due_ms(self, but_not: AbstractSet[int] = frozenset()) -> int | None:
        """Return when the first message may be delivered again: 0 if a held message may be now, None if there is none.

        `but_not`: messages that are not for this member.
        """
        if self._is_any_free(but_not):
            return 0
        if but_not:
            times = (one.until_ms for offset, one in self._flights.items() if offset not in but_not)
            return min(times, default=None)
        self._drop_stale()
        return self._due[0][0] if self._due else None

    def ready(self, now_ms: int, count: int, but_not: AbstractSet[int] = frozenset()) -> list[int]:
        """Return messages that are due again, or held and free now, in the order of the queue."""
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
            if not kept or entry != kept[-1]:  # an extension that keeps the handle may add an equal entry
                kept.append(entry)
                found.append(entry[1])
        for entry in kept:
            heapq.heappush(self._due, entry)
        return found

    def apply(self, event: QueueEvent) -> None:
        """Apply an event. Postponed flights of messages that are not in flight any more are ignored."""
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
        """Return the whole state as an event, for a copy."""
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
        """Move `next` to an offset, or after the messages that are settled from there on. Never back."""
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
        """Remove a message from the held messages."""
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
