# SPDX-License-Identifier: Apache-2.0
"""The questions of Find: names, the id, the key in all topics and among waiting messages, and the minute of a time."""

import asyncio
import itertools
from collections.abc import AsyncIterator, Sequence

import msgspec
from msgspec import Struct, field
from reput_client import Message, Queue
from reput_client.core.types import to_ms

from services.console.ask.groups import group_names
from services.console.ask.keys import MESSAGES_OF_A_TOPIC_MAX, by_key
from services.console.ask.shards import at_others
from services.console.ask.store import Asking, Store, each, together
from services.console.ask.waiting import Waiting, waiting_by_key
from services.console.pages.find import (
    MINUTE_MS,
    NOWHERE,
    FindPage,
    More,
    Search,
    Wanted,
    first_in_time,
    matching,
    page_of,
    shown_in,
    wanted,
)
from services.console.pages.mask import Mask
from services.console.pages.rows import MessageRow, row_of
from services.console.pages.shards.found import over_shards, rows_max

TOPICS_SEARCHED_MAX = 1_000
"""Topics of a part of a search: a call for each, some tenths of a millisecond of the Indexer."""
QUEUES_LISTED_MAX = 20_000
QUEUES_LOOKED_AT_MAX = 400
"""Queues whose messages of a minute are read: a call for each."""
MESSAGES_OF_A_QUEUE_MAX = 20
"""Messages of a minute of a queue."""
TOPICS_LISTED_MAX = 20_000
MESSAGES_SHOWN_MAX = 100


class Part(Struct):
    """The topics of a part of a search, by name. Topics without messages count as searched."""

    names: Sequence[str] = ()
    """The topics of all parts."""
    topics: Sequence[str] = ()
    queues: dict[str, list[Queue]] = field(default_factory=dict)
    """The queues with messages of each topic, as far as they are known."""
    next_after: str = ""
    """The last topic of this part, if others follow."""

    @property
    def searched_count(self) -> int:
        """The topics up to the end of this part, also of the parts before."""
        return sum(not self.next_after or name <= self.next_after for name in self.names)


class Span(Struct, frozen=True):
    """A span of time, and the messages of it that are read."""

    start_ms: int
    end_ms: int
    """Exclusive."""
    count: int = MESSAGES_SHOWN_MAX
    behind: int = NOWHERE
    """The place in the log behind which the messages lie."""

    def may_have(self, queue: Queue | None) -> bool:
        """Return False if the times of a queue show that it has no message of the span."""
        if queue is None or queue.first_store_time is None or queue.last_store_time is None:
            return True
        return to_ms(queue.first_store_time) < self.end_ms and self.start_ms <= to_ms(queue.last_store_time)


async def find(
    store: Store, text: str, topic: str, zone: str, *, after: str = "", older: str = "", behind: int = NOWHERE
) -> FindPage:
    """Return the page of a search. Of several shards all are asked for a key or an id, with the names like it.

    A time, and the next parts of a list, are looked up at the shard of the page.
    """
    if not store.shards:
        return await find_here(store, text, topic, zone, after=after, older=older, behind=behind)
    own = find_here(store, text, topic, zone, after=after, older=older, behind=behind)
    has_others = bool(wanted(text, zone, store.now).key) and not after and not older and behind == NOWHERE
    if not has_others:
        return over_shards(await own, store.shard, {}, tuple(store.shards))

    async def look(other: Store) -> FindPage:
        return await find_here(other, text, topic, zone, has_times=False)

    page, (others, _) = await asyncio.gather(own, at_others(store, look))
    return over_shards(page, store.shard, others, tuple(store.shards))


