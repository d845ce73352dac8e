# SPDX-License-Identifier: Apache-2.0
"""Settling: acknowledges, gives back, extends and buries deliveries, each named by its handle.

Invariants: the outcome of a request is returned only when its event is as durable as the store promises; a request that
is repeated because its answer was lost gets the same answer again, unless the log has lost the first request since.
Callers: the event loop's thread.
"""

import asyncio
from collections.abc import Sequence
from typing import Final, Literal

import msgspec

from libs.formats.records.delivery_record import Event, Flight, Place, Postponed, Settled
from libs.requests.errors import DependencyUnavailable, ServiceError
from services.delivery.engine.dead_letters.writer import DeadLetterWriter
from services.delivery.engine.journal.group_time import GroupTime
from services.delivery.engine.journal.journal import Journal
from services.delivery.engine.ports.messages import Written
from services.delivery.engine.receive.subscriptions import Subscriptions
from services.delivery.engine.state.groups import Groups
from services.delivery.engine.state.handle import Handle
from services.delivery.engine.state.queue import QueueState
from services.delivery.engine.state.repeats import Repeats
from services.delivery.engine.state.tally import Tally
from services.delivery.errors import AppendRefused, HandleOutdated

Verb = Literal["ack", "nack", "extend", "terminate", "bury"]
FINAL: frozenset[Verb] = frozenset({"ack", "terminate", "bury"})
"""Verbs after which a message is settled."""


class SettleRequest(msgspec.Struct, frozen=True, gc=False):
    """A verb for the delivery that a handle names. `delay_ms` None: the time of the group's policy."""

    handle: str
    verb: Verb
    delay_ms: int | None = None
    keeps_handle: bool = False
    """For `extend`: the handle stays valid."""
    is_untried: bool = False
    """For `nack`: the delivery does not count as an attempt."""


class SettleOutcome(msgspec.Struct, frozen=True):
    """An error, or the handle of the delivery: "" if the message is settled, given back, or keeps its handle."""

    error: ServiceError | None = None
    handle: str = ""


DONE: Final = SettleOutcome()
"""The outcome of a request that needs no new handle."""


class _Acks:
    """Acknowledgements of a call that are not applied yet, by queue: they become a single event of the queue."""

    def __init__(self) -> None:
        self._offsets: dict[Place, dict[int, None]] = {}
        self.stamps_ms: list[int] = []
        """The times of the deliveries of all messages that were added."""

    def add(self, place: Place, offset: int) -> bool:
        """Add a message. Returns False if it is there already."""
        offsets = self._offsets.setdefault(place, {})
        if offset in offsets:
            return False
        offsets[offset] = None
        return True

    def take(self) -> list[Settled]:
        """Remove and return the events of the acknowledgements."""
        events = [Settled(place, tuple(offsets)) for place, offsets in self._offsets.items()]
        self._offsets.clear()
        return events


