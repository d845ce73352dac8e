# SPDX-License-Identifier: Apache-2.0
"""Changes of the queues of a topic that lies on several shards: which queues are sealed, and which open.

A change is written to the share of the keeper first: the shard that has the queue with the smallest number. From then
on each program that reads all shares knows the next step, so that any program finishes a change that was broken off.
Each step is a share with a version of its own, and a log takes only newer shares: two programs that make the same step
write the same share, and the step of a program that is late is refused.
"""

from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from typing import NamedTuple

from msgspec.structs import replace

from libs.formats.config.topic_share import HASH_MAX, Child, Place, QueueShare, ShareChange, TopicShare
from libs.formats.limits import QUEUE_COUNT_MAX


class ChangeRefused(Exception):
    """A topic can't be changed in this way. The text says why."""


class Write(NamedTuple):
    """A share that has to be written to a shard. The shard may not have the topic yet."""

    shard: str
    share: TopicShare


def first_shares(shards: Sequence[str], queue_count: int) -> Mapping[str, TopicShare]:
    """Return the shares of a new topic whose queues have equal ranges, by shard, as evenly as possible.

    With fewer queues than shards some shards have none.
    """
    assert 1 <= queue_count <= QUEUE_COUNT_MAX
    return {
        shard: TopicShare(1, tuple(QueueShare(at, *_part(0, HASH_MAX, at, queue_count)) for at in numbers))
        for shard, numbers in zip(shards, _runs(queue_count, len(shards)), strict=True)
        if numbers
    }


def keeper_of(shares: Mapping[str, TopicShare]) -> str:
    """Return the shard that keeps the changes of a topic."""
    return min(shares, key=lambda shard: shares[shard].queues[0].queue_id)


def change_of(shares: Mapping[str, TopicShare]) -> ShareChange | None:
    """Return the change that is under way."""
    return shares[keeper_of(shares)].change if shares else None


def split(shares: Mapping[str, TopicShare], queue_id: int, shards: Sequence[str]) -> ShareChange:
    """Return the change that gives the keys of a queue to a new queue at each of these shards, in equal parts.

    With a single shard the queue moves. Raises ChangeRefused.
    """
    (parent, queue), count = _open_queue(shares, queue_id), len(shards)
    if queue.last_hash - queue.first_hash + 1 < count:
        raise ChangeRefused(f"queue {queue_id} has fewer than {count} hashes")
    ranges = [_part(queue.first_hash, queue.last_hash, at, count) for at in range(count)]
    return _change(shares, [parent], list(zip(shards, ranges, strict=True)))


def merge(shares: Mapping[str, TopicShare], queue_ids: Sequence[int], shard: str) -> ShareChange:
    """Return the change that gives the keys of several queues, whose ranges follow each other, to one new queue.

    Raises ChangeRefused.
    """
    found = sorted((_open_queue(shares, queue_id) for queue_id in queue_ids), key=lambda entry: entry[1].first_hash)
    for (before, queue), (after, following) in pairwise(found):
        if following.first_hash != queue.last_hash + 1:
            text = f"the queues {before.queue_id} and {after.queue_id} have no neighbouring ranges"
            raise ChangeRefused(text)
    if len(found) < 2:
        raise ChangeRefused("a merge needs two queues")
    whole = found[0][1].first_hash, found[-1][1].last_hash
    return _change(shares, [place for place, _ in found], [(shard, whole)])


def begun(shares: Mapping[str, TopicShare], change: ShareChange) -> Write:
    """Return the write that begins a change."""
    keeper = keeper_of(shares)
    return Write(keeper, replace(shares[keeper], version=change.version, change=change))


