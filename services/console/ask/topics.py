# SPDX-License-Identifier: Apache-2.0
"""What the pages about topics ask: the CommitLog has the topics, the Indexer their queues and messages."""

import asyncio
from collections.abc import Sequence

from reput_client import Message, Queue, Topic

from services.console.ask.groups import known_groups
from services.console.ask.store import Asking, Store, each, together
from services.console.ask.tail import NEWEST_COUNT, cursor_text
from services.console.pages.rows import row_of
from services.console.pages.topics import (
    Arrivals,
    TopicPage,
    TopicsPage,
    arrivals_of,
    no_topic,
    shown_topics,
    topic_page,
    topics_page,
)

TOPICS_LISTED_MAX = 20_000
QUEUES_SHOWN_MAX = 256
TIMED_QUEUES_MAX = 64
"""Queues of a topic whose first and last time are read: a call for each."""
CHARTED_QUEUES_MAX = 16
STEP_MS, STEP_COUNT = 300_000, 24
PAST_OFFSETS_MAX = 50_000
"""Queue offsets at past moments that the process remembers, some 200 bytes each."""


async def topics(store: Store, part: str, number: int) -> TopicsPage:
    """Return a part of the list of topics."""
    asking = Asking(store)
    listed, is_cut = await asking.first("topics", asking.client.topics.list(), TOPICS_LISTED_MAX)
    if is_cut:
        asking.left_out("further topics", f"the first {TOPICS_LISTED_MAX} are listed")
    shown, *place = shown_topics(listed, part, number)
    queues = dict(await each([topic.name for topic in shown], lambda name: _queues(asking, name)))
    groups = (await known_groups(asking)).facts()
    return topics_page(shown, queues, groups, asking.gaps, part=part, place=(place[0], place[1], place[2]))


async def topic(store: Store, name: str) -> TopicPage:
    """Return the page of a topic."""
    asking = Asking(store)
    found = await asking.ask("the topic", asking.client.topics.get(name))
    queues = await _queues(asking, name)
    if found is None and queues:
        found = Topic(name, len(queues), len(queues), is_readable=True, is_writable=False, is_system=False)
    if found is None:
        return no_topic(name, asking.gaps)
    known_queues = queues or []
    timed, known, arrivals, newest = await asyncio.gather(
        _timed(asking, known_queues),
        known_groups(asking),
        _arrivals(asking, known_queues),
        _newest(asking, known_queues),
    )
    return topic_page(
        found,
        None if queues is None else timed,
        known.facts(),
        asking.gaps,
        arrivals=arrivals,
        newest=[row_of(message, hides_bodies=store.hides_bodies) for message in newest],
        cursor=_cursor(found, known_queues),
    )


def _cursor(topic: Topic, queues: Sequence[Queue]) -> str:
    """Return the ends of all queues, also of those without a message yet."""
    empty = dict.fromkeys(range(max(topic.read_queue_count, topic.write_queue_count)), 0)
    return cursor_text(empty | {queue.queue_id: queue.max_queue_offset for queue in queues})


async def _queues(asking: Asking, name: str) -> list[Queue] | None:
    """Return the queues of a topic that have had messages, None if they could not be asked."""
    before = len(asking.found_gaps)
    queues, is_cut = await asking.first(f"the queues of {name}", asking.client.queues.list(name), QUEUES_SHOWN_MAX)
    if is_cut:
        asking.left_out(f"further queues of {name}", f"the first {QUEUES_SHOWN_MAX} are counted")
    return None if len(asking.found_gaps) > before and not queues else queues


async def _timed(asking: Asking, queues: Sequence[Queue]) -> list[Queue]:
    """Return the queues with their times, as far as they were asked."""

    async def ask(queue: Queue) -> Queue:
        what = f"the times of queue {queue.queue_id}"
        return await asking.ask(what, asking.client.queues.range(queue.topic, queue.queue_id)) or queue

    timed = await together(map(ask, queues[:TIMED_QUEUES_MAX]))
    return [*timed, *queues[TIMED_QUEUES_MAX:]]


async def _newest(asking: Asking, queues: Sequence[Queue]) -> list[Message]:
    """Return the newest messages of all queues together."""
    filled = [queue for queue in queues if queue.max_queue_offset > queue.min_queue_offset][:CHARTED_QUEUES_MAX]

    async def pull(queue: Queue) -> list[Message]:
        start = max(queue.max_queue_offset - NEWEST_COUNT, queue.min_queue_offset)
        pulled = asking.client.queues.pull(queue.topic, queue.queue_id, start, count=NEWEST_COUNT)
        answer = await asking.ask(f"the newest messages of queue {queue.queue_id}", pulled)
        return answer.messages if answer is not None else []

    messages = [message for some in await together(map(pull, filled)) for message in some]
    return sorted(messages, key=lambda message: message.store_time_ms)[-NEWEST_COUNT:]


async def _arrivals(asking: Asking, queues: Sequence[Queue]) -> Arrivals | None:
    """Return the arrivals of the last two hours: the index tells the queue offset at each moment."""
    if not queues or len(queues) > CHARTED_QUEUES_MAX:
        if queues:
            asking.left_out("the chart of arrivals", f"it is drawn for topics of up to {CHARTED_QUEUES_MAX} queues")
        return None
    end_ms = asking.store.clock.now_ms() // STEP_MS * STEP_MS
    moments = [end_ms - step * STEP_MS for step in reversed(range(STEP_COUNT))]
    ends = []
    for queue in queues:
        offsets = await together([_offset_at(asking, queue, moment) for moment in moments])
        known = [offset for offset in offsets if offset is not None]
        if len(known) < len(offsets):
            return None
        ends.append([*known, queue.max_queue_offset])
    return arrivals_of(moments[0], STEP_MS, ends)


async def _offset_at(asking: Asking, queue: Queue, moment_ms: int) -> int | None:
    """Return the queue offset of the first message at or after a past moment. It never changes, and is remembered."""
    past, place = asking.store.past_offsets, (queue.topic, queue.queue_id, moment_ms)
    if place not in past:
        call = asking.client.queues.offset_by_time(queue.topic, queue.queue_id, moment_ms)
        offset = await asking.ask(f"the arrivals in queue {queue.queue_id}", call)
        if offset is None:
            return None
        if len(past) >= PAST_OFFSETS_MAX:
            past.clear()
        past[place] = offset
    return past[place]
