# SPDX-License-Identifier: Apache-2.0
"""DeadLetterWriter: writes messages to the dead letters, also after a last attempt that ended without a receive.

A letter and the event that settles its message are appended together. Until they are written, the message is in flight
without a consumer, for any time. If the log refuses the letter, it is tried again after LETTER_AGAIN_MS.
Invariants: a message has at most a single letter that is being written. When several callers bury a message at once,
the first burial is carried out. Callers that name the same delivery get its outcome; handles of other deliveries are
outdated then.
Callers: the event loop's thread. Memory: READ_COUNT messages, and the messages that the journal writes.
"""

import asyncio
import logging
from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple

from msgspec.structs import replace

from libs.formats.records.delivery_record import Event, Flight, Place, Postponed, Settled
from libs.machine.loop import SupervisedLoop
from libs.requests.errors import DependencyUnavailable, TopicNotFound
from services.delivery.engine.journal.group_time import GroupTime
from services.delivery.engine.journal.journal import Journal
from services.delivery.engine.ports.index import Index
from services.delivery.engine.ports.messages import DeadLetter, Found, Wanted, Written
from services.delivery.engine.state.dead_letter_topic import dead_letter_topic
from services.delivery.engine.state.groups import Groups
from services.delivery.engine.state.last_attempts import LastAttempt
from services.delivery.engine.state.queue import QueueState
from services.delivery.engine.state.tally import Tally
from services.delivery.errors import AppendRefused, JournalLost, MessageDamaged

LETTER_AGAIN_MS = 30_000
"""The pause before a letter that the log refused, or a message that can't be read, is tried again."""
LOOK_MS = 1_000
"""The interval of checks for last attempts that are over. A last attempt that is given back is checked at once."""
READ_COUNT = 16
"""Messages that are read side by side."""

_log = logging.getLogger(__name__)


class _Burial(NamedTuple):
    """A letter that is being written."""

    flight: Flight
    """The flight of its message meanwhile."""
    written: "asyncio.Future[Written]"


