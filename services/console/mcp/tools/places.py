# SPDX-License-Identifier: Apache-2.0
"""Tools about topics and groups: lists in parts, a topic, and a group with its lag and its reasons."""

from collections.abc import Sequence
from typing import Any

from msgspec import Struct

from services.console.ask import groups, topics
from services.console.ask.store import Asking, Store, each
from services.console.mcp.answers import Answer
from services.console.mcp.arguments import Arguments, GroupName, NamePart, PageNumber, TopicName
from services.console.pages.groups import GroupQueue
from services.console.pages.rows import MessageRow, row_of

GROUPS_OF_A_PAGE = 50
QUEUES_SHOWN_MAX = 100
BLOCKERS_MAX = 8
"""Queues of a group whose first open message is read."""


class Listed(Arguments, frozen=True):
    """The arguments of list_topics and list_groups."""

    name_part: NamePart = ""
    page: PageNumber = 1


class OfTopic(Arguments, frozen=True):
    """The arguments of get_topic."""

    topic: TopicName


class OfGroup(Arguments, frozen=True):
    """The arguments of get_group."""

    group: GroupName


class Blocker(Struct, frozen=True):
    """The position of a group in a queue: its first unsettled message, or the next message to read."""

    reasons: Sequence[str]
    attempts_begin_again_ms: int | None
    message: MessageRow


async def list_topics(store: Store, wanted: Listed) -> Answer:
    """List topics."""
    page = await topics.topics(store, wanted.name_part, wanted.page)
    answer = _part(page, wanted.page, page.page_count)
    answer.rest_by("rows", "give name_part")
    return answer


async def list_groups(store: Store, wanted: Listed) -> Answer:
    """List groups, the groups with the most unsettled messages first."""
    page = await groups.groups(store, wanted.name_part)
    page_count = max(-(-len(page.rows) // GROUPS_OF_A_PAGE), 1)
    first = (min(wanted.page, page_count) - 1) * GROUPS_OF_A_PAGE
    answer = _part(page, wanted.page, page_count, page.rows[first : first + GROUPS_OF_A_PAGE])
    answer.rest_by("rows", "give name_part")
    return answer


def _part(page: Any, number: int, page_count: int, rows: Sequence[Any] | None = None) -> Answer:
    """Return a part of a list."""
    shown = page.rows if rows is None else rows
    values = {"rows": shown, "total_count": page.total_count, "page": min(number, page_count), "page_count": page_count}
    answer = Answer({**values, "commands": page.commands}, is_found=bool(shown), gaps=page.gaps)
    if number < page_count:
        answer.left_off(f"parts {number + 1} to {page_count}: page={number + 1}")
    elif number > page_count:
        answer.left_off(f"page {number} is behind the end: this is page {page_count}")
    return answer


async def get_topic(store: Store, wanted: OfTopic) -> Answer:
    """Return a topic."""
    page = await topics.topic(store, wanted.topic, "")
    arrivals = page.arrivals
    values: dict[str, Any] = {
        "topic": page.row or page.name,
        "groups": page.groups,
        "newest_messages": page.newest,
        "queue_count": len(page.queues),
        "queues": page.queues[:QUEUES_SHOWN_MAX],
        "commands": page.commands,
    }
    if arrivals is not None:
        minutes = arrivals.step_ms // 60_000
        values["arrivals"] = {"start_ms": arrivals.start_ms, "minutes_each": minutes, "counts": arrivals.counts}
    answer = Answer(values, is_found=page.is_found, gaps=page.gaps)
    if len(page.queues) > QUEUES_SHOWN_MAX:
        answer.left_off(f"{len(page.queues) - QUEUES_SHOWN_MAX} queues: `{page.commands[0]}` prints all")
    for name in ("queues", "groups", "newest_messages"):
        answer.rest_by(name, f"`{page.commands[0]}` prints all")
    return answer


async def get_group(store: Store, wanted: OfGroup) -> Answer:
    """Return a group: its lag, the reasons why it makes no progress, and the messages at which it stands."""
    page = await groups.group(store, wanted.group, "")
    asking = Asking(store)
    behind = sorted((one for one in page.queues if one.lag), key=lambda one: (not one.reasons, -one.lag))
    values = {
        "name": page.name,
        "group": page.row,
        "policy": page.policy,
        "filters": page.filters,
        "has_differing_filters": page.has_differing_filters,
        "stands_at": await _blockers(asking, behind[:BLOCKERS_MAX]),
        "queue_count": len(page.queues),
        "queues": (*behind, *(one for one in page.queues if not one.lag))[:QUEUES_SHOWN_MAX],
        "members": page.members,
        "members_not_known": page.member_gaps,
        "commands": page.commands,
    }
    answer = Answer(values, is_found=page.is_found, gaps=(*page.gaps, *asking.gaps))
    if len(page.queues) > QUEUES_SHOWN_MAX:
        answer.left_off(f"{len(page.queues) - QUEUES_SHOWN_MAX} queues: `{page.commands[0]}` prints all")
    if len(behind) > BLOCKERS_MAX:
        answer.left_off(
            f"the messages at which it stands in {len(behind) - BLOCKERS_MAX} queues: find_by_time, get_topic"
        )
    for name in ("queues", "members", "filters"):
        answer.rest_by(name, f"`{page.commands[0]}` prints all")
    return answer


async def _blockers(asking: Asking, queues: Sequence[GroupQueue]) -> list[Blocker]:
    """Return the message at the position in each queue. A position before the first message means the first message."""

    async def look(queue: GroupQueue) -> Blocker | None:
        pull = asking.client.queues.pull(queue.topic, queue.queue_id, queue.queue_offset, count=1)
        answer = await asking.ask(f"the first open message of queue {queue.queue_id} of {queue.topic}", pull)
        if answer is None or not answer.messages:
            return None
        return Blocker(
            [one.text for one in queue.reasons], queue.next_attempt_ms, row_of(answer.messages[0], asking.store.mask)
        )

    return [found for _, found in await each(queues, look) if found is not None]