async def find_here(
    store: Store,
    text: str,
    topic: str,
    zone: str,
    *,
    after: str = "",
    older: str = "",
    behind: int = NOWHERE,
    has_times: bool = True,
) -> FindPage:
    """Return the page of a search at a store. Without times a text is a key, an id and a name alone.

    `after` names the topic behind which it goes on, `older` is the token of a topic, `behind` is the place in the log
    behind which the messages of a time go on.
    """
    asking = Asking(store)
    meant = wanted(text, zone, store.now)
    if not has_times:
        meant = msgspec.structs.replace(meant, moment_ms=None, time_refusal="", is_ahead=False, others=())
    count = rows_max(store.shard) if store.shard else MESSAGES_SHOWN_MAX
    if not meant.text:
        return page_of(meant, topic, Search(), ())
    if topic and older and meant.key:
        return await _older(asking, meant, topic, older, count)
    listed, is_cut = await asking.first("topics", asking.client.topics.list(), TOPICS_LISTED_MAX)
    if is_cut:
        asking.left_out("further topics", f"the first {TOPICS_LISTED_MAX:,} are searched")
    names = sorted(one.name for one in listed)
    if topic and topic not in names and not is_cut and not await _is_topic(asking, topic):
        return page_of(meant, topic, Search(topics=matching(names, topic), unknown_topic=topic), asking.gaps)
    groups = matching(await group_names(asking), meant.name) if meant.name and not after else []
    part = Part()
    if meant.key or meant.moment_ms is not None:
        part = await part_of(asking, [topic] if topic else names, after, with_times=meant.moment_ms is not None)
    rows = await _by_id(asking, meant) if meant.offset_id and not after else []
    waiting = await _waiting(asking, meant.key, topic) if meant.key and not after else Waiting()
    rows += waiting.rows
    found, more = await _by_key(asking, meant.key, part.topics, count - len(rows))
    near, is_near_cut = list[MessageRow](), False
    if (start_ms := meant.moment_ms) is not None:
        near, is_near_cut = await _first(asking, part, Span(start_ms, start_ms + MINUTE_MS, count, behind))
    earlier_ms, later_ms = (None, None) if near else await _beside(asking, part, meant.moment_ms)
    search = Search(
        topics=matching(names, meant.name) if meant.name and not after else [],
        groups=groups,
        messages=[*rows, *found],
        more=more,
        near=near,
        earlier_ms=earlier_ms,
        later_ms=later_ms,
        looked_topic_count=part.searched_count,
        topic_count=len(part.names),
        is_near_cut=is_near_cut,
        behind=behind,
        after=after,
        next_after=part.next_after,
        has_waiting=waiting.is_asked,
    )
    return page_of(meant, topic, search, asking.gaps)


async def _older(asking: Asking, meant: Wanted, topic: str, older: str, count: int) -> FindPage:
    """Return the next messages of a topic with a key, after the messages that were shown."""
    found = await by_key(asking, meant.key, [topic], count=count, token=older)
    rows, more = shown_in([topic], found, count)
    only_key = Wanted(meant.text, key=meant.key)
    search = Search(messages=rows, more=more, looked_topic_count=1, topic_count=1, older=older)
    return page_of(only_key, topic, search, asking.gaps)


async def _by_key(asking: Asking, key: str, topics: Sequence[str], count: int) -> tuple[list[MessageRow], list[More]]:
    if not key:
        return [], []
    of_topic = count if len(topics) == 1 else MESSAGES_OF_A_TOPIC_MAX
    return shown_in(topics, await by_key(asking, key, topics, count=of_topic), count)


async def part_of(asking: Asking, names: Sequence[str], after: str, *, with_times: bool = False) -> Part:
    """Return the next topics that may have messages. A list of queues tells which topics have none."""
    left = [name for name in names if name > after]
    listing = asking.client.queues.list(left[0] if len(left) == 1 else "", with_times=with_times)
    gap_count = len(asking.found_gaps)
    found, is_cut = await asking.first("queues", listing, QUEUES_LISTED_MAX)
    is_whole = not is_cut and len(asking.found_gaps) == gap_count
    queues: dict[str, list[Queue]] = {}
    for queue in found:
        if queue.min_queue_offset < queue.max_queue_offset:
            queues.setdefault(queue.topic, []).append(queue)
    unlisted_from = found[-1].topic if found else ""
    filled = (name for name in left if name in queues or (not is_whole and name >= unlisted_from))
    topics = list(itertools.islice(filled, TOPICS_SEARCHED_MAX))
    return Part(names, topics, queues, topics[-1] if next(filled, None) is not None else "")


async def _by_id(asking: Asking, meant: Wanted) -> list[MessageRow]:
    message, _ = await asking.ask_by("the id", asking.client.query.by_id(meant.offset_id))  # a unique id is refused
    return [row_of(message, asking.store.mask)] if message is not None else []


async def _waiting(asking: Asking, key: str, topic: str) -> Waiting:
    """Return delayed messages and open transactions with this key, which are in no topic of users yet."""
    if asking.store.mask.refusal(key=key):
        return Waiting()
    return await waiting_by_key(asking, key, topic, MESSAGES_OF_A_TOPIC_MAX)


async def in_time(
    asking: Asking,
    topics: Sequence[str],
    start_ms: int,
    end_ms: int,
    *,
    count: int = MESSAGES_SHOWN_MAX,
    behind: int = NOWHERE,
) -> tuple[list[MessageRow], bool]:
    """Return the first messages of [start, end), behind a place in the log, and whether there are more."""
    part = await part_of(asking, sorted(topics), "", with_times=True)
    found = await _first(asking, part, Span(start_ms, end_ms, count, behind))
    if part.next_after:
        asking.left_out("the time in further topics", "too many for one search: give the topic")
    return found


