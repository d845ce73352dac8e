# SPDX-License-Identifier: Apache-2.0
"""Route: the queues of a topic over all shards, from the shares that the shards have of it.

Invariants: each hash has at most one open queue. Where several queues claim a hash, the queue of the share with the
larger version has it. Sealed queues take no messages.
"""

import bisect
from collections.abc import Mapping, Sequence

from msgspec import Struct

from libs.formats.config.topic_share import Place, TopicShare, key_hash


class _Range(Struct, frozen=True):
    first_hash: int
    last_hash: int
    place: Place


class Route:
    """The queues of a topic. `shares` has the share of each shard that has queues of it, by the shard's name."""

    def __init__(self, shares: Mapping[str, TopicShare]) -> None:
        self.shares = dict(shares)
        self._ranges = _ranges(self.shares)
        self._firsts = [one.first_hash for one in self._ranges]
        self.places: Sequence[Place] = tuple(dict.fromkeys(one.place for one in self._ranges))
        """The queues that take messages."""

    def place_of_key(self, key: str) -> Place | None:
        """Return the open queue that has a key. None while a change is under way, and if its shard is not known."""
        return self.place_of_hash(key_hash(key))

    def place_of_hash(self, value: int) -> Place | None:
        """Return the queue that has a hash. See `place_of_key`."""
        at = bisect.bisect_right(self._firsts, value) - 1
        return self._ranges[at].place if at >= 0 and value <= self._ranges[at].last_hash else None


def _ranges(shares: Mapping[str, TopicShare]) -> list[_Range]:
    """Return the ranges of all queues, sorted, without overlaps: newer shares first take their ranges."""
    found: list[_Range] = []
    for shard, share in sorted(shares.items(), key=lambda item: (-item[1].version, item[0])):
        for queue in (one for one in share.queues if not one.is_sealed):
            free = _without((queue.first_hash, queue.last_hash), found)
            found += [_Range(first, last, Place(shard, queue.queue_id)) for first, last in free]
            found.sort(key=lambda one: one.first_hash)
    return found


def _without(whole: tuple[int, int], taken: Sequence[_Range]) -> list[tuple[int, int]]:
    """Return the parts of a range that are not taken. `taken` is sorted."""
    free, (first, last) = [], whole
    for one in taken:
        if one.last_hash < first or one.first_hash > last:
            continue
        if one.first_hash > first:
            free.append((first, one.first_hash - 1))
        first = one.last_hash + 1
    return [*free, (first, last)] if first <= last else free
