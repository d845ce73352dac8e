# SPDX-License-Identifier: Apache-2.0
"""Groups: all groups with their lag, and a group with its queues.

A group shares messages (Delivery settles each message), or keeps offsets (the Indexer stores a position in each queue).
"""

from collections.abc import Sequence
from typing import ClassVar

from msgspec import Struct
from msgspec.structs import replace
from reput_client import ConsumerOffset, ShareGroup, ShareQueue

from libs.figures import many
from services.console.pages.history import History
from services.console.pages.mask import SHOWN, Mask
from services.console.pages.operate.callers import ConnectionRow
from services.console.pages.page import Gap, Page, command
from services.console.pages.states import Blocker
from services.console.pages.stills import Stills

DEAD_LETTER_PREFIX = "%DLQ%"


class Reason(Struct, frozen=True):
    """A reason why messages make no progress."""

    text: str
    topic: str = ""
    queue_id: int | None = None
    queue_offset: int | None = None
    """The message that causes it, None if no single message does."""
    since_ms: int | None = None
    is_longer: bool = False
    """It holds since `since_ms` at least, when the console began to watch."""


PAUSED = Reason("the group is paused")
"""As Delivery says of each queue with messages."""
NO_MEMBER = Reason("no member receives")


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
    is_asked: bool | None = None
    """Whether a member asks for messages of the topic, or asked within 10 s; None if it is not known."""
    reasons: tuple[Reason, ...] = ()
    """Why the messages make no progress."""

    @property
    def new_count(self) -> int:
        """Messages that were never delivered."""
        return self.lag - sum(one or 0 for one in (self.in_flight_count, self.waiting_count, self.held_count))


class Lag(Struct, frozen=True):
    """The lag of several queues together."""

    messages: int
    bytes: int | None
    seconds: float | None


class GroupRow(Struct, frozen=True):
    """A group in the list."""

    name: str
    is_shared: bool | None
    """None if it is not known, because Delivery does not answer; the lag is then that of the offsets in the Indexer."""
    topics: tuple[str, ...]
    lag: Lag
    in_flight_count: int | None
    waiting_count: int | None
    is_paused: bool
    dead_letter_count: int | None
    reasons: tuple[Reason, ...]


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
    has_system: bool
    """Groups of the store and of RocketMQ itself are listed, too."""
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
    blockers: tuple[Blocker, ...] = ()
    """The states of the messages that the reasons name, as far as they were asked for."""
    history: History | None = None
    members: tuple[ConnectionRow, ...] = ()
    """Connections that have named the group, as far as the console may list them."""
    member_gaps: tuple[Gap, ...] = ()
    has_differing_filters: bool = False
    """Members of the group differ in their filters for a topic."""


class GroupFacts(Struct, frozen=True):
    """The facts about a group."""

    name: str
    queues: tuple[GroupQueue, ...]
    share: ShareGroup | None = None
    """The group as Delivery knows it, None for a group that keeps offsets."""
    is_kind_known: bool = True
    """False if Delivery did not answer, so that the group may share messages."""
    stills: tuple[Reason, ...] = ()
    """The topics in which its offsets, or its first unsettled messages, have long been the same."""


def shared_queue(queue: ShareQueue) -> GroupQueue:
    """Return the position of a group that shares messages."""
    offsets = queue.standstill_queue_offsets or (None,) * len(queue.standstills)
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
        is_asked=queue.is_asked,
        next_attempt_ms=None if queue.next_attempt is None else round(queue.next_attempt.timestamp() * 1000),
        reasons=tuple(_reason(queue, *cause) for cause in zip(queue.standstills, offsets, strict=True)),
    )


def _reason(queue: ShareQueue, text: str, queue_offset: int | None) -> Reason:
    """Return a reason with its place. The same reason of several queues, without a message, is a single reason."""
    if queue_offset is None:
        return Reason(text)
    return Reason(text, queue.topic, queue.queue_id, queue_offset)


def still_reasons(group: str, queues: Sequence[GroupQueue], stills: Stills, now_ms: int) -> tuple[Reason, ...]:
    """Return the topics in which a group that keeps offsets has stopped, with the messages that came meanwhile."""
    found = []
    for topic in dict.fromkeys(queue.topic for queue in queues if queue.lag):
        own = [queue for queue in queues if queue.topic == topic]
        still = stills.of(group, topic, sum(queue.queue_offset for queue in own), now_ms)
        if still is not None:
            came = max(sum(queue.end_queue_offset for queue in own) - still.end, 0)
            lag = many(sum(queue.lag for queue in own), "message")
            news = f"{came:,}" if came else "none"
            text = f"its offsets in {topic} have not moved: {lag} unread, {news} arrived meanwhile"
            found.append(Reason(text, topic, since_ms=still.since_ms, is_longer=not still.is_begin_known))
    return tuple(found)


