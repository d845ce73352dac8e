# SPDX-License-Identifier: Apache-2.0
"""What the pages about groups ask: Delivery has the groups that share messages, the Indexer all other offsets."""

from dataclasses import dataclass, field
from datetime import datetime

from msgspec.structs import replace
from reput.indexer.v1 import queue_service_pb2
from reput_client import ConsumerOffset, ShareGroup
from reput_client.core.call import Call

from libs.formats.state.system_topics import OWN_GROUPS, is_system_topic
from services.console.ask.store import Asking, Store, each, together
from services.console.pages.groups import (
    DEAD_LETTER_PREFIX,
    GroupFacts,
    GroupPage,
    GroupQueue,
    GroupsPage,
    group_page,
    groups_page,
    kept_queue,
    shared_queue,
)

GROUPS_ASKED_MAX = 500
"""Groups that share messages whose progress a page asks for: a call for each."""
GROUPS_LISTED_MAX = 5_000
MEASURED_QUEUES_MAX = 64
"""Queues of a group that keeps offsets whose lag is measured in bytes and seconds: two calls for each."""


@dataclass(slots=True)
class Known:
    """The groups of a store. Offsets in topics that a group shares are left out: Delivery's are newer."""

    shared: dict[str, ShareGroup] = field(default_factory=dict)
    kept: dict[str, list[ConsumerOffset]] = field(default_factory=dict)

    def facts(self) -> list[GroupFacts]:
        """Return all groups by name. A group of both kinds is a single group."""
        return [self.fact(name) for name in sorted({*self.shared, *self.kept})]

    def fact(self, name: str) -> GroupFacts:
        """Return what is known of a group."""
        share = self.shared.get(name)
        queues = [shared_queue(queue) for queue in share.queues] if share is not None else []
        own = {queue.topic for queue in queues} | ({DEAD_LETTER_PREFIX + name} if share is not None else set())
        queues += [kept_queue(one) for one in self.kept.get(name, ()) if one.topic not in own]
        return GroupFacts(name, tuple(sorted(queues, key=lambda queue: (queue.topic, queue.queue_id))), share)


async def group_names(asking: Asking) -> list[str]:
    """Return the names of all groups."""
    shared, kept = await together([_shared_names(asking), _kept_names(asking)])
    return sorted({*shared, *kept})


async def _shared_names(asking: Asking) -> list[str]:
    if not asking.store.has_delivery:
        return []
    groups, is_cut = await asking.first(
        "groups that share messages", asking.client.share_groups.list(), GROUPS_LISTED_MAX
    )
    if is_cut:
        asking.left_out("further groups that share messages", f"the first {GROUPS_LISTED_MAX} are listed")
    return [group.name for group in groups if group.name not in OWN_GROUPS]


async def _kept_names(asking: Asking) -> list[str]:
    return list(await _kept(asking))


async def _kept(asking: Asking) -> dict[str, list[ConsumerOffset]]:
    groups, is_cut = await asking.first("groups that keep offsets", asking.client.groups.list(), GROUPS_LISTED_MAX)
    if is_cut:
        asking.left_out("further groups that keep offsets", f"the first {GROUPS_LISTED_MAX} are listed")
    found: dict[str, list[ConsumerOffset]] = {}
    for group in groups:
        if group.name not in OWN_GROUPS and not is_system_topic(group.name):
            found.setdefault(group.name, []).extend(group.offsets)
    return found


async def known_groups(asking: Asking) -> Known:
    """Return all groups with their positions."""
    names = await _shared_names(asking)
    if len(names) > GROUPS_ASKED_MAX:
        asking.left_out(f"the progress of {len(names) - GROUPS_ASKED_MAX} groups", "too many groups for one page")
    kept = await _kept(asking)
    asked = await each(names[:GROUPS_ASKED_MAX], lambda name: _shared(asking, name))
    return Known({name: group for name, group in asked if group is not None}, kept)


async def _shared(asking: Asking, name: str) -> ShareGroup | None:
    if not asking.store.has_delivery:
        return None
    return await asking.ask(f"the progress of group {name}", asking.client.share_groups.get(name))


async def groups(store: Store, part: str) -> GroupsPage:
    """Return the page of all groups."""
    asking = Asking(store)
    known = await known_groups(asking)
    return groups_page(known.facts(), part, asking.gaps)


async def group(store: Store, name: str) -> GroupPage:
    """Return the page of a group."""
    asking = Asking(store)
    share, kept = await _shared(asking, name), await _kept(asking)
    if share is None and name not in kept:
        return group_page(name, None, asking.gaps)
    fact = Known({name: share} if share is not None else {}, kept).fact(name)
    return group_page(name, replace(fact, queues=await _measured(asking, fact.queues)), asking.gaps)


async def _measured(asking: Asking, queues: tuple[GroupQueue, ...]) -> tuple[GroupQueue, ...]:
    """Return queues with their lag in bytes and seconds, where only messages were known."""
    missing = [queue for queue in queues if queue.lag_bytes is None]
    if len(missing) > MEASURED_QUEUES_MAX:
        asking.left_out(f"bytes and seconds of {len(missing) - MEASURED_QUEUES_MAX} queues", "too many for one page")
    now = asking.store.now
    measured = dict(await each(missing[:MEASURED_QUEUES_MAX], lambda queue: _measure(asking, queue, now)))
    return tuple(measured.get(queue, queue) for queue in queues)


async def _measure(asking: Asking, queue: GroupQueue, now: datetime) -> GroupQueue:
    """Ask for the bytes from the position on, and for the store time of the first message there."""
    request = queue_service_pb2.GetQueueRangeRequest(
        topic=queue.topic, queue_id=queue.queue_id, size_start_queue_offset=queue.queue_offset
    )
    what = f"the lag in queue {queue.queue_id} of {queue.topic}"
    size_bytes, lag_s = await together([_size_bytes(asking, what, request), _lag_s(asking, what, queue, now)])
    return replace(queue, lag_bytes=None if size_bytes is None else round(size_bytes), lag_s=lag_s)


async def _size_bytes(asking: Asking, what: str, request: queue_service_pb2.GetQueueRangeRequest) -> float | None:
    call: Call[int] = Call(request, lambda answer: int(answer.size_bytes))
    return await asking.ask(what, asking.store.run(call))


async def _lag_s(asking: Asking, what: str, queue: GroupQueue, now: datetime) -> float | None:
    pull = asking.client.queues.pull(queue.topic, queue.queue_id, queue.queue_offset, count=1)
    answer = await asking.ask(what, pull)
    if answer is None or not answer.messages:
        return None
    return max((now - answer.messages[0].store_time).total_seconds(), 0.0)
