# SPDX-License-Identifier: Apache-2.0
"""The shares of a new topic, and of a topic that was on a single log."""

from collections.abc import Mapping, Sequence

from libs.formats.config.topic_share import HASH_MAX, QueueShare, TopicShare
from libs.formats.limits import QUEUE_COUNT_MAX


def first_shares(shards: Sequence[str], queue_count: int) -> Mapping[str, TopicShare]:
    """Return the shares of a new topic whose queues have equal ranges, by shard, as evenly as possible.

    With fewer queues than shards some shards have none.
    """
    assert 1 <= queue_count <= QUEUE_COUNT_MAX
    ends = [(at + 1) * queue_count // len(shards) for at in range(len(shards))]
    starts = [0, *ends]
    return {
        shard: TopicShare(1, tuple(_queue(number, queue_count) for number in range(start, end)))
        for shard, start, end in zip(shards, starts, ends, strict=False)
        if start < end
    }


def whole_share(queue_count: int) -> TopicShare:
    """Return the share of a topic whose queues are all on one log: how a store becomes a shard."""
    return first_shares([""], queue_count)[""]


def _queue(number: int, count: int) -> QueueShare:
    """Return one of `count` queues with equal ranges."""
    first, end = (at * (HASH_MAX + 1) // count for at in (number, number + 1))
    return QueueShare(number, first, end - 1)
