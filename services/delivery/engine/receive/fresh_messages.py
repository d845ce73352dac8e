# SPDX-License-Identifier: Apache-2.0
"""FreshMessages: chooses messages that were never delivered to the group, for a receive.

Invariants: at most `open_count_max` messages of all groups, and `queue_open_count_max` of a queue, are in flight or
held. In an ordered group, a message waits while an earlier message with its key is open. A message for other members
is held for them.
Callers: the event loop's thread, a single receive at a time.
"""

from collections.abc import Callable, Sequence

from libs.formats.records.delivery_record import Place, Policy
from services.delivery.engine.journal.group_time import GroupTime
from services.delivery.engine.ports.messages import Found, Wanted
from services.delivery.engine.receive.batch import DeliveryBatch, QueueBatch
from services.delivery.engine.receive.feed import Feed
from services.delivery.engine.receive.feeds import Feeds
from services.delivery.engine.receive.filters import Filters
from services.delivery.engine.receive.rereading import MessageCache
from services.delivery.engine.state.groups import Groups
from services.delivery.engine.state.queue import QueueState


class FreshMessages:
    """The new messages of a group and topic."""

    def __init__(
        self,
        groups: Groups,
        time: GroupTime,
        filters: Filters,
        cache: MessageCache,
        feeds: Feeds,
        on_room: Callable[[], None],
        *,
        open_count_max: int,
        queue_open_count_max: int,
    ) -> None:
        self._groups, self._time, self._filters = groups, time, filters
        self._cache, self._feeds, self._on_room = cache, feeds, on_room
        self._open_count_max, self._queue_open_count_max = open_count_max, queue_open_count_max
        self._turn = 0

    async def add_to(self, batch: DeliveryBatch, policy: Policy, queue_ids: Sequence[int]) -> None:
        """Add new messages to a batch while it has room, from the queues in turn. Raises RequestRefused."""
        self._turn += 1
        for index in range(len(queue_ids)):
            if not batch.has_room:
                break
            queue_id = queue_ids[(self._turn + index) % len(queue_ids)]
            feed = await self._feeds.of_queue(queue_id)
            queue = self._groups.find(Place(self._filters.group, self._filters.topic, queue_id))
            if feed is None or queue is None:
                break
            queue_batch = self._from_feed(feed, queue, policy, batch)
            if queue_batch.flights or queue_batch.held:
                batch.add(queue_batch)

    def _from_feed(self, feed: Feed, queue: QueueState, policy: Policy, batch: DeliveryBatch) -> QueueBatch:
        taken = QueueBatch(queue, [], [], queue.next, [])
        now_ms, keys, misfits = self._time.now_ms(), set(), self._filters.misfits(batch.wanted, queue)
        while batch.has_room and (left := self._open_left(queue, taken)) > 0:
            if (found := feed.peek()) is None or self._is_for_absent(found, batch.wanted, left):
                break
            feed.take()
            taken.next = feed.next
            if queue.is_settled(found.queue_offset):
                continue
            key = found.key if policy.is_ordered else 0
            if key and (key in keys or queue.is_blocked(key)):
                taken.held.append((found.queue_offset, key))
            elif feed.wanted == batch.wanted or self._filters.passes(found, batch.wanted):
                taken.flights.append(batch.flight(queue, found, now_ms, key))
                taken.found.append(found)
                batch.reserve([found])
            elif self._filters.is_for_others(found, batch.wanted):
                taken.held.append((found.queue_offset, key))
                batch.has_seen_more = True
                misfits.add(found.queue_offset)
                self._cache.put(queue.place.queue_id, found)
            else:
                continue
            keys.add(key)
        return taken

    def _open_left(self, queue: QueueState, taken: QueueBatch) -> int:
        """Return how many more messages of a queue may be in flight or held."""
        of_queue = self._queue_open_count_max - queue.open_count
        of_all = self._open_count_max - self._groups.open_count
        if of_all <= len(taken.flights) + len(taken.held):
            self._groups.when_room.add(self._on_room)  # any group makes the room
        return min(of_queue, of_all) - len(taken.flights) - len(taken.held)

    def _is_for_absent(self, found: Found, wanted: Wanted, left: int) -> bool:
        """Return whether a message waits in its queue for members that may come back: they have half of the room."""
        if not self._filters.awaits_return or 2 * left > self._queue_open_count_max:
            return False
        return not self._filters.passes(found, wanted) and not self._filters.is_for_known(found, but_not=wanted)