def begun_from_whole(home: str, queue_count: int, shards: Sequence[str], child_count: int) -> Write:
    """Return the write that begins to spread a topic over these shards, whose queues are all at the shard `home`.

    Its queues are sealed at once: as long as its log chose the queues, their keys had no ranges. Raises ChangeRefused.
    """
    (whole,) = first_shares([home], queue_count).values()
    sealed = tuple(replace(queue, is_sealed=True) for queue in whole.queues)
    parents = [Place(home, queue.queue_id) for queue in sealed]
    ranges = [_part(0, HASH_MAX, at, child_count) for at in range(child_count)]
    places = [shard for shard, numbers in zip(shards, _runs(child_count, len(shards)), strict=True) for _ in numbers]
    change = _change({}, parents, list(zip(places, ranges, strict=True)), first_id=queue_count)
    return Write(home, TopicShare(change.version + 1, sealed, change))


def next_step(shares: Mapping[str, TopicShare]) -> Write | None:
    """Return the next write of the change that is under way, None if there is none. `shares` has all shards' shares."""
    if (change := change_of(shares)) is None:
        return None
    parents = {(place.shard, place.queue_id) for place in change.parents}
    for shard in sorted({place.shard for place in change.parents}):
        share = shares[shard]
        sealed = tuple(
            replace(one, is_sealed=one.is_sealed or (shard, one.queue_id) in parents) for one in share.queues
        )
        if sealed != share.queues:
            return Write(shard, replace(share, version=change.version + 1, queues=sealed))
    for shard in sorted({child.place.shard for child in change.children}):
        known = shares[shard].queues if shard in shares else ()
        if new := _new_queues(change, shard, known):
            queues = tuple(sorted((*known, *new), key=lambda queue: queue.queue_id))
            under_way = shares[shard].change if shard in shares else None
            return Write(shard, TopicShare(change.version + 2, queues, under_way))
    keeper = keeper_of(shares)
    return Write(keeper, replace(shares[keeper], version=change.version + 3, change=None))


def _new_queues(change: ShareChange, shard: str, known: Iterable[QueueShare]) -> list[QueueShare]:
    ids = {queue.queue_id for queue in known}
    return [
        QueueShare(child.place.queue_id, child.first_hash, child.last_hash, parents=change.parents)
        for child in change.children
        if child.place.shard == shard and child.place.queue_id not in ids
    ]


def _change(
    shares: Mapping[str, TopicShare],
    parents: Sequence[Place],
    children: Sequence[tuple[str, tuple[int, int]]],
    *,
    first_id: int = 0,
) -> ShareChange:
    if (under_way := change_of(shares)) is not None:
        raise ChangeRefused(f"the change of version {under_way.version} is under way")
    ids = [queue.queue_id for share in shares.values() for queue in share.queues]
    first_id = max([first_id, *(number + 1 for number in ids)])
    if first_id + len(children) > QUEUE_COUNT_MAX:
        raise ChangeRefused(f"the topic would have more than {QUEUE_COUNT_MAX} queues, sealed queues included")
    change = ShareChange(
        max((share.version for share in shares.values()), default=0) + 1,
        tuple(parents),
        tuple(Child(Place(shard, first_id + at), *hashes) for at, (shard, hashes) in enumerate(children)),
    )
    if fault := change.fault():
        raise ChangeRefused(fault)
    return change


def _open_queue(shares: Mapping[str, TopicShare], queue_id: int) -> tuple[Place, QueueShare]:
    for shard, share in shares.items():
        for queue in share.queues:
            if queue.queue_id == queue_id and queue.is_sealed:
                raise ChangeRefused(f"queue {queue_id} is sealed, and other queues have its keys")
            if queue.queue_id == queue_id:
                return Place(shard, queue_id), queue
    raise ChangeRefused(f"the topic has no queue {queue_id}")


def _runs(count: int, part_count: int) -> list[range]:
    """Return the numbers from 0 to `count` in so many runs, as even as possible."""
    ends = [(at + 1) * count // part_count for at in range(part_count)]
    return [range(start, end) for start, end in zip([0, *ends], ends, strict=False)]


def _part(first: int, last: int, at: int, count: int) -> tuple[int, int]:
    """Return the first and last hash of part `at` of a range in `count` equal parts."""
    size = last - first + 1
    return first + at * size // count, first + (at + 1) * size // count - 1
