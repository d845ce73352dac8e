# SPDX-License-Identifier: Apache-2.0
"""Topics: the list of topics, and a topic with its queues, its groups, its arrivals and its newest messages."""

import itertools
from collections.abc import Iterable, Mapping, Sequence
from typing import ClassVar, Literal

from msgspec import Struct
from msgspec.structs import replace
from reput_client import Queue, Topic

from libs.formats.state.system_topics import is_made_by_store
from services.console.pages.chart import Bar, bars
from services.console.pages.groups import GroupFacts, Lag, Reason, lag_of, reasons_of
from services.console.pages.history import History
from services.console.pages.page import Gap, Page, command
from services.console.pages.rows import MessageRow, place_of
from services.console.pages.shards.layout import Layout

ROWS_OF_A_PAGE = 100
Sort = Literal["", "growth"]
"""By name, or by growth, the fastest first."""


class TopicRow(Struct, frozen=True):
    """A topic in the list. Counts are None if they could not be asked."""

    name: str
    place: str
    """The use of the topic, if the store made it: `dead letter of GROUP`."""
    queue_count: int
    message_count: int | None
    is_readable: bool
    is_writable: bool
    retention_hours: int
    retention_bytes: int
    set_apart: str
    group_count: int
    lag: Lag | None
    """The lag of the group that is furthest behind, None without a group."""
    in_per_s: float | None = None
    """Messages a second of the last sample; None if the console does not remember the topic."""


class TopicsPage(Page, frozen=True, kw_only=True):
    """The list of topics, a part of it at a time."""

    template: ClassVar = "topics.html"

    part: str
    """Only topics whose name has this part."""
    has_system: bool
    """Topics of the store and of RocketMQ itself are listed, too."""
    rows: tuple[TopicRow, ...]
    total_count: int
    number: int
    """The part that is shown, from 1."""
    page_count: int
    sort: Sort = ""


class QueueRow(Struct, frozen=True):
    """A queue of a topic."""

    queue_id: int
    min_queue_offset: int
    max_queue_offset: int
    first_store_time_ms: int | None
    last_store_time_ms: int | None


class GroupOfTopic(Struct, frozen=True):
    """A group that reads the topic."""

    name: str
    is_shared: bool
    lag: Lag
    reasons: tuple[Reason, ...]


class Arrivals(Struct, frozen=True):
    """Messages that arrived in each of some equal times."""

    start_ms: int
    step_ms: int
    counts: tuple[int, ...]
    bars: tuple[Bar, ...]


class Look(Struct, frozen=True):
    """A look into a topic: at a time over all queues, or at an offset of a queue."""

    at: str = ""
    """The time, as it was typed."""
    queue: str = ""
    offset: str = ""
    cursor: str = ""
    """Where a look at a time goes on: an offset in each queue."""
    refusal: str = ""
    """Why it can't be answered."""
    note: str = ""
    """Where the messages begin, if not where the reader asked."""
    rows: tuple[MessageRow, ...] = ()
    next_cursor: str = ""
    """`cursor` of the next messages; empty at the end, as `next_offset`."""
    next_offset: str = ""

    @property
    def is_asked(self) -> bool:
        """Whether the reader asked for a place."""
        return bool(self.at or self.queue or self.offset or self.cursor)


class TopicPage(Page, frozen=True, kw_only=True):
    """A topic."""

    template: ClassVar = "topic.html"

    name: str
    row: TopicRow | None = None
    """None if it is not found, at this shard."""
    queues: tuple[QueueRow, ...] = ()
    groups: tuple[GroupOfTopic, ...] = ()
    arrivals: Arrivals | None = None
    history: History | None = None
    look: Look = Look()
    newest: tuple[MessageRow, ...] = ()
    """The newest messages, the newest first."""
    cursor: str = ""
    """Where a live tail begins: behind the newest messages."""
    layout: Layout | None = None
    """The topic over all shards; None for a store without shards."""


def topic_row(topic: Topic, queues: Sequence[Queue] | None, groups: Iterable[GroupFacts]) -> TopicRow:
    """Return a topic as a row. `queues` is None if the Indexer could not be asked."""
    readers = groups_of(topic.name, groups)
    count = None if queues is None else sum(queue.max_queue_offset - queue.min_queue_offset for queue in queues)
    return TopicRow(
        name=topic.name,
        place=place_of(topic.name),
        queue_count=max(topic.read_queue_count, topic.write_queue_count),
        message_count=count,
        is_readable=topic.is_readable,
        is_writable=topic.is_writable,
        retention_hours=topic.retention_hours,
        retention_bytes=topic.retention_bytes,
        set_apart=topic.set_apart,
        group_count=len(readers),
        lag=max((one.lag for one in readers), key=lambda lag: (lag.messages, lag.seconds or 0), default=None),
    )


