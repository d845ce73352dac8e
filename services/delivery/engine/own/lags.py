# SPDX-License-Identifier: Apache-2.0
"""Lags: the lag of a group in the queues of its topics, in messages, bytes and time.

Callers: the event loop's thread. Memory: a row for each queue of the group.
"""

from collections.abc import Callable, Mapping

from msgspec import Struct, field
from msgspec.structs import replace

from libs.formats.records.delivery_record import Place
from libs.machine.clock import Clock
from libs.requests.errors import TopicNotFound
from services.delivery.engine.journal.group_time import GroupTime
from services.delivery.engine.own.standstill import Standstill, standstills
from services.delivery.engine.ports.index import Index
from services.delivery.engine.ports.messages import Measure, Part
from services.delivery.engine.receive.feed import FeedFailure
from services.delivery.engine.receive.positions import Positions
from services.delivery.engine.state.dead_letter_topic import dead_letter_topic
from services.delivery.engine.state.groups import Groups
from services.delivery.engine.state.queue import QueueState
from services.delivery.errors import GroupNotFound


class QueueLag(Struct, frozen=True):
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
    lag_ms: int | None = None
    """For how long the oldest message that is not settled has been stored; None if there is none."""
    lag_bytes: int = 0
    """Size of the records of the messages that are not settled."""
    waits_for: Mapping[int, int] = field(default_factory=dict)
    """For a later queue of an ordered group: the queues that are delivered before it, and up to which queue offset."""
    standstills: tuple[Standstill, ...] = ()
    """The reasons that hold up the messages that are not settled."""
    is_asked: bool = False
    """Whether a member asks for messages of the topic, or asked a moment ago."""


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
        is_asked: Callable[[str, str], bool],
        open_count_max: int,
    ) -> None:
        self._groups, self._positions = groups, positions
        self._index, self._clock, self._time = index, clock, time
        self._failure, self._is_asked, self._open_count_max = failure, is_asked, open_count_max

    async def of(self, group: str) -> list[QueueLag]:
        """Return the lags of a group, sorted by topic and queue, without its dead letters.

        Raises GroupNotFound and DependencyUnavailable.
        """
        if not self._groups.is_known(group):
            raise GroupNotFound(group)
        queues = [queue for queue in self._groups.queues(group) if queue.place.topic != dead_letter_topic(group)]
        topics = {queue.place.topic for queue in queues} | self._positions.held_topics(group)
        bounds = {topic: await self._index.bounds(topic) for topic in topics}
        for topic, some in bounds.items():
            queues += await self._not_begun(group, topic, some)
        queues.sort(key=lambda queue: (queue.place.topic, queue.place.queue_id))
        lags = [self._of_queue(queue, *bounds[queue.place.topic].get(queue.place.queue_id, (0, 0))) for queue in queues]
        behind = [number for number, lag in enumerate(lags) if lag.unsettled_count]
        measures = await self._index.measures([_part(queues[number], lags[number]) for number in behind])
        for number, measure in zip(behind, measures, strict=True):
            lags[number] = replace(lags[number], lag_bytes=measure.size_bytes, lag_ms=self._age_ms(measure))
        return lags

    async def _not_begun(self, group: str, topic: str, bounds: Mapping[int, tuple[int, int]]) -> list[QueueState]:
        """Return the queues that a topic of the group got later, and of which no message was delivered yet."""
        try:
            queues = await self._positions.queues(topic)
        except TopicNotFound:
            return []
        places = {one: Place(group, topic, one) for one in queues.ids if one in bounds}
        return [QueueState(place, bounds[one][0]) for one, place in places.items() if not self._groups.find(place)]

    def _of_queue(self, queue: QueueState, least: int, most: int) -> QueueLag:
        """Return the lag of a group in a queue that reaches from `least` to `most`, without its bytes and time."""
        due_ms = queue.waiting(self._time.now_ms())
        flight_count, held_count = queue.flight_count - len(due_ms), queue.open_count - queue.flight_count
        count = queue.unsettled_count(least, most)
        hold = self._positions.held(queue.place.group, queue.place.topic).get(queue.place.queue_id)
        place = queue.place
        waits_for = {} if hold is None else self._positions.waits_for(place.group, place.topic, hold)
        found = standstills(
            queue,
            self._groups.policy(place.group),
            open_count_max=self._open_count_max,
            due_ms=due_ms,
            waits_for=waits_for,
            unfinished=self._positions.parents.unfinished(place.group, place.topic, place.queue_id) if hold else {},
            failure=self._failure(place),
        )
        return QueueLag(
            place=place,
            committed=queue.committed,
            next=queue.next,
            min_queue_offset=least,
            max_queue_offset=most,
            flight_count=flight_count,
            waiting_count=len(due_ms),
            next_attempt_ms=None if not due_ms else self._time.shown_ms(min(due_ms)),
            held_count=held_count,
            unsettled_count=count,
            waits_for=waits_for,
            standstills=tuple(found) if count else (),
            is_asked=self._is_asked(place.group, place.topic),
        )

    def _age_ms(self, measure: Measure) -> int | None:
        return None if measure.store_time_ms is None else max(0, self._clock.now_ms() - measure.store_time_ms)


def _part(queue: QueueState, lag: QueueLag) -> Part:
    """Return the messages of a queue that are not settled."""
    oldest = max(lag.committed, lag.min_queue_offset)
    return Part(lag.place.topic, lag.place.queue_id, start=lag.next, others=queue.open_offsets(), oldest=oldest)
