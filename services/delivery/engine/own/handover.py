# SPDX-License-Identifier: Apache-2.0
"""Handover: lets RocketMQ go on where groups are, and groups go on where RocketMQ has left them.

Who stops in order tells the index where its groups are, writes a last record into the journal, and tells the index
which one that is. If the next one finds the journal as it was left, and another offset of a group in the index, then
somebody else has moved the group meanwhile, and it goes on there. Otherwise the journal counts: an index may be late.
Callers: the event loop's thread.
"""

import asyncio
import logging
from collections.abc import Mapping

from libs.formats.records.delivery_record import Event, Moved, Place, Settled, Took
from libs.formats.state.system_topics import DELIVERY_LEFT_QUEUE_ID, TIMER_TOPIC
from libs.requests.errors import DependencyUnavailable
from services.delivery.engine.journal.copier import JOURNAL_GROUP, JOURNAL_PLACE
from services.delivery.engine.journal.journal import Journal
from services.delivery.engine.own.group_engine import GroupEngine
from services.delivery.engine.ports.index import Index
from services.delivery.engine.state.queue import QueueState
from services.delivery.errors import JournalLost, TopicNotFound

LAST_PLACE = (JOURNAL_PLACE[0], DELIVERY_LEFT_QUEUE_ID)
TIMER_PLACE = (TIMER_TOPIC, 0)
"""Nothing waits before its offset: the index tells RocketMQ to begin there."""
EVENT_COUNT = 1_000
"""Events that are written at once."""
GATHER_S = 10.0
"""How long a stop may take for messages that have to be appended again."""
LAST_S = 5.0
"""How long a stop waits until the last record is durable."""

_log = logging.getLogger(__name__)


async def hand_over(engine: GroupEngine, journal: Journal, index: Index) -> None:
    """Tell where groups and delays are, for the last time. If that does not go well, the journal counts."""
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
            if (
                engine.published.is_complete
            ):  # else a call was answered meanwhile, perhaps by this record, and the journal counts
                await index.store_offsets(JOURNAL_GROUP, {LAST_PLACE: last.queue_offset})
    except (DependencyUnavailable, JournalLost, TimeoutError, TopicNotFound) as error:
        _log.warning("where groups and delays are could not be told to the end, so the journal counts: %s", error)


async def take_over_positions(engine: GroupEngine, journal: Journal, index: Index, last: int) -> None:
    """Let groups go on where others have moved them, if `last` is the record that the journal was left with.

    Raises DependencyUnavailable and why the journal can't be written.
    """
    if await index.stored_offset(JOURNAL_GROUP, *LAST_PLACE) != last:
        return
    stored = await index.stored_offsets()
    events: list[Event] = []
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
    """Return what lets a group go on at an offset. On the way forward, what lies behind that is known as before."""
    place: Place = queue.place
    if offset < queue.committed:
        return [Moved(place, offset)]
    passed = tuple(one for one in queue.open_offsets() if one < offset)
    events: list[Event] = [Settled(place, passed)] if passed else []
    return [*events, Took(place, offset, ())] if offset > queue.next else events
