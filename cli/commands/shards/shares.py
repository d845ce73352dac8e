# SPDX-License-Identifier: Apache-2.0
"""The shares of a topic at all shards, read and written. It imports the client.

The keeper's share is read before the shares of the other shards (libs.shards.change): so a change that begins between
the reads makes the versions of the others larger than the keeper's, and a plan from such shares is refused.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from reput_client import ChildQueue, NotFoundError, QueuePlace, QueueRange, ReputError, ShareChange, TopicShare

from libs.formats.config import topic_share as known
from libs.shards.change import change_of, keeper_of

if TYPE_CHECKING:
    from reput_client import Client, Topic

    from libs.shards.change import Write

READS_MAX = 5
"""How often a topic is read again whose keeper is another shard than expected."""


class ShardFailed(Exception):
    """A call to a shard failed. The text names the shard."""

    def __init__(self, shard: str, error: ReputError) -> None:
        super().__init__(f"shard {shard}: {error}")
        self.shard, self.error = shard, error


@dataclass
class Seen:
    """A topic as it is at the shards that have it: its description, and its share, or its queue count without one."""

    topics: dict[str, Topic]
    shares: dict[str, known.TopicShare]
    whole: dict[str, int]

    @property
    def keeper(self) -> str:
        """The shard that keeps the topic's changes: the shard with the smallest queue, or the only shard."""
        return keeper_of(self.shares) if self.shares else next(iter(self.whole))

    def note(self, step: Write) -> None:
        """Note a share that was written."""
        self.shares[step.shard] = step.share
        self.whole.pop(step.shard, None)

    @property
    def change(self) -> known.ShareChange | None:
        """The change that is under way."""
        return change_of(self.shares)


def read(clients: Mapping[str, Client], topic: str) -> Seen:
    """Return a topic at all shards. Raises ShardFailed, and NotFoundError if no shard has it."""
    order = list(clients)
    for _ in range(READS_MAX):
        seen = _read(clients, topic, order)
        if seen.keeper == order[0]:
            break
        order.sort(key=lambda name: name != seen.keeper)
    return seen


def _read(clients: Mapping[str, Client], name: str, order: list[str]) -> Seen:
    topics: dict[str, Topic] = {}
    seen, missing = Seen({}, {}, {}), []
    for shard in order:
        try:
            topics[shard] = topic = clients[shard].topics.get(name)
            if topic.share is None:
                queues = [queue.queue_id + 1 for queue in clients[shard].queues.list(name)]
                seen.whole[shard] = max([topic.read_queue_count, topic.write_queue_count, *queues])
            else:
                seen.shares[shard] = known_share(topic.share)
        except NotFoundError as error:
            missing.append(error)
        except ReputError as error:
            raise ShardFailed(shard, error) from error
    if not topics:
        raise missing[0]
    seen.topics = {shard: topics[shard] for shard in clients if shard in topics}
    return seen


def write(clients: Mapping[str, Client], topic: str, step: Write, seen: Seen) -> None:
    """Write a share to a shard, and note it in `seen`. Raises ShardFailed.

    A shard that lacks the topic gets it, with the keeper's permissions and retention. The queue counts rise, so that
    they hold all queues of the share, and of its change: a topic with too many queues is refused with the first write.
    """
    topics, here = clients[step.shard].topics, seen.topics.get(step.shard)
    count = _count_of(step.share)
    try:
        if here is None:
            model = seen.topics[seen.keeper]
            stored = topics.create(
                topic,
                read_queue_count=count,
                write_queue_count=count,
                is_readable=model.is_readable,
                is_writable=model.is_writable,
                retention_hours=model.retention_hours,
                retention_bytes=model.retention_bytes,
                share=client_share(step.share),
            )
        else:
            stored = topics.update(
                topic,
                read_queue_count=count if count > here.read_queue_count else None,
                write_queue_count=count if count > here.write_queue_count else None,
                share=client_share(step.share),
            )
    except ReputError as error:
        raise ShardFailed(step.shard, error) from error
    seen.topics[step.shard] = stored
    seen.note(step)


def make_room(clients: Mapping[str, Client], topic: str, begin: Write, seen: Seen) -> None:
    """Raise the queue counts at the shards of the children, before a change begins. Raises ShardFailed.

    A shard may refuse the count (topic_queue_count_max): the parents are not sealed yet. A shard that lacks the topic
    is not asked.
    """
    count, change = _count_of(begin.share), begin.share.change
    assert change is not None
    for shard in dict.fromkeys(child.place.shard for child in change.children):
        here = seen.topics.get(shard)
        if here is None or shard == begin.shard or here.write_queue_count >= count:
            continue
        try:
            seen.topics[shard] = clients[shard].topics.update(
                topic,
                read_queue_count=max(count, here.read_queue_count),
                write_queue_count=count,
            )
        except ReputError as error:
            raise ShardFailed(shard, error) from error


def _count_of(share: known.TopicShare) -> int:
    children = share.change.children if share.change is not None else ()
    return 1 + max([*(queue.queue_id for queue in share.queues), *(child.place.queue_id for child in children)])


def known_share(share: TopicShare) -> known.TopicShare:
    """Return the client's share in the form of libs."""
    queues = (known.QueueShare(**queue._asdict() | {"parents": _places(queue.parents)}) for queue in share.queues)
    change = None
    if (found := share.change) is not None:
        children = (known.Child(known.Place(*child.place), *child[1:]) for child in found.children)
        change = known.ShareChange(found.version, _places(found.parents), tuple(children))
    return known.TopicShare(share.version, tuple(queues), change)


def _places(places: tuple[QueuePlace, ...]) -> tuple[known.Place, ...]:
    return tuple(known.Place(*place) for place in places)


def client_share(share: known.TopicShare) -> TopicShare:
    """Return a share in the form of the client."""
    queues = (
        QueueRange(queue.queue_id, queue.first_hash, queue.last_hash, queue.is_sealed, _client_places(queue.parents))
        for queue in share.queues
    )
    change = None
    if (found := share.change) is not None:
        children = (ChildQueue(QueuePlace(*child.place), child.first_hash, child.last_hash) for child in found.children)
        change = ShareChange(found.version, _client_places(found.parents), tuple(children))
    return TopicShare(share.version, tuple(queues), change)


def _client_places(places: tuple[known.Place, ...]) -> tuple[QueuePlace, ...]:
    return tuple(QueuePlace(*place) for place in places)
