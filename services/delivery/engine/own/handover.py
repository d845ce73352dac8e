# SPDX-License-Identifier: Apache-2.0
"""Handover: passes the positions of groups to RocketMQ, and takes over the positions that RocketMQ has left.

A process that stops in order publishes the positions of its groups to the index, writes a last record into the journal,
and stores the queue offset of this record in the index. The next owner compares. If this record still is the journal's
last record, and the index has another offset of a group, then another program has moved the group meanwhile: the group
continues at that offset. Otherwise the journal is valid, because the index may be late.
Callers: the event loop's thread.
"""

import asyncio
import logging
from collections.abc import Mapping

from libs.formats.records.delivery_record import Event, Moved, Place, Settled, Took
from libs.formats.state.system_topics import DELIVERY_LEFT_QUEUE_ID, TIMER_TOPIC
from libs.requests.errors import DependencyUnavailable, TopicNotFound
from services.delivery.engine.journal.copier import JOURNAL_GROUP, JOURNAL_PLACE
from services.delivery.engine.journal.journal import Journal
from services.delivery.engine.own.group_engine import GroupEngine
from services.delivery.engine.ports.index import Index
from services.delivery.engine.state.queue import QueueState
from services.delivery.errors import JournalLost

LAST_PLACE = (JOURNAL_PLACE[0], DELIVERY_LEFT_QUEUE_ID)
TIMER_PLACE = (TIMER_TOPIC, 0)
"""The stored offset of this queue tells RocketMQ where to begin: no message waits before it."""
EVENT_COUNT = 1_000
"""Events of a write."""
GATHER_S = 10.0
"""How long a stop may take for messages that have to be appended again."""
LAST_S = 5.0
"""How long a stop waits until the last record is durable."""

_log = logging.getLogger(__name__)


async def hand_over(engine: GroupEngine, journal: Journal, index: Index) -> None:
    """Publish all positions for the last time. If this fails, the journal is valid."""
    if journal.failure is not None:
        return
    try:
        await engine.published.publish()
        async with asyncio.timeout(GATHER_S):
            await engine.dead_letter_writer.until_decided()
            await engine.delay_queries.gather()
        if engine.delays.next:
            await index.store_offsets(JOURNAL_GROUP, {TIMER_PLACE: engine.delays.done.low})
        await engine.published.publish()
        if engine.published.is_complete:
            async with asyncio.timeout(LAST_S):
                last = await journal.write([], is_safe=True)
            # Otherwise a call was answered meanwhile, perhaps with this record, and the journal is valid.
            if engine.published.is_complete:
                await index.store_offsets(JOURNAL_GROUP, {LAST_PLACE: last.queue_offset})
    except (DependencyUnavailable, JournalLost, TimeoutError, TopicNotFound) as error:
        _log.warning("where groups and delays are could not be told to the end, so the journal counts: %s", error)


async def take_over_positions(engine: GroupEngine, journal: Journal, index: Index, last: int) -> None:
    """Move groups to the positions that the index has, if the last owner left the journal with the record `last`.

    Raises DependencyUnavailable and the journal's failure.
    """
    if await index.stored_offset(JOURNAL_GROUP, *LAST_PLACE) != last:
        return
    stored = await index.stored_offsets()
    events: list[Event] = [
        Moved(place, stored[place])
        for place, position in engine.groups.level_positions().items()
        if stored.get(place, position) != position
    ]
    bounds: dict[str, Mapping[int, tuple[int, int]]] = {}
    for queue in engine.groups.all_queues():
        place = queue.place
        offset = stored.get(place)
        if offset is None or offset == queue.committed:
            continue
        if place.topic not in bounds:
            bounds[place.topic] = await _bounds(index, place.topic)
        least, most = bounds[place.topic].get(place.queue_id, (0, 0))
        events += _moved(queue, min(max(offset, least), most))
    for start in range(0, len(events), EVENT_COUNT):
        some = events[start : start + EVENT_COUNT]
        for event in some:
            engine.groups.apply(event)
        await journal.write(some, is_safe=True)


async def _bounds(index: Index, topic: str) -> Mapping[int, tuple[int, int]]:
    try:
        return await index.bounds(topic)
    except TopicNotFound:
        return {}


def _moved(queue: QueueState, offset: int) -> list[Event]:
    """Return the events that move a group to an offset. A move forward keeps the state of messages from there on."""
    place: Place = queue.place
    if offset < queue.committed:
        return [Moved(place, offset)]
    passed = tuple(one for one in queue.open_offsets() if one < offset)
    events: list[Event] = [Settled(place, passed)] if passed else []
    return [*events, Took(place, offset, ())] if offset > queue.next else events