class Settling:
    """Settles the deliveries of all groups."""

    def __init__(
        self,
        groups: Groups,
        journal: Journal,
        tally: Tally,
        repeats: Repeats,
        time: GroupTime,
        dead_letter_writer: DeadLetterWriter,
        subscriptions: Subscriptions,
    ) -> None:
        self._groups, self._journal, self._tally, self._repeats = groups, journal, tally, repeats
        self._time, self._dead_letter_writer, self._subscriptions = time, dead_letter_writer, subscriptions
        self._last_write: asyncio.Future[Written] | None = None
        """The last write of settled events. It ends after all writes before it."""

    async def settle(self, requests: Sequence[SettleRequest]) -> list[SettleOutcome]:
        """Settle deliveries, and return an outcome for each request, in order.

        Raises the journal's failure: then a repeated request is carried out, not answered as done.
        """
        if self._journal.failure is not None:
            raise self._journal.failure
        events: list[Event] = []
        acks = _Acks()
        outcomes = self._settle_all(requests, events, acks)
        if events:
            self._last_write = self._journal.write(events, is_safe=True)
        written = self._last_write  # also for repeated requests, whose first event may not be written yet
        for index, request in enumerate(requests):  # a burial reads a message: the events above are on their way
            if request.verb == "bury":
                outcomes[index] = await self._bury(request)
        if written is not None:
            settled_ms = (await asyncio.shield(written)).store_time_ms - self._groups.behind_ms
            self._tally.settle_durations.count_since_ms(acks.stamps_ms, settled_ms)
        for event in events:
            if isinstance(event, Settled):
                self._tally.settled_count += len(event.offsets)
            else:
                self._tally.postponed_count += 1
        return outcomes

    def _settle_all(self, requests: Sequence[SettleRequest], events: list[Event], acks: _Acks) -> list[SettleOutcome]:
        """Apply all requests but burials, and add their events to the events to write.

        Neighbouring acknowledgements are applied together.
        """
        outcomes: list[SettleOutcome] = []
        for request in requests:
            if request.verb == "bury":
                outcomes.append(DONE)
                continue
            try:
                handle = Handle.decode(request.handle)
                if request.verb in FINAL:
                    outcomes.append(self._settle(handle, request, acks))
                else:
                    self._apply(acks.take(), events)
                    outcomes.append(self._postpone(handle, request, events))
            except HandleOutdated as error:
                self._apply(acks.take(), events)
                outcomes.append(self._repeated(request, error))
            except ServiceError as error:
                outcomes.append(SettleOutcome(error))
        self._apply(acks.take(), events)
        return outcomes

    def _settle(self, handle: Handle, request: SettleRequest, acks: _Acks) -> SettleOutcome:
        """Add a message to the acknowledgements that are applied together. Raises HandleOutdated."""
        place = handle.place
        _, flight = self._in_flight(handle, place)
        if not acks.add(place, handle.offset):
            raise HandleOutdated(handle.topic, handle.queue_id, handle.offset)
        acks.stamps_ms.append(flight.stamp)
        self._repeats.note(request, "")
        return DONE

    def _postpone(self, handle: Handle, request: SettleRequest, events: list[Event]) -> SettleOutcome:
        """Apply a nack or an extension, and add its event to the events to write. Raises HandleOutdated."""
        event, outcome = self._event(handle, request)
        if not request.keeps_handle:
            self._repeats.note(request, outcome.handle)
        self._apply([event], events)
        return outcome

    def _apply(self, some: Sequence[Settled | Postponed], events: list[Event]) -> None:
        """Apply events, add them to the events to write, and wake members for them."""
        for event in some:
            self._groups.apply(event)
            events.append(event)
            if (subscription := self._subscriptions.find(event.place.group, event.place.topic)) is not None:
                subscription.changed(event)

    def _event(self, handle: Handle, request: SettleRequest) -> tuple[Postponed, SettleOutcome]:
        """Return the event of a nack or an extension, and its outcome. Raises HandleOutdated."""
        place = handle.place
        queue, flight = self._in_flight(handle, place)
        if request.verb == "nack":
            return Postponed(place, (self._given_back(flight, request, handle.group),)), DONE
        now_ms = self._time.now_ms()
        delay_ms = self._groups.policy(handle.group).invisible_ms if request.delay_ms is None else request.delay_ms
        stamp = flight.stamp if request.keeps_handle else max(now_ms, flight.stamp + 1)
        extended = Flight(flight.offset, flight.attempt, stamp, now_ms + delay_ms, flight.key)
        if (filters := self._subscriptions.filters.find(handle.group, handle.topic)) is not None:
            filters.extended(queue, flight, extended)
        new_handle = Handle(handle.group, handle.topic, handle.queue_id, handle.offset, stamp)
        return Postponed(place, (extended,)), SettleOutcome(handle=new_handle.encode())

    def _given_back(self, flight: Flight, request: SettleRequest, group: str) -> Flight:
        """Return the flight of a message that waits for its next attempt, and has no consumer until then."""
        policy, attempt = self._groups.policy(group), flight.attempt - request.is_untried
        delay_ms = policy.backoff_ms(flight.attempt) if request.delay_ms is None else request.delay_ms
        if attempt >= policy.attempts_max:
            delay_ms = 0  # no attempt is left to wait for
        due_ms = self._time.now_ms() + delay_ms
        return Flight(flight.offset, attempt, max(due_ms, flight.stamp + 1), due_ms, flight.key)

    def _in_flight(self, handle: Handle, place: Place) -> tuple[QueueState, Flight]:
        """Return the delivery that a handle names, which is at `place`. Raises HandleOutdated."""
        queue = self._groups.find(place)
        flight = None if queue is None else queue.flight(handle.offset)
        if queue is None or flight is None or flight.stamp != handle.stamp:
            raise HandleOutdated(handle.topic, handle.queue_id, handle.offset)
        return queue, flight

    def _repeated(self, request: SettleRequest, error: HandleOutdated) -> SettleOutcome:
        """Return the first answer to a repeated request, or the error if the log has lost its effect since."""
        answer, handle = self._repeats.answer(request), Handle.decode(request.handle)
        queue = self._groups.find(handle.place)
        is_lost = request.verb in FINAL and queue is not None and not queue.is_settled(handle.offset)
        return SettleOutcome(error) if answer is None or is_lost else SettleOutcome(handle=answer)

    async def _bury(self, request: SettleRequest) -> SettleOutcome:
        try:
            await self._bury_message(Handle.decode(request.handle), request)
        except HandleOutdated as error:
            return self._repeated(request, error)
        except ServiceError as error:
            return SettleOutcome(error)
        return DONE

    async def _bury_message(self, handle: Handle, request: SettleRequest) -> None:
        """Write a message to the dead letters, or await the outcome of a burial that has begun.

        Raises HandleOutdated, and the errors of the journal and the index.
        """
        found, delivery = None, (handle.place, handle.offset, handle.stamp)
        if (outcome := self._dead_letter_writer.outcome(*delivery)) is None:
            self._in_flight(handle, handle.place)
            found = await self._dead_letter_writer.read(handle.place, handle.offset)
            outcome = self._dead_letter_writer.outcome(*delivery)  # another burial may have begun during the read
        if outcome is None:
            queue, _ = self._in_flight(handle, handle.place)  # the message may have been settled during the read
            self._repeats.note(request, "")  # valid once the message is settled
            if found is None:
                await self._dead_letter_writer.pass_over(queue, handle.offset)
                return
            outcome = self._dead_letter_writer.bury(queue, found)
        try:
            await asyncio.shield(outcome)
        except AppendRefused as error:
            raise DependencyUnavailable("commitlog", f"it does not take the dead letter: {error}") from error
