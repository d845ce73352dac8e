# SPDX-License-Identifier: Apache-2.0
"""Plans of changes: the write that begins a change, from a topic as it was seen. Pure.

A plan is asked again when the topic changed meanwhile, so it decides from what it is given alone.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Final, TypeAlias

from libs.formats.config.topic_share import CHANGE_QUEUE_COUNT_MAX, HASH_MAX
from libs.shards.change import ChangeRefused, Write, begun, begun_from_whole, merge, split

if TYPE_CHECKING:
    from cli.commands.shards.shares import Seen
    from libs.formats.config.topic_share import ShareChange, TopicShare

QUEUES_PER_SHARD: Final = 4
"""Queues of a topic for each shard, if no number is given."""
SPLIT_COUNT: Final = 2
"""New queues of a split, if no shards are given."""

Plan: TypeAlias = "Callable[[Seen], Write | None]"
"""Returns the write that begins a change, None if there is nothing to change. Raises ChangeRefused."""


def splitting(queue_id: int, to: Sequence[str], shards: Sequence[str]) -> Plan:
    """Return the plan of a split. Without `to` the new queues are at those of `shards` with the fewest open queues."""

    def plan(seen: Seen) -> Write:
        shares = _shares(seen)
        return begun(shares, split(shares, queue_id, to or _fewest(shares, queue_id, shards)))

    return plan


def _fewest(shares: Mapping[str, TopicShare], queue_id: int, shards: Sequence[str]) -> list[str]:
    """Return the shards with the fewest open queues. The queue that is split is none."""
    counts = {shard: sum(number != queue_id for number in share.open_ids) for shard, share in shares.items()}
    by_count = sorted(shards, key=lambda shard: counts.get(shard, 0))
    return [by_count[at % len(by_count)] for at in range(SPLIT_COUNT)]


def moving(queue_id: int, shard: str) -> Plan:
    """Return the plan that gives the keys of a queue to a new queue at a shard."""

    def plan(seen: Seen) -> Write:
        shares = _shares(seen)
        if shard in shares and queue_id in shares[shard].open_ids:
            raise ChangeRefused(f"queue {queue_id} is at shard {shard} already")
        return begun(shares, split(shares, queue_id, [shard]))

    return plan


def merging(queue_ids: Sequence[int], shard: str) -> Plan:
    """Return the plan that gives the keys of several queues to a new queue at a shard."""

    def plan(seen: Seen) -> Write:
        shares = _shares(seen)
        return begun(shares, merge(shares, queue_ids, shard))

    return plan


def spreading(shards: Sequence[str], count: int = 0) -> Plan:
    """Return the plan that gives a topic that is whole at a shard queues over these shards."""

    def plan(seen: Seen) -> Write:
        if seen.shares:
            raise ChangeRefused("it lies on shards already: `split` and `move` change its queues")
        home = _home(seen)
        child_count = count or min(QUEUES_PER_SHARD * len(shards), CHANGE_QUEUE_COUNT_MAX)
        return begun_from_whole(home, seen.whole[home], shards, child_count)

    return plan


def draining(shard: str, others: Sequence[str], loads: Counter[str]) -> Plan:
    """Return the plan that moves an open queue of a shard to the other shard with the fewest open queues.

    The queues of the topic count first, then `loads`: the open queues of all topics. A topic that is whole at the shard
    is spread over the others. Nothing to change: the topic has no open queue at the shard.
    """

    def plan(seen: Seen) -> Write | None:
        if not seen.shares:
            return spreading(others)(seen) if shard in seen.whole else None
        own = _shares(seen).get(shard)
        if own is None or not own.open_ids:
            return None
        counts = {name: len(share.open_ids) for name, share in seen.shares.items()}
        target = min(others, key=lambda name: (counts.get(name, 0), loads[name]))
        return moving(own.open_ids[0], target)(seen)

    return plan


def nothing(_: Seen) -> None:
    """Plan nothing: a change that is under way is finished alone."""


def is_made(shares: Mapping[str, TopicShare], change: ShareChange) -> bool:
    """Return whether a change that is not under way any more was made."""
    queues = {
        (shard, queue.queue_id): (queue.first_hash, queue.last_hash, queue.parents)
        for shard, share in shares.items()
        for queue in share.queues
    }
    return all(
        queues.get(child.place) == (child.first_hash, child.last_hash, change.parents) for child in change.children
    )


def has_all_keys(shares: Mapping[str, TopicShare]) -> bool:
    """Return whether each key has an open queue. It has none at a shard that is missing in the file."""
    queues = (queue for share in shares.values() for queue in share.queues if not queue.is_sealed)
    return sum(queue.last_hash - queue.first_hash + 1 for queue in queues) == HASH_MAX + 1


def strangers(seen: Seen, shards: Collection[str]) -> list[str]:
    """Return the shards of the change under way that are none of `shards`."""
    change = seen.change
    places = () if change is None else (*change.parents, *(child.place for child in change.children))
    return sorted({place.shard for place in places}.difference(shards))


def _shares(seen: Seen) -> Mapping[str, TopicShare]:
    """Return the shares of a topic. Raises ChangeRefused for a topic without shares."""
    if seen.whole and not seen.shares:
        raise ChangeRefused(f"it is whole at shard {_home(seen)}: `spread` gives it queues over shards first")
    if seen.whole:
        raise ChangeRefused(f"it is whole at {', '.join(seen.whole)}, and has shares at {', '.join(seen.shares)}")
    return seen.shares


def _home(seen: Seen) -> str:
    if len(seen.whole) > 1:
        raise ChangeRefused(f"it is whole at the shards {', '.join(seen.whole)}, and must be whole at a single shard")
    return next(iter(seen.whole))
