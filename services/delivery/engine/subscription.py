# SPDX-License-Identifier: Apache-2.0
"""Subscription: gives the messages of one topic to those who receive for one group.

First what is due again, then what is new, the queues in turn; but first what is new if the receive before found no room
for it. A message that was given back too often goes to the dead
letters instead, in one record with the event that settles it. Members may ask for different messages: a queue is read
once, by all that any of them asks for, and what is for others than the receiver is held for them.
Invariants: one receive chooses at a time, so that no message is given to two; what was chosen is in the journal before
it is handed out; at most `open_count_max` messages of a queue are in flight or held; a group that is deleted while a
receive waits for the index or the journal does not come back by it.
Callers: the event loop's thread. Memory: that of its feeds.
"""

import asyncio
import contextlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from msgspec.structs import replace

from libs.formats.records.delivery_record import Event, Flight, Place, Policy, Postponed, Settled, Took
from libs.machine.clock import Clock
from libs.machine.uninterrupted import uninterrupted
from services.delivery.engine.feed import Feed, ReadAhead
from services.delivery.engine.journal import Journal
from services.delivery.engine.letters.burying import Burying
from services.delivery.engine.ports import Found, Index, Wanted, Written
from services.delivery.engine.receiving.filters import Filters
from services.delivery.engine.receiving.kept import Kept
from services.delivery.engine.receiving.news import News
from services.delivery.engine.receiving.rereading import Rereading
from services.delivery.engine.standing.standstill import FeedFailure
from services.delivery.engine.state.groups import Groups
from services.delivery.engine.state.handle import Handle
from services.delivery.engine.state.queue import QueueState
from services.delivery.engine.tally import Tally
from services.delivery.engine.times.group_time import GroupTime

AGAIN_S = 0.2
"""When a receive looks again at messages that were due, and that it could not read."""
ROUND_COUNT = 8
"""How often one receive looks at a queue again, behind messages that were for others."""
SIZE_BYTES_MAX = 8 << 20
"""Of the messages of one receive, unless the last one makes it more."""


@dataclass(frozen=True, slots=True)
class Delivered:
    """A message that is the receiver's for a while."""

    message: Any
    handle: str
    attempt: int
    until_ms: int
    size_bytes: int


@dataclass(slots=True)
class _Chosen:
    """What one receive takes of one queue."""

    queue: QueueState
    flights: list[Flight]
    held: list[tuple[int, int]]
    next: int
    found: list[Found]
    written: "asyncio.Future[Written] | None" = None
    """Tells when it is in the journal."""

    @property
    def took(self) -> Took:
        return Took(self.queue.place, self.next, tuple(self.flights), tuple(self.held))


@dataclass(slots=True)
class _Room:
    """What one receive asks for, and how much it may still take. The last message may be larger than what is left."""

    count: int
    size_bytes: int
    invisible_ms: int
    wanted: Wanted
    is_more: bool = False
    """Whether it came across messages that other members may get."""

    @property
    def is_left(self) -> bool:
        return self.count > 0 and self.size_bytes > 0

    def take(self, found: Sequence[Found]) -> None:
        self.count -= len(found)
        self.size_bytes -= sum(one.size_bytes for one in found)


