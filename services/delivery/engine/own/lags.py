# SPDX-License-Identifier: Apache-2.0
"""Lags: the lag of a group in the queues of its topics, in messages, bytes and time.

Callers: the event loop's thread. Memory: a row for each queue of the group.
"""

import contextlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from libs.formats.records.delivery_record import Place
from libs.machine.clock import Clock
from libs.requests.errors import TopicNotFound
from services.delivery.engine.journal.group_time import GroupTime
from services.delivery.engine.own.standstill import Standstill, standstills
from services.delivery.engine.ports.index import Index
from services.delivery.engine.ports.messages import Wanted
from services.delivery.engine.receive.feed import FeedFailure
from services.delivery.engine.receive.positions import Positions
from services.delivery.engine.state.dead_letter_topic import dead_letter_topic
from services.delivery.engine.state.groups import Groups
from services.delivery.engine.state.queue import QueueState
from services.delivery.errors import GroupNotFound, MessageDamaged


@dataclass(frozen=True, slots=True)
class QueueLag:
    """The position and the lag of a group in a queue."""

    place: Place
    committed: int
    next: int
    min_queue_offset: int
    max_queue_offset: int
    flight_count: int
    """Messages that consumers have."""
    waiting_count: int
    """Messages that were given back, or whose consumers' time is over: they wait for the next attempt."""
    next_attempt_ms: int | None
    """When the first of these may be delivered, or could have been; milliseconds since the epoch."""
    held_count: int
    unsettled_count: int
    lag_ms: int | None
    """For how long the oldest message that is not settled has been stored; None if there is none."""
    lag_bytes: int
    """Size of the records of the messages that are not settled."""
    waits_for: Mapping[int, int] = field(default_factory=dict)
    """For a later queue of an ordered group: the queues that are delivered before it, and up to which queue offset."""
    standstills: tuple[Standstill, ...] = ()
    """The reasons that hold up the messages that are not settled."""


class Lags:
    """Measures the lags of the groups of an ownership."""

    def __init__(
        self,
        groups: Groups,
        positions: Positions,
        index: Index,
        clock: Clock,
        time: GroupTime,
        failure: Callable[[Place], FeedFailure | None],
        open_count_max: int,
    ) -> None:
        self._groups, self._positions = groups, positions
        self._index, self._clock, self._time = index, clock, time
        self._failure, self._open_count_max = failure, open_count_max

    async def of(self, group: str) -> list[QueueLag]:
        """Return the lags of a group, sorted by topic and queue, without its dead letters.

        Raises GroupNotFound and DependencyUnavailable.
        """
        if not self._groups.is_known(group):
            raise GroupNotFound(group)
        queues = [queue for queue in self._groups.queues(group) if queue.place.topic != dead_letter_topic(group)]
        bounds = {topic: await self._index.bounds(topic) for topic in {queue.place.topic for queue in queues}}
        for topic, some in bounds.items():
            queues += await self._not_begun(group, topic, some)
        queues.sort(key=lambda queue: (queue.place.topic, queue.place.queue_id))
        return [
            await self._of_queue(queue, *bounds[queue.place.topic].get(queue.place.queue_id, (0, 0)))
            for queue in queues
        ]

    async def _not_begun(self, group: str, topic: str, bounds: Mapping[int, tuple[int, int]]) -> list[QueueState]:
        """Return the queues that a topic of the group got later, and of which no message was delivered yet."""
        try:
            queue_count = await self._positions.queue_count(topic)
        except TopicNotFound:
            return []
        places = {one: Place(group, topic, one) for one in bounds if one < queue_count}
        return [QueueState(place, bounds[one][0]) for one, place in places.items() if not self._groups.find(place)]

    async def _of_queue(self, queue: QueueState, least: int, most: int) -> QueueLag:
        """Return the lag of a group in a queue that reaches from `least` to `most`."""
        due_ms = queue.waiting(self._time.now_ms())
        flight_count, held_count = queue.flight_count - len(due_ms), queue.open_count - queue.flight_count
        count = queue.unsettled_count(least, most)
        hold = self._positions.held(queue.place.group, queue.place.topic).get(queue.place.queue_id)
        place, others, lag_ms, size_bytes = queue.place, queue.open_offsets(), None, 0
        committed, next_offset = queue.committed, queue.next
        if count:
            with contextlib.suppress(TopicNotFound):  # the topic is gone; the other topics of the group are not
                lag_ms = await self._lag_ms(queue, max(committed, least))
                size_bytes = await self._index.size_bytes(place.topic, place.queue_id, next_offset, others)
        waits_for = {} if hold is None else self._positions.waits_for(place.group, place.topic, hold)
        found = standstills(
            queue,
            self._groups.policy(place.group),
            open_count_max=self._open_count_max,
            due_ms=due_ms,
            waits_for=waits_for,
            failure=self._failure(place),
        )
        return QueueLag(
            place=place,
            committed=committed,
            next=next_offset,
            min_queue_offset=least,
            max_queue_offset=most,
            flight_count=flight_count,
            waiting_count=len(due_ms),
            next_attempt_ms=None if not due_ms else self._time.shown_ms(min(due_ms)),
            held_count=held_count,
            unsettled_count=count,
            lag_ms=lag_ms,
            lag_bytes=size_bytes,
            waits_for=waits_for,
            standstills=tuple(found) if count else (),
        )

    async def _lag_ms(self, queue: QueueState, offset: int) -> int | None:
        """Return for how long a message has been stored, None if it is damaged or gone from the log."""
        topic, queue_id = queue.place.topic, queue.place.queue_id
        try:
            pulled = await self._index.pull(topic, queue_id, offset, wanted=Wanted(), count=1, size_bytes=1, wait_s=0)
        except MessageDamaged:
            return None
        return max(0, self._clock.now_ms() - pulled.found[0].store_time_ms) if pulled.found else None
