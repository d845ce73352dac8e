# SPDX-License-Identifier: Apache-2.0
"""Groups: all groups with their lag, and a group with its queues.

A group shares messages (Delivery settles each message), or keeps offsets (the Indexer stores a position in each queue).
"""

from collections.abc import Sequence
from typing import ClassVar

from msgspec import Struct
from reput_client import ConsumerOffset, ShareGroup, ShareQueue

from services.console.pages.page import Gap, Page, command

DEAD_LETTER_PREFIX = "%DLQ%"


class GroupQueue(Struct, frozen=True):
    """The position of a group in a queue. Values that are not known are None."""

    topic: str
    queue_id: int
    queue_offset: int
    """The first message that is not settled, or the next to read."""
    end_queue_offset: int
    lag: int
    lag_bytes: int | None = None
    lag_s: float | None = None
    """How long the oldest message that is not settled has been stored."""
    next_queue_offset: int | None = None
    """The first message that was never delivered."""
    in_flight_count: int | None = None
    waiting_count: int | None = None
    held_count: int | None = None
    next_attempt_ms: int | None = None
    reasons: tuple[str, ...] = ()
    """Why the messages make no progress."""


class Lag(Struct, frozen=True):
    """The lag of several queues together."""

    messages: int
    bytes: int | None
    seconds: float | None


class GroupRow(Struct, frozen=True):
    """A group in the list."""

    name: str
    is_shared: bool
    topics: tuple[str, ...]
    lag: Lag
    in_flight_count: int | None
    waiting_count: int | None
    is_paused: bool
    dead_letter_count: int | None
    reasons: tuple[str, ...]


class Policy(Struct, frozen=True):
    """The policy of a group that shares messages."""

    attempts_max: int
    backoffs_s: tuple[float, ...]
    invisible_s: float
    is_ordered: bool
    from_end: bool
    is_paused: bool


class Filter(Struct, frozen=True):
    """A filter of members of a group."""

    topic: str
    tags: str
    where: str


class GroupsPage(Page, frozen=True, kw_only=True):
    """All groups."""

    template: ClassVar = "groups.html"

    part: str
    """Only groups whose name has this part."""
    rows: tuple[GroupRow, ...]
    total_count: int


class GroupPage(Page, frozen=True, kw_only=True):
    """A group."""

    template: ClassVar = "group.html"

    name: str
    row: GroupRow | None = None
    queues: tuple[GroupQueue, ...] = ()
    policy: Policy | None = None
    filters: tuple[Filter, ...] = ()
    has_differing_filters: bool = False
    """Members of the group differ in their filters for a topic."""


class GroupFacts(Struct, frozen=True):
    """What is known of a group."""

    name: str
    queues: tuple[GroupQueue, ...]
    share: ShareGroup | None = None
    """The group as Delivery knows it, None for a group that keeps offsets."""


def shared_queue(queue: ShareQueue) -> GroupQueue:
    """Return the position of a group that shares messages."""
    return GroupQueue(
        topic=queue.topic,
        queue_id=queue.queue_id,
        queue_offset=queue.committed_queue_offset,
        end_queue_offset=queue.max_queue_offset,
        lag=queue.lag,
        lag_bytes=queue.lag_bytes,
        lag_s=queue.lag_s,
        next_queue_offset=queue.next_queue_offset,
        in_flight_count=queue.in_flight_count,
        waiting_count=queue.waiting_count,
        held_count=queue.held_count,
        next_attempt_ms=None if queue.next_attempt is None else round(queue.next_attempt.timestamp() * 1000),
        reasons=tuple(queue.standstills),
    )


def kept_queue(offset: ConsumerOffset) -> GroupQueue:
    """Return the position of a group that keeps offsets. Its end is not below it, also if entries are gone."""
    return GroupQueue(
        topic=offset.topic,
        queue_id=offset.queue_id,
        queue_offset=offset.queue_offset,
        end_queue_offset=offset.queue_offset + offset.lag,
        lag=offset.lag,
        lag_bytes=0 if not offset.lag else None,
    )


def lag_of(queues: Sequence[GroupQueue]) -> Lag:
    """Return the lag of queues together. Bytes are None unless all are known; seconds are of the oldest message."""
    sizes = [queue.lag_bytes for queue in queues]
    known = [size for size in sizes if size is not None]
    return Lag(
        messages=sum(queue.lag for queue in queues),
        bytes=sum(known) if len(known) == len(sizes) else None,
        seconds=max((queue.lag_s for queue in queues if queue.lag_s is not None), default=None),
    )


def row_of(group: GroupFacts) -> GroupRow:
    """Return a group as a row."""
    share, is_shared = group.share, group.share is not None
    return GroupRow(
        name=group.name,
        is_shared=is_shared,
        topics=tuple(dict.fromkeys(queue.topic for queue in group.queues)),
        lag=lag_of(group.queues),
        in_flight_count=sum(queue.in_flight_count or 0 for queue in group.queues) if is_shared else None,
        waiting_count=sum(queue.waiting_count or 0 for queue in group.queues) if is_shared else None,
        is_paused=share is not None and share.policy.is_paused,
        dead_letter_count=share.dead_letter_count if share is not None else None,
        reasons=tuple(dict.fromkeys(reason for queue in group.queues for reason in queue.reasons)),
    )


def groups_page(groups: Sequence[GroupFacts], part: str, gaps: tuple[Gap, ...]) -> GroupsPage:
    """Return the page of all groups, those that are furthest behind first."""
    rows = [row_of(group) for group in groups if part.lower() in group.name.lower()]
    rows.sort(key=lambda row: (-(row.lag.seconds or 0), -row.lag.messages, row.name))
    return GroupsPage(
        commands=(command("groups", "list"),), gaps=gaps, part=part, rows=tuple(rows), total_count=len(groups)
    )


def group_page(name: str, group: GroupFacts | None, gaps: tuple[Gap, ...]) -> GroupPage:
    """Return the page of a group."""
    commands = (command("groups", "show", name), command("groups", "list", "--group", name))
    if group is None:
        return GroupPage(commands=commands, gaps=gaps, is_found=False, name=name)
    policy, filters = None, tuple[Filter, ...]()
    if (share := group.share) is not None:
        of = share.policy
        policy = Policy(of.attempts_max, of.backoffs_s, of.invisible_s, of.is_ordered, of.from_end, of.is_paused)
        filters = tuple(Filter(one.topic, one.tags, one.where) for one in share.filters)
    topics = [one.topic for one in filters]
    return GroupPage(
        commands=commands,
        gaps=gaps,
        name=name,
        row=row_of(group),
        queues=group.queues,
        policy=policy,
        filters=filters,
        has_differing_filters=len(set(topics)) < len(topics),
    )
