# SPDX-License-Identifier: Apache-2.0
"""The questions of the pages about groups: Delivery has groups that share messages, the Indexer other offsets."""

import asyncio
from collections.abc import AsyncIterator, Iterable
from datetime import UTC, datetime
from typing import Any, TypeVar

from msgspec import Struct, field
from msgspec.structs import replace
from reput.delivery.v1 import group_service_pb2
from reput.indexer.v1 import consumer_offset_service_pb2, queue_service_pb2
from reput_client import ConsumerOffset, ShareGroup
from reput_client.core.answers import offset_of
from reput_client.core.call import PAGE_SIZE, Call

from libs.formats.state.system_topics import OWN_GROUPS, is_system_group
from services.console.ask.operate.callers import members
from services.console.ask.states import blockers_of
from services.console.ask.store import Asking, Store, each
from services.console.pages.groups import (
    DEAD_LETTER_PREFIX,
    GroupFacts,
    GroupPage,
    GroupQueue,
    GroupsPage,
    group_page,
    groups_page,
    held_reasons,
    kept_queue,
    reasons_of,
    shared_queue,
    still_reasons,
    with_members,
)
from services.console.pages.stills import Stills

T = TypeVar("T")

GROUPS_ASKED_MAX = 500
"""Groups that share messages whose progress a page asks for: a call for each."""
GROUPS_LISTED_MAX = 5_000
MEASURED_QUEUES_MAX = 500
"""Queues of a group that keeps offsets whose lag is measured in bytes and seconds, in a call for all."""


class Known(Struct):
    """The groups of a store. Offsets in topics that a group shares are left out: Delivery's are newer."""

    shared: dict[str, ShareGroup] = field(default_factory=dict)
    kept: dict[str, list[ConsumerOffset]] = field(default_factory=dict)
    are_kinds_known: bool = True
    """False if Delivery did not answer: then any of the groups with offsets may share messages, too."""
    stills: Stills = field(default_factory=Stills)
    now_ms: int = 0

    def facts(self) -> list[GroupFacts]:
        """Return all groups by name. A group of both kinds is a single group."""
        return [self.fact(name) for name in sorted({*self.shared, *self.kept})]

    def fact(self, name: str) -> GroupFacts:
        """Return the facts about a group."""
        share = self.shared.get(name)
        queues: list[GroupQueue] = []
        if share is not None:
            queues += with_members(list(map(shared_queue, share.queues)), is_paused=share.policy.is_paused)
        own = {queue.topic for queue in queues} | ({DEAD_LETTER_PREFIX + name} if share is not None else set())
        queues += [kept_queue(one) for one in self.kept.get(name, ()) if one.topic not in own]
        ordered = tuple(sorted(queues, key=lambda queue: (queue.topic, queue.queue_id)))
        stopped = still_reasons if share is None else held_reasons
        stills = stopped(name, ordered, self.stills, self.now_ms)
        return GroupFacts(name, ordered, share, is_kind_known=self.are_kinds_known, stills=stills)


async def group_names(asking: Asking) -> list[str]:
    """Return the names of all groups."""
    shared, kept = await asyncio.gather(shared_names(asking), kept_offsets(asking))
    return sorted({*(shared or ()), *kept})


async def shared_names(asking: Asking, *, has_system: bool = False) -> list[str] | None:
    """Return the names of the groups that share messages, None if Delivery does not answer."""
    if not asking.store.has_delivery:
        return []
    listed = asking.store.listed(group_service_pb2.ListGroupsRequest(page_size=PAGE_SIZE), lambda page: page.groups)
    groups = await asking.ask("groups that share messages", _taken(listed, GROUPS_LISTED_MAX + 1))
    if groups is None:
        return None
    if len(groups) > GROUPS_LISTED_MAX:
        asking.left_out("further groups that share messages", f"the first {GROUPS_LISTED_MAX} are listed")
    names = [group.name for group in groups[:GROUPS_LISTED_MAX]]
    return [name for name in names if name not in OWN_GROUPS and (has_system or not is_system_group(name))]


async def _taken(items: AsyncIterator[T], count: int) -> list[T]:
    taken: list[T] = []
    async for item in items:
        taken.append(item)
        if len(taken) == count:
            break
    return taken


async def kept_offsets(asking: Asking, *, has_system: bool = False) -> dict[str, list[ConsumerOffset]]:
    """Return the offsets of the groups that keep offsets, also of the store's own groups if they are asked for."""
    return offsets_in(await kept_groups(asking), has_system=has_system)


async def kept_groups(asking: Asking) -> list[Any]:
    """Return the groups that keep offsets as the API gives them. A group with many offsets comes in parts."""
    request = consumer_offset_service_pb2.ListConsumerGroupsRequest(page_size=PAGE_SIZE)
    listed = asking.store.listed(request, lambda page: page.groups)
    groups, is_cut = await asking.first("groups that keep offsets", listed, GROUPS_LISTED_MAX)
    if is_cut:
        asking.left_out("further groups that keep offsets", f"the first {GROUPS_LISTED_MAX} are listed")
    return groups


