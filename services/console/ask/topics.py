# SPDX-License-Identifier: Apache-2.0
"""The questions of the pages about topics: the CommitLog has the topics, the Indexer their queues and messages."""

import asyncio
from collections.abc import Mapping, Sequence

from msgspec.structs import replace
from reput_client import Message, Queue, Topic

from services.console.ask.groups import known_groups
from services.console.ask.look import looked
from services.console.ask.shards import seen_elsewhere
from services.console.ask.store import Asking, Store, each, together
from services.console.ask.tail import NEWEST_COUNT, cursor_text
from services.console.pages.page import merged
from services.console.pages.rows import row_of
from services.console.pages.shards.layout import Seen, layout_of
from services.console.pages.topics import (
    Arrivals,
    Look,
    Sort,
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
CHARTED_QUEUES_MAX = 16
STEP_MS, STEP_COUNT = 300_000, 24
PAST_OFFSETS_MAX = 50_000
"""Queue offsets at past moments that the process remembers, some 200 bytes each."""


async def topics(store: Store, part: str, number: int, *, has_system: bool = False, sort: Sort = "") -> TopicsPage:
    """Return a part of the list of topics."""
    asking = Asking(store)
    listing = asking.client.topics.list(include_system=has_system)
    listed, is_cut = await asking.first("topics", listing, TOPICS_LISTED_MAX)
    if is_cut:
        asking.left_out("further topics", f"the first {TOPICS_LISTED_MAX} are listed")
    rates = store.ring.last("topic", "in_per_s", store.clock.now_ms())
    shown, *place = shown_topics(listed, part, number, has_system=has_system, rates=rates if sort == "growth" else None)
    queues = dict(await each([topic.name for topic in shown], lambda name: _queues(asking, name)))
    groups = (await known_groups(asking)).facts()
    total, number, page_count = place
    return topics_page(
        shown, queues, groups, asking.gaps, part=part, has_system=has_system, place=(total, number, page_count),
        rates=rates, sort=sort,
    )  # fmt: skip


async def topic(store: Store, name: str, span: str, look: Look | None = None, zone: str = "") -> TopicPage:
    """Return the page of a topic, with a look at a time or at an offset if it is asked for."""
    asking = Asking(store)
    (found, queues), (elsewhere, others_gaps) = await asyncio.gather(_seen(asking, name), seen_elsewhere(store, name))
    layout = layout_of(name, _by_shard(store, found, queues, elsewhere)) if store.shards else None
    if found is None and queues:
        found = Topic(name, len(queues), len(queues), is_readable=True, is_writable=False, is_system=False)
    if found is None:
        return no_topic(name, merged((*asking.gaps, *others_gaps)), layout)
    known_queues = queues or []
    newest, known, arrivals, found_look = await asyncio.gather(
        _newest(asking, known_queues),
        known_groups(asking, has_system=True),
        _arrivals(asking, known_queues),
        looked(asking, known_queues, look or Look(), zone),
    )
    page = topic_page(
        found,
        queues,
        known.facts(),
        asking.gaps,
        arrivals=arrivals,
        newest=[row_of(message, store.mask) for message in newest],
        cursor=_cursor(found, known_queues),
    )
    history = store.ring.history("topic", name, span, store.clock.now_ms())
    gaps = merged((*page.gaps, *others_gaps))
    return replace(page, look=found_look, history=history, layout=layout, gaps=gaps)


async def _seen(asking: Asking, name: str) -> tuple[Topic | None, list[Queue] | None]:
    found = await asking.ask("the topic", asking.client.topics.get(name))
    return found, await _queues(asking, name, with_times=True)


def _by_shard(
    store: Store, found: Topic | None, queues: list[Queue] | None, elsewhere: Mapping[str, Seen]
) -> dict[str, Seen]:
    """Return a topic at each shard, in the order of the file."""
    own = Seen(found, queues, are_all=queues is not None and len(queues) < QUEUES_SHOWN_MAX)
    known = {**elsewhere, store.shard: own}
    return {name: known[name] for name in store.shards if name in known}


def _cursor(topic: Topic, queues: Sequence[Queue]) -> str:
    """Return the ends of all queues, also of queues without a message yet."""
    empty = dict.fromkeys(range(max(topic.read_queue_count, topic.write_queue_count)), 0)
    return cursor_text(empty | {queue.queue_id: queue.max_queue_offset for queue in queues})


async def _queues(asking: Asking, name: str, *, with_times: bool = False) -> list[Queue] | None:
    """Return the queues of a topic that have had messages, None if they could not be asked."""
    before = len(asking.found_gaps)
    listing = asking.client.queues.list(name, with_times=with_times)
    queues, is_cut = await asking.first(f"the queues of {name}", listing, QUEUES_SHOWN_MAX)
    if is_cut:
        asking.left_out(f"further queues of {name}", f"the first {QUEUES_SHOWN_MAX} are counted")
    return None if len(asking.found_gaps) > before and not queues else queues


async def _newest(asking: Asking, queues: Sequence[Queue]) -> list[Message]:
    """Return the newest messages of all queues together, the newest first. The queues with the last times have them."""
    filled = [queue for queue in queues if queue.max_queue_offset > queue.min_queue_offset]
    filled.sort(key=lambda queue: queue.last_store_time.timestamp() if queue.last_store_time else 0, reverse=True)

    async def pull(queue: Queue) -> list[Message]:
        start = max(queue.max_queue_offset - NEWEST_COUNT, queue.min_queue_offset)
        pulled = asking.client.queues.pull(queue.topic, queue.queue_id, start, count=NEWEST_COUNT)
        answer = await asking.ask(f"the newest messages of queue {queue.queue_id}", pulled)
        return answer.messages if answer is not None else []

    messages = [message for some in await together(map(pull, filled[:NEWEST_COUNT])) for message in some]
    return sorted(messages, key=lambda message: message.physical_offset, reverse=True)[:NEWEST_COUNT]


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