class DeadLetterWriter:
    """Writes the dead letters of an ownership. `start` it; `stop` it in the end.

    `wake` is called with queues that may have further messages to deliver.
    """

    def __init__(
        self,
        groups: Groups,
        journal: Journal,
        tally: Tally,
        index: Index,
        time: GroupTime,
        wake: Callable[[Place], None],
    ) -> None:
        self._groups, self._journal, self._tally = groups, journal, tally
        self._index, self._time, self._wake = index, time, wake
        self._under_way: dict[tuple[Place, int], _Burial] = {}
        """Messages whose letters are being written, by queue and queue offset."""
        self._outcomes: dict[tuple[Place, int, int], asyncio.Future[Written]] = {}
        """The futures of burials that are under way, by queue, queue offset, and stamp of the delivery."""
        self._loop = SupervisedLoop(
            "last attempts",
            self._step,
            interval_ms=LOOK_MS,
            expected_errors=(DependencyUnavailable, JournalLost),
            wakes=groups.last_attempts.news,
        )

    def start(self) -> None:
        """Begin to bury messages whose last attempt is over."""
        self._loop.start()

    async def stop(self) -> None:
        """Stop. Letters that were passed to the journal are still written."""
        await self._loop.stop()

    def bury(self, queue: QueueState, found: Found) -> "asyncio.Future[Written]":
        """Write a message that is in flight to the dead letters.

        Returns a future that ends when the letter is written, or with AppendRefused if the log refuses it.
        """
        former, now_ms = queue.flight(found.queue_offset), self._time.now_ms()
        assert former is not None
        until_ms = now_ms + LETTER_AGAIN_MS
        flight = replace(former, stamp=max(until_ms, former.stamp + 1), until_ms=until_ms)
        postponed, event = Postponed(queue.place, (flight,)), Settled(queue.place, (found.queue_offset,))
        self._journal.write([postponed], is_safe=False)
        self._groups.apply(postponed)
        letter = DeadLetter(found, dead_letter_topic(queue.place.group), queue.place, flight.attempt)
        written = self._journal.write([event], [letter], is_safe=True, may_be_refused=True)
        self._under_way[queue.place, flight.offset] = _Burial(flight, written)
        written.add_done_callback(partial(self._buried, queue, flight, event))
        self._told(queue.place, former, written)
        return written

    def outcome(self, place: Place, offset: int, stamp: int) -> "asyncio.Future[Written] | None":
        """Return the future of the burial of a delivery, None if no burial is under way."""
        return self._outcomes.get((place, offset, stamp))

    def _told(self, place: Place, former: Flight, written: "asyncio.Future[Written]") -> None:
        """Keep the outcome of a burial for repeated burials of the same delivery, until it is decided."""
        key = place, former.offset, former.stamp
        self._outcomes[key] = written
        written.add_done_callback(lambda _: self._outcomes.pop(key, None))

    def is_under_way(self, queue: QueueState, offset: int) -> bool:
        """Return whether a message's letter is being written: a log that stalls may take longer than the flight."""
        burial = self._under_way.get((queue.place, offset))
        return burial is not None and queue.flight(offset) == burial.flight

    @property
    def is_busy(self) -> bool:
        """Whether letters are being written: then the state of the groups is behind the journal."""
        return bool(self._under_way)

    async def until_decided(self) -> None:
        """Wait until no letter is being written."""
        while self._under_way:
            await asyncio.wait([burial.written for burial in self._under_way.values()])

    def before(self, queues: Sequence[QueueState]) -> Callable[[], Sequence[Event]]:
        """Return a function that returns the events which a copy of queues lacks if it is passed to the journal now.

        A message whose letter is being written is in flight in the copy, and is settled by a record before the copy.
        The function is called once the outcomes of these letters are decided.
        """
        by_place = {queue.place: queue for queue in queues}
        burials = [
            (place, offset, burial.written)
            for (place, offset), burial in self._under_way.items()
            if place in by_place and self.is_under_way(by_place[place], offset)
        ]
        return lambda: [Settled(place, (offset,)) for place, offset, written in burials if not _is_refused(written)]

    def _buried(self, queue: QueueState, flight: Flight, event: Settled, written: "asyncio.Future[Written]") -> None:
        burial = self._under_way.get((queue.place, flight.offset))
        if burial is not None and burial.flight == flight:  # otherwise it was buried again since
            del self._under_way[queue.place, flight.offset]
        if isinstance(error := written.exception(), AppendRefused):
            _log.error("%s can't be a dead letter, and waits: %s", _named(queue.place, flight), error)
        elif error is None:
            self._tally.buried(queue.place.group)
            if self._is_same(queue, flight):  # otherwise the group was moved or deleted meanwhile
                self._groups.apply(event)
                self._wake(queue.place)  # messages with its key may be delivered

    async def _step(self) -> None:
        """Bury messages whose last attempt is over. Raises DependencyUnavailable, and the journal's failure."""
        last_attempts = self._groups.last_attempts
        while some := last_attempts.take(self._time.now_ms(), READ_COUNT):
            results = await asyncio.gather(*map(self._bury_one, some), return_exceptions=True)
            for one, result in zip(some, results, strict=True):
                if self._is_same(*one):  # it was not buried, and is checked again later
                    again_ms = LOOK_MS if result is None else LETTER_AGAIN_MS
                    last_attempts.note(one.queue.place, [one.flight], self._time.now_ms() + again_ms)
            for result in results:
                if isinstance(result, BaseException) and not isinstance(result, MessageDamaged | TopicNotFound):
                    raise result

    async def _bury_one(self, one: LastAttempt) -> None:
        """Bury a message unless something happens to it while it is read.

        Raises MessageDamaged, TopicNotFound, DependencyUnavailable, and the journal's failure.
        """
        place, offset = one.queue.place, one.flight.offset
        if self.is_under_way(one.queue, offset):
            return
        try:
            found = await self.read(place, offset)
        except (MessageDamaged, TopicNotFound) as error:
            _log.error("%s can't be a dead letter, and waits: %s", _named(place, one.flight), error)
            raise
        if not self._is_same(*one):
            return
        if found is not None:
            await asyncio.wait([self.bury(one.queue, found)])
        else:
            await self.pass_over(one.queue, offset)

    def _is_same(self, queue: QueueState, flight: Flight) -> bool:
        """Return whether the flight of a message is unchanged, and its group was not deleted since."""
        return self._groups.has(queue) and queue.flight(flight.offset) == flight

    async def pass_over(self, queue: QueueState, offset: int) -> None:
        """Settle a message that is gone from the log. Raises the journal's failure."""
        event, former = Settled(queue.place, (offset,)), queue.flight(offset)
        written = self._journal.write([event], is_safe=True)
        self._groups.apply(event)
        self._wake(queue.place)
        if former is not None:
            self._told(queue.place, former, written)
        await asyncio.shield(written)

    async def read(self, place: Place, offset: int) -> Found | None:
        """Return a message, None if it is gone from the log.

        Raises the errors of the index, and DependencyUnavailable while the index does not have the message.
        """
        pulled = await self._index.pull(
            place.topic, place.queue_id, offset, wanted=Wanted(), count=1, size_bytes=1, wait_s=0
        )
        found = next((one for one in pulled.found if one.queue_offset == offset), None)
        if found is None and offset >= pulled.min_queue_offset:
            raise DependencyUnavailable("indexer", f"it has no message {offset} of {place.topic} at the moment")
        return found


def _is_refused(written: "asyncio.Future[Written]") -> bool:
    return written.done() and not written.cancelled() and written.exception() is not None


def _named(place: Place, flight: Flight) -> str:
    return f"message {flight.offset} of {place.topic}/{place.queue_id} of group {place.group}"