def held_reasons(group: str, queues: Sequence[GroupQueue], stills: Stills, now_ms: int) -> tuple[Reason, ...]:
    """Return the topics in which members have messages, and the first unsettled message has long been the same."""
    found = []
    for topic in dict.fromkeys(queue.topic for queue in queues if queue.in_flight_count):
        own = [queue for queue in queues if queue.topic == topic]
        still = stills.of(group, topic, sum(queue.queue_offset for queue in own), now_ms)
        if still is not None and not any(queue.reasons for queue in own):
            first = next(queue for queue in own if queue.in_flight_count)
            count = many(sum(queue.in_flight_count or 0 for queue in own), "message")
            text = f"members have {count} of {topic}, and the first message is not settled"
            place = (topic, first.queue_id, first.queue_offset)
            found.append(Reason(text, *place, since_ms=still.since_ms, is_longer=not still.is_begin_known))
    return tuple(found)


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
        is_shared=is_shared if group.is_kind_known else None,
        topics=tuple(dict.fromkeys(queue.topic for queue in group.queues)),
        lag=lag_of(group.queues),
        in_flight_count=sum(queue.in_flight_count or 0 for queue in group.queues) if is_shared else None,
        waiting_count=sum(queue.waiting_count or 0 for queue in group.queues) if is_shared else None,
        is_paused=share is not None and share.policy.is_paused,
        dead_letter_count=share.dead_letter_count if share is not None else None,
        reasons=reasons_of(group),
    )


def reasons_of(group: GroupFacts, topic: str = "") -> tuple[Reason, ...]:
    """Return why a group makes no progress, in all topics or in a single topic.

    As Delivery says, by members that do not ask, or by offsets that stand. A pause is a reason also without messages.
    """
    queues = [queue for queue in group.queues if topic in ("", queue.topic)]
    found = dict.fromkeys(reason for reason in group.stills if topic in ("", reason.topic))
    found |= dict.fromkeys(reason for queue in queues for reason in queue.reasons)
    share = group.share
    if share is None:
        return tuple(found)
    if share.policy.is_paused:
        found[PAUSED] = None
    elif not share.filters and any(one.lag for one in queues):
        found[NO_MEMBER] = None
    return tuple(found)


def with_members(queues: Sequence[GroupQueue], *, is_paused: bool) -> tuple[GroupQueue, ...]:
    """Return queues of a group that shares messages, with the reason that no member asks for new messages."""
    if is_paused:
        return tuple(queues)
    held: dict[str, list[GroupQueue]] = {}
    for queue in queues:
        if queue.in_flight_count:
            held.setdefault(queue.topic, []).append(queue)
    return tuple(
        replace(queue, reasons=(*queue.reasons, _unasked(held.get(queue.topic, ()))))
        if queue.is_asked is False and queue.new_count > 0
        else queue
        for queue in queues
    )


def _unasked(held: Sequence[GroupQueue]) -> Reason:
    """Return why no member asks for more of a topic. `held` are its queues with messages in flight."""
    if not held:
        return NO_MEMBER
    topic, count = held[0].topic, sum(queue.in_flight_count or 0 for queue in held)
    text = f"no member asks for further messages of {topic}: members have {many(count, 'message')} of it"
    return Reason(text, topic, held[0].queue_id, held[0].queue_offset)


def groups_page(
    groups: Sequence[GroupFacts], part: str, gaps: tuple[Gap, ...], *, has_system: bool = False
) -> GroupsPage:
    """Return the page of all groups, the groups with the most unsettled messages first."""
    rows = [row_of(group) for group in groups if part.lower() in group.name.lower()]
    rows.sort(key=lambda row: (-row.lag.messages, row.name))
    return GroupsPage(
        commands=(command("groups", "list"),),
        gaps=gaps,
        part=part,
        has_system=has_system,
        rows=tuple(rows),
        total_count=len(groups),
    )


def group_page(name: str, group: GroupFacts | None, gaps: tuple[Gap, ...], mask: Mask) -> GroupPage:
    """Return the page of a group. Filters by masked properties are masked."""
    commands = (command("groups", "show", name), command("groups", "list", "--group", name))
    if group is None:
        return GroupPage(commands=commands, gaps=gaps, is_found=False, name=name)
    policy, filters = None, tuple[Filter, ...]()
    if (share := group.share) is not None:
        of = share.policy
        policy = Policy(of.attempts_max, of.backoffs_s, of.invisible_s, of.is_ordered, of.from_end, of.is_paused)
        filters = tuple(
            Filter(
                one.topic,
                SHOWN if mask.refusal(tags=one.tags) else one.tags,
                SHOWN if mask.refusal(where=one.where) else one.where,
            )
            for one in share.filters
        )
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
