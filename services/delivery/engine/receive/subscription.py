# SPDX-License-Identifier: Apache-2.0
"""Subscription: delivers the messages of a topic to the members of a group.

A receive gets messages that are due again first, then new messages, of the queues in turn. New messages come first if
the receive before had no room for them. Members may use different filters: a queue is read once, with the union of all
filters, and a message for another member than the receiver is held for that member.
Invariants: a single receive chooses at a time, so that a message has a single consumer; a chosen message is in the
journal before it is handed out; a receive that waits for the index or the journal does not bring a deleted group back.
Callers: the event loop's thread. Memory: that of its feeds.
"""

import asyncio
from collections.abc import Iterable, Sequence

from msgspec.structs import replace

from libs.formats.records.delivery_record import Postponed, Settled, Took
from libs.machine.clock import Clock
from services.delivery.engine.dead_letters.writer import DeadLetterWriter
from services.delivery.engine.journal.group_time import GroupTime
from services.delivery.engine.journal.journal import Journal
from services.delivery.engine.ports.index import Index
from services.delivery.engine.ports.messages import Wanted
from services.delivery.engine.receive.batch import SIZE_BYTES_MAX, Delivered, DeliveryBatch, QueueBatch
from services.delivery.engine.receive.due_messages import DueMessages
from services.delivery.engine.receive.feed import ReadAhead
from services.delivery.engine.receive.feeds import Feeds
from services.delivery.engine.receive.filters import Filters
from services.delivery.engine.receive.fresh_messages import FreshMessages
from services.delivery.engine.receive.news import News
from services.delivery.engine.receive.queue_begins import QueueBegins
from services.delivery.engine.receive.rereading import MessageCache, Rereader
from services.delivery.engine.state.groups import Groups
from services.delivery.engine.state.handle import Handle
from services.delivery.engine.state.holders import Holders
from services.delivery.engine.state.queue import QueueState
from services.delivery.engine.state.tally import Tally

AGAIN_S = 0.2
"""After this time a receive tries again to read messages that were due and could not be read."""