def offsets_in(groups: Iterable[Any], *, has_system: bool = False) -> dict[str, list[ConsumerOffset]]:
    """Return the offsets of groups of the API by the name of the group."""
    found: dict[str, list[ConsumerOffset]] = {}
    for group in groups:
        if has_system or not is_system_group(group.group):
            found.setdefault(group.group, []).extend(map(offset_of, group.offsets))
    return found


async def known_groups(asking: Asking, *, has_system: bool = False) -> Known:
    """Return all groups with their positions, without the store's own groups unless they are asked for."""
    found = await shared_names(asking, has_system=has_system)
    names = found or []
    if len(names) > GROUPS_ASKED_MAX:
        asking.left_out(f"the progress of {len(names) - GROUPS_ASKED_MAX} groups", "too many groups for one page")
    kept = await kept_offsets(asking, has_system=has_system)
    asked = await each(names[:GROUPS_ASKED_MAX], lambda name: shared_group(asking, name))
    shared = {name: group for name, group in asked if group is not None}
    return _known(asking, shared, kept, are_kinds_known=found is not None)


def _known(
    asking: Asking, shared: dict[str, ShareGroup], kept: dict[str, list[ConsumerOffset]], *, are_kinds_known: bool
) -> Known:
    store = asking.store
    return Known(shared, kept, are_kinds_known=are_kinds_known, stills=store.stills, now_ms=store.clock.now_ms())


async def shared_group(asking: Asking, name: str) -> ShareGroup | None:
    """Return a group that shares messages, None if there is none, or it could not be asked."""
    if not asking.store.has_delivery:
        return None
    return await asking.ask(f"the progress of group {name}", asking.client.share_groups.get(name))


async def groups(store: Store, part: str, *, has_system: bool = False) -> GroupsPage:
    """Return the page of all groups."""
    asking = Asking(store)
    known = await known_groups(asking, has_system=has_system)
    return groups_page(known.facts(), part, asking.gaps, has_system=has_system)


async def group(store: Store, name: str, span: str) -> GroupPage:
    """Return the page of a group."""
    asking = Asking(store)
    fact = await group_fact(asking, name)
    if fact is None:
        return group_page(name, None, asking.gaps, store.mask)
    queues, (found, member_gaps) = await asyncio.gather(measured(asking, fact.queues), members(asking, name))
    page = group_page(name, replace(fact, queues=queues), asking.gaps, store.mask)
    history = store.ring.history("group", name, span, store.clock.now_ms())
    blockers = await blockers_of(asking, fact, reasons_of(fact))
    return replace(page, members=found, member_gaps=member_gaps, history=history, blockers=blockers, gaps=asking.gaps)


async def group_fact(asking: Asking, name: str) -> GroupFacts | None:
    """Return the facts about a group, None if there is no such group."""
    share = await shared_group(asking, name)
    is_kind_known = share is not None or not asking.gaps
    kept = await kept_offsets(asking, has_system=True)
    if share is None and name not in kept:
        return None
    shared = {name: share} if share is not None else {}
    return _known(asking, shared, kept, are_kinds_known=is_kind_known).fact(name)


async def measured(asking: Asking, queues: tuple[GroupQueue, ...]) -> tuple[GroupQueue, ...]:
    """Return queues with their lag in bytes and seconds, where only messages were known."""
    missing = [queue for queue in queues if queue.lag_bytes is None]
    if len(missing) > MEASURED_QUEUES_MAX:
        asking.left_out(f"bytes and seconds of {len(missing) - MEASURED_QUEUES_MAX} queues", "too many for one page")
    asked = missing[:MEASURED_QUEUES_MAX]
    parts = [
        queue_service_pb2.QueuePart(
            topic=queue.topic,
            queue_id=queue.queue_id,
            start_queue_offset=queue.queue_offset,
            time_queue_offset=queue.queue_offset,
        )
        for queue in asked
    ]
    call: Call[Any] = Call(queue_service_pb2.MeasureQueuesRequest(parts=parts), lambda answer: answer.measures)
    measures = (await asking.ask("bytes and seconds of the lag", asking.store.run(call)) or ()) if parts else ()
    if len(measures) < len(asked) and measures:
        asking.left_out(f"bytes and seconds of {len(asked) - len(measures)} queues", "their messages are large")
    now = asking.store.now
    known = {queue: _with_measure(queue, measure, now) for queue, measure in zip(asked, measures, strict=False)}
    return tuple(known.get(queue, queue) for queue in queues)


def _with_measure(queue: GroupQueue, measure: Any, now: datetime) -> GroupQueue:
    """Return a queue with the bytes from the position on, and the age of the first message there."""
    lag_s = None
    if measure.HasField("store_time"):
        lag_s = max((now - measure.store_time.ToDatetime(tzinfo=UTC)).total_seconds(), 0.0)
    return replace(queue, lag_bytes=measure.size_bytes, lag_s=lag_s)
