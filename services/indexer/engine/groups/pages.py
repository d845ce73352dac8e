# SPDX-License-Identifier: Apache-2.0
"""Pages of consumer groups by name, with their offsets by topic and queue id.

Nothing is kept in order: a page walks over what is there, a step at a time, and keeps the first of what follows. So a
commit stays cheap, and a page costs what exists, but never holds the loop. Memory: two pages.
Callers: the event loop's thread. Groups and offsets that come or go meanwhile may be there or not.
"""

from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import NamedTuple, TypeVar

from libs.formats.limits import INT64_MAX
from services.indexer.engine.groups.consumer_offsets import ConsumerOffsets, GroupOffset

T = TypeVar("T", str, GroupOffset)


class GroupPosition(NamedTuple):
    """Behind what a list goes on: a whole group, or a queue of it."""

    group: str = ""
    queue: tuple[str, int] | None = None


@dataclass(frozen=True, slots=True)
class GroupPage:
    """Groups with their offsets, and behind what the next page begins; None at the end."""

    groups: list[tuple[str, list[GroupOffset]]]
    position: GroupPosition | None


async def page_of_groups(
    offsets: ConsumerOffsets, position: GroupPosition, *, group_count_max: int, offset_count_max: int
) -> GroupPage:
    """Return the page behind a position. A group that does not fit is for the next, one too large for any in parts."""
    names = await _first_behind(offsets.group_names(), position.group, group_count_max + 1)
    if position.queue is not None:
        names = [position.group, *names]
    groups: list[tuple[str, list[GroupOffset]]] = []
    room_count = offset_count_max
    last = position
    for name in names[:group_count_max]:
        topic, queue_id = (name == position.group and position.queue) or ("", 0)
        found = await _first_behind(
            offsets.offsets(name), GroupOffset(name, topic, queue_id, INT64_MAX), room_count + 1
        )
        if len(found) > room_count:
            if groups:
                return GroupPage(groups, last)
            end = found[room_count - 1]
            return GroupPage([(name, found[:room_count])], GroupPosition(name, (end.topic, end.queue_id)))
        if found:
            groups.append((name, found))
        room_count -= len(found)
        last = GroupPosition(name)
    return GroupPage(groups, last if len(names) > group_count_max else None)


async def _first_behind(steps: AsyncIterator[list[T]], behind: T, count: int) -> list[T]:
    """Return the `count` smallest items that are larger than `behind`, sorted."""
    found: list[T] = []
    last: T | None = None
    async for step in steps:
        found += [one for one in step if one > behind and (last is None or one < last)]
        if len(found) > 2 * count:
            found = sorted(found)[:count]
            last = found[-1]
    return sorted(found)[:count]