class Subscription:
    """Of one group and topic. `stop` it in the end."""

    def __init__(
        self,
        group: str,
        topic: str,
        groups: Groups,
        index: Index,
        journal: Journal,
        tally: Tally,
        burying: Burying,
        clock: Clock,
        time: GroupTime,
        filters: Filters,
        *,
        ahead: ReadAhead,
        open_count_max: int,
    ) -> None:
        self.group, self.topic = group, topic
        self.used_s = clock.monotonic_s()
        """When somebody received last."""
        self.news = News()
        """Tells members that wait when there may be something to receive."""
        self._groups = groups
        self._index = index
        self._journal = journal
        self._tally = tally
        self._burying = burying
        self._clock = clock
        self._time = time
        self._ahead = ahead
        self._open_count_max = open_count_max
        self.filters = filters
        self._kept = Kept(ahead)
        self._rereading = Rereading(index, topic, self._kept)
        self._feeds: dict[int, Feed] = {}
        self._turn = 0
        self._is_fresh_first = False
        self._lock = asyncio.Lock()
        self._is_over = False

    @property
    def held_bytes(self) -> int:
        """Of messages that were read ahead, and that nobody took yet."""
        return self._kept.size_bytes + sum(feed.size_bytes for feed in self._feeds.values())

    @property
    def is_busy(self) -> bool:
        """Whether somebody takes messages at this moment."""
        return self._lock.locked()

    async def stop(self) -> None:
        """Read no more, and let those who wait begin anew. Who takes messages at this moment gets what is chosen."""
        self._is_over = True
        self.news.stop()
        self._kept.close()
        await self.move(list(self._feeds))

    async def move(self, queue_ids: Iterable[int]) -> None:
        """Drop what was read ahead of queues: the group is somewhere else now. From the call on nobody gets any."""
        feeds = [feed for one in queue_ids if (feed := self._feeds.pop(one, None)) is not None]
        if feeds:
            await uninterrupted(_stop_all(feeds))

    async def take(
        self, count: int, size_bytes: int, *, invisible_ms: int, wanted: Wanted, queue_ids: Iterable[int]
    ) -> list[Delivered]:
        """Deliver up to so many messages that are there now. Raises what the journal and the index raise."""
        async with self._lock:
            self.used_s = self._clock.monotonic_s()
            self.filters.ask(wanted, self._time.now_ms())
            if not self._is_over:
                self.news.receives(wanted)
            policy = self._groups.policy(self.group)
            if policy.is_paused:
                return []
            chosen: list[_Chosen] = []
            room = _Room(count, min(size_bytes, SIZE_BYTES_MAX), invisible_ms, wanted)
            with self._giving_back(chosen):
                is_fresh_first, self._is_fresh_first = self._is_fresh_first, False
                if is_fresh_first:
                    await self._fresh(chosen, room, policy, list(queue_ids))
                await self._again(chosen, room, policy)
                if not is_fresh_first:
                    self._is_fresh_first = not room.is_left
                    await self._fresh(chosen, room, policy, list(queue_ids))
            for one in chosen:
                self.filters.gave(wanted, one.queue, one.flights)
            if room.is_more or (not room.is_left and self._has_more()):
                self.news.tell()
            for other in self.news.filters:
                self.tell_when_due(other)
        await self._written(chosen)
        self._tally.received_count += sum(len(one.flights) for one in chosen)
        self._tally.redelivered_count += sum(flight.attempt > 1 for one in chosen for flight in one.flights)
        return self._delivered(chosen)

    async def repeat(self, handles: Iterable[str], invisible_ms: int) -> list[Delivered]:
        """Return those of these deliveries that are in flight as they were, in the same attempt, under new handles.

        So whoever still has the former ones changes nothing any more. Raises what the journal and the index raise.
        """
        stamps: dict[QueueState, dict[int, int]] = {}
        for handle in map(Handle.decode, handles):
            queue = self._groups.find(handle.place)
            if queue is not None and _is_flight(queue, handle.offset, handle.stamp):
                stamps.setdefault(queue, {})[handle.offset] = handle.stamp
        found = {
            queue: (await self._rereading.read(queue.place.queue_id, sorted(some), SIZE_BYTES_MAX))[0]
            for queue, some in stamps.items()
        }
        now_ms, chosen = self._time.now_ms(), list[_Chosen]()
        for queue, some in stamps.items():  # without a wait, so that a failure leaves all as it was
            if not self._groups.has(queue):
                continue
            same = [one for offset, one in found[queue].items() if _is_flight(queue, offset, some[offset])]
            former = [flight for one in same if (flight := queue.flight(one.queue_offset)) is not None]
            flights = [
                replace(flight, stamp=max(now_ms, flight.stamp + 1), until_ms=now_ms + invisible_ms)
                for flight in former
            ]
            for before, flight in zip(former, flights, strict=True):
                self.filters.extended(queue, before, flight)
            if flights:
                one = _Chosen(queue, flights, [], queue.next, same)
                self._choose(chosen, one, Postponed(queue.place, tuple(flights)))
        await self._written(chosen)
        return self._delivered(chosen)

    def _delivered(self, chosen: Sequence[_Chosen]) -> list[Delivered]:
        return [self._as_given(one, *pair) for one in chosen for pair in zip(one.flights, one.found, strict=True)]

    def _as_given(self, one: _Chosen, flight: Flight, found: Found) -> Delivered:
        place = one.queue.place
        handle = Handle(place.group, place.topic, place.queue_id, flight.offset, flight.stamp).encode()
        until_ms = self._time.shown_ms(flight.until_ms)
        return Delivered(found.message, handle, flight.attempt, until_ms, found.size_bytes)

    def _choose(self, chosen: list[_Chosen], one: _Chosen, event: Took | Postponed) -> None:
        """Let messages be in flight from this moment on, so that a former handle of theirs fits no more.

        The journal has it at once: what happens to the queue before the rest is chosen comes after it there, too.
        """
        one.written = self._journal.write([event], is_safe=False)
        self._groups.apply(event)
        chosen.append(one)

    async def _written(self, chosen: Sequence[_Chosen]) -> None:
        """Wait until what was chosen is in the journal."""
        if chosen and (last := chosen[-1].written) is not None:
            with self._giving_back(chosen):
                await last

    @contextlib.contextmanager
    def _giving_back(self, chosen: Sequence[_Chosen]) -> Iterator[None]:
        """Let what was chosen go back if the block does not come to its end."""
        try:
            yield
        except BaseException:
            self._give_back(chosen)
            raise

    def skipped(self) -> list[Event]:
        """Return what moves queues past messages that no filter in use lets through. The caller applies and writes it.

        A feed that was begun before the filters changed may have passed messages of a new one: it moves nothing.
        """
        events: list[Event] = []
        if self._lock.locked():
            return events
        for queue_id, feed in self._feeds.items():
            queue = self._groups.find(Place(self.group, self.topic, queue_id))
            is_over = feed.peek() is None and feed.wanted == self.filters.union
            if queue is not None and is_over and feed.next > queue.next:
                events.append(Took(queue.place, feed.next, ()))
        return events

    def _has_more(self) -> bool:
        """Return whether there may be something to receive now."""
        if any(feed.peek() is not None for feed in self._feeds.values()):
            return True
        now_ms = self._time.now_ms()
        return any((due_ms := queue.due_ms()) is not None and due_ms <= now_ms for queue in self._queues())

    def tell_when_due(self, wanted: Wanted) -> None:
        """Tell when a message may be delivered again to members with a filter, or soon if it could not be read."""
        due_ms = None if self._groups.policy(self.group).is_paused else self._due_ms(wanted)
        if due_ms is not None:
            due_s = (due_ms - self._time.now_ms()) / 1000
            self.news.tell_in(due_s if due_s > 0 else AGAIN_S)

    def changed(self, event: Settled | Postponed) -> None:
        """Tell if what became of messages lets another one be delivered, or when it does."""
        if isinstance(event, Postponed):
            for flight in event.flights:
                self.news.tell_in((flight.until_ms - self._time.now_ms()) / 1000)
            return
        queue = self._groups.find(event.place)
        if queue is not None:
            was_full = queue.open_count + len(event.offsets) >= self._open_count_max
            if was_full or queue.due_ms() == 0:
                self.news.tell()

    def _due_ms(self, wanted: Wanted) -> int | None:
        """Return when a message may be delivered again to who asks for these, None if none waits."""
        dues = (queue.due_ms(self.filters.misfits(wanted, queue)) for queue in self._queues())
        return min((due for due in dues if due is not None), default=None)

    def failure(self, queue_id: int) -> FeedFailure | None:
        """Return why nothing new of a queue can be read, None if it can."""
        feed = self._feeds.get(queue_id)
        return None if feed is None or (error := feed.error) is None else FeedFailure(error, feed.next)

    def _queues(self) -> list[QueueState]:
        return [queue for queue in self._groups.queues(self.group) if queue.place.topic == self.topic]

    async def _again(self, chosen: list[_Chosen], room: _Room, policy: Policy) -> None:
        """Choose messages that are due again, or were held until now."""
        now_ms = self._time.now_ms()
        for queue in self._queues():
            for _ in range(ROUND_COUNT):
                if not room.is_left or not await self._again_of(queue, chosen, room, policy, now_ms):
                    break
            else:
                room.is_more = True

    async def _again_of(
        self, queue: QueueState, chosen: list[_Chosen], room: _Room, policy: Policy, now_ms: int
    ) -> bool:
        """Choose some messages of a queue. Returns whether there may be more, behind some that were for others."""
        if not self._groups.has(queue):
            return False
        misfits = self.filters.misfits(room.wanted, queue)
        offsets = queue.ready(now_ms, room.count, misfits)
        if not offsets:
            return False
        before = {offset: queue.flight(offset) for offset in offsets}
        found, gone = await self._rereading.read(queue.place.queue_id, offsets, room.size_bytes)
        if not self._groups.has(queue):
            return False
        same = [
            offset
            for offset in offsets
            if queue.is_open(offset)
            and queue.flight(offset) == before[offset]
            and not self._burying.is_under_way(queue, offset)
        ]
        unwanted = [offset for offset in same if offset in gone]
        alive, for_others = list[Found](), list[Found]()
        for one in (found[offset] for offset in same if offset in found):
            if queue.attempts(one.queue_offset) >= policy.attempts_max:
                self._burying.bury(queue, one)
            elif self.filters.passes(one, room.wanted):
                alive.append(one)
            elif self.filters.is_for_others(one, room.wanted):
                for_others.append(one)
            else:
                unwanted.append(one.queue_offset)
        if unwanted:
            self._settle(queue, tuple(unwanted))
        room.is_more = room.is_more or bool(for_others)
        for one in for_others:
            misfits.add(one.queue_offset)
            self._kept.put(queue.place.queue_id, one)
        if alive:
            room.take(alive)
            flights = [self._flight(queue, one, now_ms, room, queue.key(one.queue_offset)) for one in alive]
            again = _Chosen(queue, flights, [], queue.next, alive)
            self._choose(chosen, again, again.took)
        return bool(for_others or unwanted)

    def _give_back(self, chosen: Sequence[_Chosen]) -> None:
        """Let messages be delivered again at once, as if they had not been: their receiver has gone."""
        now_ms = self._time.now_ms()
        for one in chosen:
            if not self._groups.has(one.queue):
                continue
            flights = [replace(flight, attempt=flight.attempt - 1, stamp=flight.stamp + 1) for flight in one.flights]
            event = Postponed(one.queue.place, tuple(replace(flight, until_ms=now_ms) for flight in flights))
            self._groups.apply(event)
            if self._journal.failure is None:
                self._journal.write([event], is_safe=False)
        self.news.tell()

    def _settle(self, queue: QueueState, gone: tuple[int, ...]) -> None:
        """Be done with messages that are gone from the log."""
        event = Settled(queue.place, gone)
        self._groups.apply(event)
        self._journal.write([event], is_safe=True)

    async def _fresh(self, chosen: list[_Chosen], room: _Room, policy: Policy, queue_ids: list[int]) -> None:
        """Choose messages that were never delivered, the queues in turn."""
        self._turn += 1
        for index in range(len(queue_ids)):
            if not room.is_left:
                break
            queue_id = queue_ids[(self._turn + index) % len(queue_ids)]
            feed = await self._feed(queue_id)
            queue = self._groups.find(Place(self.group, self.topic, queue_id))
            if feed is None or queue is None:
                break
            one = self._from_feed(feed, queue, policy, room)
            if one.flights or one.held:
                self._choose(chosen, one, one.took)

    def _from_feed(self, feed: Feed, queue: QueueState, policy: Policy, room: _Room) -> _Chosen:
        one = _Chosen(queue, [], [], queue.next, [])
        now_ms, keys, misfits = self._time.now_ms(), set(), self.filters.misfits(room.wanted, queue)
        while room.is_left and (left := self._open_left(queue, one)) > 0:
            if (found := feed.peek()) is None or self._is_for_absent(found, room.wanted, left):
                break
            feed.take()
            one.next = feed.next
            if queue.is_settled(found.queue_offset):
                continue
            key = found.key if policy.is_ordered else 0
            if key and (key in keys or queue.is_blocked(key)):
                one.held.append((found.queue_offset, key))
            elif feed.wanted == room.wanted or self.filters.passes(found, room.wanted):
                one.flights.append(self._flight(queue, found, now_ms, room, key))
                one.found.append(found)
                room.take([found])
            elif self.filters.is_for_others(found, room.wanted):
                one.held.append((found.queue_offset, key))
                room.is_more = True
                misfits.add(found.queue_offset)
                self._kept.put(queue.place.queue_id, found)
            else:
                continue
            keys.add(key)
        return one

    def _open_left(self, queue: QueueState, one: _Chosen) -> int:
        """Return how many more messages of a queue may be in flight or held."""
        return self._open_count_max - queue.open_count - len(one.flights) - len(one.held)

    def _is_for_absent(self, found: Found, wanted: Wanted, left: int) -> bool:
        """Return whether a message waits in its queue for members that may come back: they have half of the places."""
        if not self.filters.awaits_return or 2 * left > self._open_count_max:
            return False
        return not self.filters.passes(found, wanted) and not self.filters.is_for_known(found, but_not=wanted)

    def _flight(self, queue: QueueState, found: Found, now_ms: int, room: _Room, key: int) -> Flight:
        former = queue.flight(found.queue_offset)
        stamp = now_ms if former is None else max(now_ms, former.stamp + 1)
        return Flight(
            found.queue_offset, queue.attempts(found.queue_offset) + 1, stamp, now_ms + room.invisible_ms, key
        )

    async def _feed(self, queue_id: int) -> Feed | None:
        """Return the feed of a queue, from where the group is. None if this is stopped, or the group was deleted.

        Raises RequestRefused if the index refuses to be read by what members ask for.
        """
        place = Place(self.group, self.topic, queue_id)
        feed, queue, wanted = self._feeds.get(queue_id), self._groups.find(place), self.filters.union
        if feed is not None and feed.failure is not None:
            await self.move([queue_id])
            raise feed.failure
        if feed is not None and queue is not None and (feed.wanted != wanted or feed.next < queue.next):
            await self.move([queue_id])
            feed, queue = None, self._groups.find(place)
        if self._is_over or queue is None:
            return None
        if feed is None:
            feed = Feed(
                self._index,
                self.topic,
                queue_id,
                queue.next,
                wanted=wanted,
                ahead=self._ahead,
                on_news=self.news.tell,
            )
            self._feeds[queue_id] = feed
            feed.start()
        return feed


def _is_flight(queue: QueueState, offset: int, stamp: int) -> bool:
    flight = queue.flight(offset)
    return flight is not None and flight.stamp == stamp


async def _stop_all(feeds: Sequence[Feed]) -> None:
    for feed in feeds:
        await feed.stop()