class Subscription:
    """The subscription of a group to a topic. `stop` it in the end."""

    def __init__(
        self,
        groups: Groups,
        index: Index,
        journal: Journal,
        tally: Tally,
        dead_letter_writer: DeadLetterWriter,
        clock: Clock,
        time: GroupTime,
        filters: Filters,
        *,
        read_ahead: ReadAhead,
        holders: Holders,
        open_count_max: int,
        queue_open_count_max: int,
    ) -> None:
        self.group, self.topic, self.filters = filters.group, filters.topic, filters
        self.used_s = clock.monotonic_s()
        """Monotonic time of the last receive."""
        self.news = News()
        """Wakes members that wait when there may be a message for them."""
        self._groups, self._journal, self._tally, self._clock, self._time = groups, journal, tally, clock, time
        self._queue_open_count_max = queue_open_count_max
        cache = MessageCache(read_ahead)
        begins = QueueBegins(index, self.topic)
        rereader = Rereader(index, self.topic, cache, begins)
        self.feeds = Feeds(groups, index, filters, self.news, begins, read_ahead)
        self._cache, self._rereader = cache, rereader
        self._due = DueMessages(groups, journal, time, filters, cache, rereader, dead_letter_writer)
        self._fresh = FreshMessages(
            groups,
            time,
            filters,
            cache,
            self.feeds,
            self.news.tell,
            open_count_max=open_count_max,
            queue_open_count_max=queue_open_count_max,
        )
        self._holders = holders
        self._is_fresh_first = False
        self._lock = asyncio.Lock()
        self._is_stopped = False

    @property
    def held_bytes(self) -> int:
        """Size of the messages that were read and not delivered yet."""
        return self._cache.size_bytes + self.feeds.size_bytes

    @property
    def is_busy(self) -> bool:
        """Whether a receive chooses messages at this moment."""
        return self._lock.locked()

    async def stop(self) -> None:
        """Stop reading, and wake members that wait. A receive that chooses messages now returns them."""
        self._is_stopped = True
        self._groups.when_room.discard(self.news.tell)
        self.news.stop()
        self._cache.close()
        await self.feeds.stop()

    async def take(
        self,
        count: int,
        size_bytes: int,
        *,
        invisible_ms: int,
        wanted: Wanted,
        queue_ids: Iterable[int],
        connection_number: int = 0,
    ) -> list[Delivered]:
        """Deliver up to `count` messages that are there now. Raises the errors of the journal and the index."""
        async with self._lock:
            self.used_s = self._clock.monotonic_s()
            self.filters.ask(wanted, self._time.now_ms())
            if not self._is_stopped:
                self.news.receives(wanted)
            if self._groups.policy(self.group).is_paused:
                return []
            batch = self._batch(wanted, invisible_ms, count, size_bytes)
            with batch.giving_back():
                await self._choose(batch, list(queue_ids))
            for chosen in batch.queues:
                self.filters.gave(wanted, chosen.queue, chosen.flights)
                self._holders.note(connection_number, chosen.queue, chosen.flights)
            if batch.has_seen_more or (not batch.has_room and (self.feeds.has_messages or self._due.are_due())):
                self.news.tell()
            for other in self.news.filters:
                self.wake_when_due(other)
        delivered = await batch.delivered()
        self._tally.received_count += len(delivered)
        self._tally.redelivered_count += sum(message.attempt > 1 for message in delivered)
        return delivered

    async def repeat(self, handles: Iterable[str], invisible_ms: int) -> list[Delivered]:
        """Deliver messages again in the same attempt, under new handles, if the old handles are still valid.

        The old handles are outdated afterwards. Raises the errors of the journal and the index.
        """
        stamps: dict[QueueState, dict[int, int]] = {}
        for handle in map(Handle.decode, handles):
            queue = self._groups.find(handle.place)
            if queue is not None and _is_flight(queue, handle.offset, handle.stamp):
                stamps.setdefault(queue, {})[handle.offset] = handle.stamp
        found = {
            queue: (await self._rereader.read(queue.place.queue_id, sorted(offsets), SIZE_BYTES_MAX))[0]
            for queue, offsets in stamps.items()
        }
        now_ms, batch = self._time.now_ms(), self._batch(self.filters.union, invisible_ms)
        for queue, offsets in stamps.items():  # without a wait, so that a failure leaves all as it was
            if not self._groups.has(queue):
                continue
            same = [message for offset, message in found[queue].items() if _is_flight(queue, offset, offsets[offset])]
            former = [flight for message in same if (flight := queue.flight(message.queue_offset)) is not None]
            flights = [
                replace(flight, stamp=max(now_ms, flight.stamp + 1), until_ms=now_ms + invisible_ms)
                for flight in former
            ]
            for before, flight in zip(former, flights, strict=True):
                self.filters.extended(queue, before, flight)
            if flights:
                repeated = QueueBatch(queue, flights, [], queue.next, same)
                batch.add(repeated, Postponed(queue.place, tuple(flights)))
        return await batch.delivered()

    def skipped(self) -> Sequence[Took]:
        """Return events that move queues past messages that pass no filter in use. The caller applies and writes them.

        Empty while a receive chooses messages.
        """
        return () if self.is_busy else self.feeds.skipped()

    def wake_when_due(self, wanted: Wanted) -> None:
        """Wake members with this filter when a message is due for them, or soon if it could not be read."""
        due_ms = None if self._groups.policy(self.group).is_paused else self._due.due_ms(wanted)
        if due_ms is not None:
            due_s = (due_ms - self._time.now_ms()) / 1000
            self.news.tell_in(due_s if due_s > 0 else AGAIN_S)

    def changed(self, event: Settled | Postponed) -> None:
        """Wake members if an event lets another message be delivered, now or later."""
        if isinstance(event, Postponed):
            for flight in event.flights:
                self.news.tell_in((flight.until_ms - self._time.now_ms()) / 1000)
            return
        queue = self._groups.find(event.place)
        if queue is not None:
            was_full = queue.open_count + len(event.offsets) >= self._queue_open_count_max
            if was_full or queue.due_ms() == 0:
                self.news.tell()

    async def _choose(self, batch: DeliveryBatch, queue_ids: list[int]) -> None:
        policy = self._groups.policy(self.group)
        is_fresh_first, self._is_fresh_first = self._is_fresh_first, False
        if is_fresh_first:
            await self._fresh.add_to(batch, policy, queue_ids)
        await self._due.add_to(batch, policy)
        if not is_fresh_first:
            self._is_fresh_first = not batch.has_room
            await self._fresh.add_to(batch, policy, queue_ids)

    def _batch(self, wanted: Wanted, invisible_ms: int, count: int = 0, size_bytes: int = 0) -> DeliveryBatch:
        return DeliveryBatch(
            self._groups,
            self._journal,
            self._time,
            wanted=wanted,
            invisible_ms=invisible_ms,
            on_given_back=self.news.tell,
            count=count,
            size_bytes=size_bytes,
        )


def _is_flight(queue: QueueState, offset: int, stamp: int) -> bool:
    flight = queue.flight(offset)
    return flight is not None and flight.stamp == stamp
