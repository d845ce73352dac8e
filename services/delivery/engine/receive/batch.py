# SPDX-License-Identifier: Apache-2.0
"""DeliveryBatch: the messages that a receive has chosen, and the room that it has left.

Invariants: a message is in the journal before it is handed out; a batch that fails gives all its messages back.
Callers: the event loop's thread.
"""

import asyncio
import contextlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from libs.formats.records.delivery_record import Flight, Postponed, Took
from services.delivery.engine.journal.group_time import GroupTime
from services.delivery.engine.journal.journal import Journal
from services.delivery.engine.ports.messages import Found, Wanted, Written
from services.delivery.engine.state.groups import Groups
from services.delivery.engine.state.handle import Handle
from services.delivery.engine.state.queue import QueueState

SIZE_BYTES_MAX = 8 << 20
"""Size of the messages of a receive; only the last message may exceed it."""


class Delivered(msgspec.Struct, frozen=True, gc=False):
    """A message that belongs to a single consumer until `until_ms`."""

    message: Any
    handle: str
    attempt: int
    until_ms: int
    size_bytes: int


class QueueBatch(Struct):
    """The messages of a queue in a batch. `next` is the group's next queue offset after them."""

    queue: QueueState
    flights: list[Flight]
    held: list[tuple[int, int]]
    next: int
    found: list[Found]

    @property
    def took(self) -> Took:
        """The event that records these messages."""
        return Took(self.queue.place, self.next, tuple(self.flights), tuple(self.held))


class DeliveryBatch:
    """The batch of a receive. `add` messages, then await `delivered`."""

    def __init__(
        self,
        groups: Groups,
        journal: Journal,
        time: GroupTime,
        *,
        wanted: Wanted,
        invisible_ms: int,
        on_given_back: Callable[[], None],
        count: int = 0,
        size_bytes: int = 0,
    ) -> None:
        self.wanted, self.invisible_ms = wanted, invisible_ms
        self.count, self.size_bytes = count, min(size_bytes, SIZE_BYTES_MAX)
        """Messages and bytes that still fit."""
        self.queues: list[QueueBatch] = []
        self.has_seen_more = False
        """Whether the receive passed messages that other members may get."""
        self._groups, self._journal, self._time = groups, journal, time
        self._written: asyncio.Future[Written] | None = None
        self._on_given_back = on_given_back

    @property
    def has_room(self) -> bool:
        """Whether another message fits."""
        return self.count > 0 and self.size_bytes > 0

    def reserve(self, found: Sequence[Found]) -> None:
        """Subtract messages from the room that is left."""
        self.count -= len(found)
        self.size_bytes -= sum(message.size_bytes for message in found)

    def flight(self, queue: QueueState, found: Found, now_ms: int, key: int) -> Flight:
        """Return the next delivery of a message: the next attempt, with a later stamp than the former delivery."""
        former = queue.flight(found.queue_offset)
        stamp = now_ms if former is None else max(now_ms, former.stamp + 1)
        attempt = queue.attempts(found.queue_offset) + 1
        return Flight(found.queue_offset, attempt, stamp, now_ms + self.invisible_ms, key)

    def add(self, queue_batch: QueueBatch, event: Took | Postponed | None = None) -> None:
        """Put messages in flight at once, so that their former handles are outdated.

        The journal gets the event at once: later events of the queue come after it there, too.
        """
        event = queue_batch.took if event is None else event
        self._written = self._journal.write([event], is_safe=False)
        self._groups.apply(event)
        self.queues.append(queue_batch)

    async def delivered(self) -> list[Delivered]:
        """Return the messages once all are in the journal. Raises the journal's failure."""
        if self._written is not None:
            with self.giving_back():
                await self._written
        return [
            self._delivered(batch.queue, flight, found)
            for batch in self.queues
            for flight, found in zip(batch.flights, batch.found, strict=True)
        ]

    @contextlib.contextmanager
    def giving_back(self) -> Iterator[None]:
        """Give all messages back if the block fails or is cancelled."""
        try:
            yield
        except BaseException:
            self._give_back()
            raise

    def _give_back(self) -> None:
        """Make the messages due at once and undo their attempts: their consumer is gone."""
        now_ms = self._time.now_ms()
        for batch in self.queues:
            if not self._groups.has(batch.queue):
                continue
            flights = [
                replace(flight, attempt=flight.attempt - 1, stamp=flight.stamp + 1, until_ms=now_ms)
                for flight in batch.flights
            ]
            event = Postponed(batch.queue.place, tuple(flights))
            self._groups.apply(event)
            if self._journal.failure is None:
                self._journal.write([event], is_safe=False)
        self._on_given_back()

    def _delivered(self, queue: QueueState, flight: Flight, found: Found) -> Delivered:
        place = queue.place
        handle = Handle(place.group, place.topic, place.queue_id, flight.offset, flight.stamp).encode()
        until_ms = self._time.shown_ms(flight.until_ms)
        return Delivered(found.message, handle, flight.attempt, until_ms, found.size_bytes)