def groups_of(topic: str, groups: Iterable[GroupFacts]) -> tuple[GroupOfTopic, ...]:
    """Return the groups with a position in a topic, the furthest behind first."""
    found = []
    for group in groups:
        queues = [queue for queue in group.queues if queue.topic == topic]
        if queues:
            is_shared = group.share is not None
            found.append(GroupOfTopic(group.name, is_shared, lag_of(queues), reasons_of(group, topic)))
    return tuple(sorted(found, key=lambda one: (-one.lag.messages, one.name)))


def shown_topics(
    topics: Sequence[Topic],
    part: str,
    number: int,
    *,
    has_system: bool = False,
    rates: Mapping[str, float] | None = None,
) -> tuple[list[Topic], int, int, int]:
    """Return the topics of a part of the list, their total, the number of this part, and the count of parts.

    With `rates` the topics that grow fastest come first.
    """
    found = [
        topic for topic in topics if part.lower() in topic.name.lower() and (has_system or not _is_own(topic.name))
    ]
    if rates is not None:
        found.sort(key=lambda topic: -rates.get(topic.name, -1.0))
    page_count = max(-(-len(found) // ROWS_OF_A_PAGE), 1)
    number = min(max(number, 1), page_count)
    return found[(number - 1) * ROWS_OF_A_PAGE : number * ROWS_OF_A_PAGE], len(found), number, page_count


def _is_own(name: str) -> bool:
    """Return whether a topic is the store's or RocketMQ's own, and of no group."""
    return is_made_by_store(name) and not place_of(name)


def topics_page(
    topics: Sequence[Topic],
    queues: Mapping[str, Sequence[Queue] | None],
    groups: Sequence[GroupFacts],
    gaps: tuple[Gap, ...],
    *,
    part: str,
    has_system: bool,
    place: tuple[int, int, int],
    rates: Mapping[str, float] | None = None,
    sort: Sort = "",
) -> TopicsPage:
    """Return the page of a part of the list. `place` is the total, the number of the part, and the count of parts."""
    total, number, page_count = place
    return TopicsPage(
        commands=(command("topics", "list", *(("--system",) if has_system else ())),),
        gaps=gaps,
        is_found=bool(topics) or not gaps,
        part=part,
        has_system=has_system,
        rows=tuple(
            replace(topic_row(topic, queues.get(topic.name), groups), in_per_s=(rates or {}).get(topic.name))
            for topic in topics
        ),
        sort=sort,
        total_count=total,
        number=number,
        page_count=page_count,
    )


def topic_page(
    topic: Topic,
    queues: Sequence[Queue] | None,
    groups: Sequence[GroupFacts],
    gaps: tuple[Gap, ...],
    *,
    arrivals: Arrivals | None,
    newest: Sequence[MessageRow],
    cursor: str,
) -> TopicPage:
    """Return the page of a topic."""
    return TopicPage(
        commands=(*topic_commands(topic.name), command("tail", topic.name, "-f")),
        gaps=gaps,
        name=topic.name,
        row=topic_row(topic, queues, groups),
        queues=tuple(map(_queue_row, queues or ())),
        groups=groups_of(topic.name, groups),
        arrivals=arrivals,
        newest=tuple(newest),
        cursor=cursor,
    )


def no_topic(name: str, gaps: tuple[Gap, ...], layout: Layout | None) -> TopicPage:
    """Return the page of a topic that was not found, could not be looked for, or is at other shards alone."""
    is_found = layout is not None and bool(layout.shards)
    return TopicPage(commands=topic_commands(name), gaps=gaps, is_found=is_found, name=name, layout=layout)


def topic_commands(name: str) -> tuple[str, ...]:
    """Return the commands that show a topic."""
    return (command("topics", "get", name),)


def arrivals_of(start_ms: int, step_ms: int, ends: Sequence[Sequence[int]]) -> Arrivals:
    """Return the arrivals from the queue offsets at the begin of each time and at the end, for each queue."""
    sums = [sum(column) for column in zip(*ends, strict=True)]
    counts = tuple(max(after - before, 0) for before, after in itertools.pairwise(sums))
    return Arrivals(start_ms, step_ms, counts, bars(counts))


def _queue_row(queue: Queue) -> QueueRow:
    first, last = (
        None if time is None else round(time.timestamp() * 1000)
        for time in (queue.first_store_time, queue.last_store_time)
    )
    return QueueRow(queue.queue_id, queue.min_queue_offset, queue.max_queue_offset, first, last)
