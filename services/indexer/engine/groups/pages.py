# SPDX-License-Identifier: Apache-2.0
"""Pages of consumer groups by name, with their offsets by topic and queue id.

The stored groups have no order: a page reads all of them, a step at a time, and keeps the first items behind its
position. So a commit stays cheap. The cost of a page grows with the number of groups and offsets, but it never blocks
the event loop. Memory: two pages.
Callers: the event loop's thread. Groups and offsets that come or go meanwhile may be on the page or not.
"""

from collections.abc import AsyncIterator
from typing import NamedTuple, TypeVar

from msgspec import Struct

from libs.formats.limits import INT64_MAX
from services.indexer.engine.groups.consumer_offsets import ConsumerOffsets, GroupOffset

T = TypeVar("T", str, GroupOffset)


class GroupPosition(NamedTuple):
    """The position behind which a list continues: a whole group, or a queue of it."""

    group: str = ""
    queue: tuple[str, int] | None = None


class GroupPage(Struct, frozen=True):
    """Groups with their offsets, and the position behind which the next page begins, or None at the end."""

    groups: list[tuple[str, list[GroupOffset]]]
    position: GroupPosition | None


async def page_of_groups(
    offsets: ConsumerOffsets, position: GroupPosition, *, group_count_max: int, offset_count_max: int
) -> GroupPage:
    """Return the page behind a position.

    A group that does not fit is on the next page. A group that is too large for any page is returned in parts.
    """
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
        found += [item for item in step if item > behind and (last is None or item < last)]
        if len(found) > 2 * count:
            found = sorted(found)[:count]
            last = found[-1]
    return sorted(found)[:count]
