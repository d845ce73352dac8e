# SPDX-License-Identifier: Apache-2.0
"""Calls of the Indexer's ConsumerOffsetService."""

from collections.abc import Iterable
from datetime import datetime
from typing import Literal, TypeAlias

from reput.indexer.v1 import consumer_offset_service_pb2 as messages

from reput_client.core.calls.call import Call, Pages, same
from reput_client.core.types import ConsumerGroup, ConsumerOffset, to_timestamp

Place: TypeAlias = Literal["earliest", "latest"] | datetime | int
"""The first entry, the end, or the first entry at or after a time (a datetime, or milliseconds since the epoch)."""

_SERVICE = "reput.indexer.v1.ConsumerOffsetService"


def commit(group: str, offsets: Iterable[ConsumerOffset]) -> Call[None]:
    """Store the next offsets of a group."""
    request = messages.CommitConsumerOffsetRequest(
        group=group,
        offsets=[
            messages.ConsumerOffset(topic=o.topic, queue_id=o.queue_id, queue_offset=o.queue_offset) for o in offsets
        ],
    )
    path = f"{_SERVICE}/CommitConsumerOffset"
    return Call("indexer", path, request, messages.CommitConsumerOffsetResponse, lambda _: None)


def get(group: str, topic: str, queue_id: int) -> Call[ConsumerOffset]:
    """The next offset of a group in a queue."""
    request = messages.GetConsumerOffsetRequest(group=group, topic=topic, queue_id=queue_id)
    path = f"{_SERVICE}/GetConsumerOffset"
    return Call("indexer", path, request, messages.GetConsumerOffsetResponse, lambda answer: _offset(answer.offset))


def reset(group: str, topic: str, to: Place) -> Call[tuple[ConsumerOffset, ...]]:
    """Move a group's offsets of a topic."""
    request = messages.ResetConsumerOffsetRequest(group=group, topic=topic)
    if to == "earliest":
        request.earliest = True
    elif to == "latest":
        request.latest = True
    elif isinstance(to, str):
        raise ValueError(f"{to!r} is not a place: use 'earliest', 'latest' or a time")
    else:
        time = to_timestamp(to)
        assert time is not None
        request.time.CopyFrom(time)
    path = f"{_SERVICE}/ResetConsumerOffset"
    response_type = messages.ResetConsumerOffsetResponse
    return Call("indexer", path, request, response_type, lambda answer: tuple(map(_offset, answer.offsets)))


def delete(group: str, topic: str) -> Call[int]:
    """Forget a group's offsets, all or those of a topic; how many it had."""
    request = messages.DeleteConsumerGroupRequest(group=group, topic=topic)
    path = f"{_SERVICE}/DeleteConsumerGroup"
    response_type = messages.DeleteConsumerGroupResponse
    return Call("indexer", path, request, response_type, lambda answer: int(answer.deleted_offset_count))


def listing() -> Pages[ConsumerGroup]:
    """All groups by name."""
    request = messages.ListConsumerGroupsRequest(page_size=1000)
    call = Call("indexer", f"{_SERVICE}/ListConsumerGroups", request, messages.ListConsumerGroupsResponse, same)
    return Pages(call, lambda page: [ConsumerGroup(g.group, tuple(map(_offset, g.offsets))) for g in page.groups])


def _offset(offset: messages.ConsumerOffset) -> ConsumerOffset:
    return ConsumerOffset(offset.topic, offset.queue_id, offset.queue_offset, offset.lag)