async def _first(asking: Asking, part: Part, span: Span) -> tuple[list[MessageRow], bool]:
    """Return the first messages of a span, in time, of the topics that have some. With too many queues the part ends.

    A call for each topic tells which topics have none.
    """

    def stored(topic: str, queue_id: int | None, count: int) -> AsyncIterator[Message]:
        return asking.client.query.by_time(
            topic, start=span.start_ms, end=span.end_ms, queue_id=queue_id, page_size=count
        )

    async def has_some(topic: str) -> bool:
        found, _ = await asking.first(f"the time in {topic}", stored(topic, None, 1), 1)
        return bool(found)

    async def look(place: tuple[str, int]) -> tuple[list[MessageRow], bool]:
        topic, queue_id = place
        rows = _rows(stored(topic, queue_id, count_of_queue), asking.store.mask, span.behind)
        return await asking.first(f"the time in queue {queue_id} of {topic}", rows, count_of_queue)

    possible = [topic for topic in part.topics if any(map(span.may_have, part.queues.get(topic, [None])))]
    places: list[tuple[str, int]] = []
    for topic in [topic for topic, has in await each(possible, has_some) if has]:
        queues = await _queues_of(asking, part, topic)
        own = [(topic, queue.queue_id) for queue in queues if span.may_have(queue)]
        if places and len(places) + len(own) > QUEUES_LOOKED_AT_MAX:
            part.next_after = part.topics[part.topics.index(topic) - 1]
            break
        places += own
    if len(places) > QUEUES_LOOKED_AT_MAX:
        asking.left_out("the time in further queues", f"the first {QUEUES_LOOKED_AT_MAX} of the topic are read")
    count_of_queue = max(MESSAGES_OF_A_QUEUE_MAX, span.count // max(len(places), 1))
    looked = await each(places[:QUEUES_LOOKED_AT_MAX], look)
    return first_in_time([answer for _, answer in looked], span.count)


async def _beside(asking: Asking, part: Part, time_ms: int | None) -> tuple[int | None, int | None]:
    """Return the times of the messages before and behind a minute without messages, None if they are not known."""
    queues = [queue for topic in part.topics for queue in part.queues.get(topic, ())]
    is_known = part.queues.keys() >= set(part.topics) and not asking.found_gaps
    if time_ms is None or not is_known or len(queues) > QUEUES_LOOKED_AT_MAX:
        return None, None

    async def store_time(queue: Queue, offset: int) -> int | None:
        if not queue.min_queue_offset <= offset < queue.max_queue_offset:
            return None
        what = f"messages of queue {queue.queue_id} of {queue.topic}"
        pulled = await asking.ask(what, asking.client.queues.pull(queue.topic, queue.queue_id, offset, count=1))
        return pulled.messages[0].store_time_ms if pulled is not None and pulled.messages else None

    async def times(queue: Queue) -> list[int | None]:
        if queue.last_store_time is not None and (last_ms := to_ms(queue.last_store_time)) < time_ms:
            return [last_ms]
        if queue.first_store_time is not None and (first_ms := to_ms(queue.first_store_time)) >= time_ms:
            return [first_ms]
        call = asking.client.queues.offset_by_time(queue.topic, queue.queue_id, time_ms)
        offset = await asking.ask(f"the time in queue {queue.queue_id} of {queue.topic}", call)
        return [] if offset is None else await together(store_time(queue, at) for at in (offset - 1, offset))

    found = [time for _, some in await each(queues, times) for time in some if time is not None]
    earlier, later = [time for time in found if time < time_ms], [time for time in found if time >= time_ms]
    return max(earlier, default=None), min(later, default=None)


async def _queues_of(asking: Asking, part: Part, topic: str) -> list[Queue]:
    known = part.queues.get(topic)
    if known is None:
        known, _ = await asking.first(f"queues of {topic}", asking.client.queues.list(topic), QUEUES_LOOKED_AT_MAX + 1)
    return known


async def _is_topic(asking: Asking, name: str) -> bool:
    """Return whether a topic, also of the store itself, has this name. True if the store could not be asked."""
    gap_count = len(asking.found_gaps)
    topic = await asking.ask("the topic", asking.client.topics.get(name))
    queues, _ = await asking.first("the queues of the topic", asking.client.queues.list(name), 1)
    return topic is not None or bool(queues) or len(asking.found_gaps) > gap_count


async def _rows(messages: AsyncIterator[Message], mask: Mask, behind: int) -> AsyncIterator[MessageRow]:
    """Yield messages behind a place in the log as rows, so that no body stays in memory."""
    async for message in messages:
        if message.physical_offset > behind:
            yield row_of(message, mask)
