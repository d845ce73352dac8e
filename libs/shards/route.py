# SPDX-License-Identifier: Apache-2.0
"""Route: the queues of a topic over all shards, from the shares that the shards have of it.

Invariants: each hash has at most one queue. Where several queues claim a hash, the queue of the share with the
larger version has it.
"""

import bisect
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from libs.formats.config.topic_share import HASH_MAX, QueueShare, TopicShare, key_hash


@dataclass(frozen=True, slots=True, order=True)
class Place:
    """A queue of a topic, and the name of its shard."""

    shard: str
    queue_id: int


@dataclass(frozen=True, slots=True)
class _Range:
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

    @property
    def version(self) -> int:
        """The largest version of the shares, 0 without any."""
        return max((share.version for share in self.shares.values()), default=0)

    @property
    def queue_count(self) -> int:
        """The number that is above all queue ids."""
        return max((queue.queue_id + 1 for _, queue in self.queues()), default=0)

    def queues(self) -> Iterator[tuple[str, QueueShare]]:
        """Yield each queue with the name of its shard."""
        return ((shard, queue) for shard, share in self.shares.items() for queue in share.queues)

    def place_of(self, queue_id: int) -> Place | None:
        """Return a queue by its number. None if no shard has it."""
        return next(
            (Place(shard, queue.queue_id) for shard, queue in self.queues() if queue.queue_id == queue_id), None
        )

    def place_of_key(self, key: str) -> Place | None:
        """Return the queue that has a key. None if it is with a shard that is not known."""
        return self.place_of_hash(key_hash(key))

    def place_of_hash(self, value: int) -> Place | None:
        """Return the queue that has a hash. See `place_of_key`."""
        at = bisect.bisect_right(self._firsts, value) - 1
        return self._ranges[at].place if at >= 0 and value <= self._ranges[at].last_hash else None

    def gaps(self) -> list[tuple[int, int]]:
        """Return the ranges of hashes, both ends included, that no known queue has."""
        found, expected = [], 0
        for one in self._ranges:
            if one.first_hash > expected:
                found.append((expected, one.first_hash - 1))
            expected = one.last_hash + 1
        return found if expected > HASH_MAX else [*found, (expected, HASH_MAX)]


def _ranges(shares: Mapping[str, TopicShare]) -> list[_Range]:
    """Return the ranges of all queues, sorted, without overlaps: newer shares first take their ranges."""
    found: list[_Range] = []
    for shard, share in sorted(shares.items(), key=lambda item: (-item[1].version, item[0])):
        for queue in share.queues:
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
