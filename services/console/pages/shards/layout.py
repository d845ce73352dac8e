# SPDX-License-Identifier: Apache-2.0
"""Layout: the queues of a topic over all shards, and a change of them that is under way."""

from collections.abc import Iterable, Mapping, Sequence

from msgspec import Struct
from reput_client import Queue, QueuePlace, QueueRange, ShareChange, Topic, TopicShare

from services.console.pages.page import command

HASH_COUNT = 2**32


class Place(Struct, frozen=True):
    """A queue, and its shard."""

    shard: str
    queue_id: int


class PlacedQueue(Struct, frozen=True):
    """A queue of a topic. Without hashes the log of its shard chooses the queue, and the whole topic is there."""

    shard: str
    queue_id: int
    message_count: int | None
    """None if it could not be asked."""
    is_sealed: bool = False
    first_hash: int | None = None
    last_hash: int | None = None
    parents: tuple[Place, ...] = ()

    @property
    def keys_percent(self) -> float | None:
        """The part of all keys that it has; that it had, if it is sealed."""
        if self.first_hash is None or self.last_hash is None:
            return None
        return 100 * (self.last_hash - self.first_hash + 1) / HASH_COUNT


class Change(Struct, frozen=True):
    """A change that is under way: the parents are sealed, then the children open."""

    text: str
    parents: tuple[Place, ...]
    children: tuple[Place, ...]
    command: str
    """The command that finishes it, if no other command does."""


class Layout(Struct, frozen=True):
    """A topic over all shards."""

    shards: tuple[str, ...] = ()
    """The shards that have queues of it."""
    queues: tuple[PlacedQueue, ...] = ()
    """Open queues first, by number."""
    change: Change | None = None


class Seen(Struct, frozen=True):
    """A topic at a shard. None for what could not be asked, or is not there."""

    topic: Topic | None
    queues: Sequence[Queue] | None
    """The queues that have had messages, as far as they are listed."""
    are_all: bool = True
    """All of them are listed."""


def layout_of(name: str, seen: Mapping[str, Seen]) -> Layout:
    """Return the queues of a topic from its shares at the shards that answer."""
    shares = {shard: one.topic.share for shard, one in seen.items() if one.topic is not None and one.topic.share}
    placed = [queue for shard, one in seen.items() for queue in _placed(shard, one, shares.get(shard))]
    return Layout(
        shards=tuple(shard for shard, one in seen.items() if one.topic is not None),
        queues=tuple(sorted(placed, key=lambda queue: (queue.is_sealed, queue.queue_id))),
        change=_change(name, shares),
    )


def _placed(shard: str, seen: Seen, share: TopicShare | None) -> Iterable[PlacedQueue]:
    counts = {queue.queue_id: queue.max_queue_offset - queue.min_queue_offset for queue in seen.queues or ()}
    if share is None:
        return [PlacedQueue(shard, number, count) for number, count in counts.items()]
    unlisted = 0 if seen.queues is not None and seen.are_all else None
    return [_ranged(shard, queue, counts.get(queue.queue_id, unlisted)) for queue in share.queues]


def _ranged(shard: str, queue: QueueRange, count: int | None) -> PlacedQueue:
    return PlacedQueue(
        shard, queue.queue_id, count, queue.is_sealed, queue.first_hash, queue.last_hash, _places(queue.parents)
    )


def _change(name: str, shares: Mapping[str, TopicShare]) -> Change | None:
    """Return the change under way. The shard with the smallest queue has it (libs.shards.change)."""
    if not shares:
        return None
    keeper = min(shares, key=lambda shard: shares[shard].queues[0].queue_id)
    under_way: ShareChange | None = shares[keeper].change
    if under_way is None:
        return None
    parents, children = _places(under_way.parents), _places(child.place for child in under_way.children)
    text = f"{_text(parents)} → {_text(children)}"
    return Change(text, parents, children, command("shards", "finish", name))


def _places(places: Iterable[QueuePlace]) -> tuple[Place, ...]:
    return tuple(Place(place.shard, place.queue_id) for place in places)


def _text(places: Sequence[Place]) -> str:
    return ", ".join(f"{place.queue_id} at {place.shard}" for place in places)
