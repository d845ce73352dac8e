# SPDX-License-Identifier: Apache-2.0
"""Conversion of the API's protobuf messages into the values that callers get."""

from typing import Any, TypeVar

import grpc

from reput_client.core import types
from reput_client.core.errors import DataLossError
from reput_client.core.records import messages_in

V = TypeVar("V")


def of_fields(kind: type[V], message: Any, /, **others: object) -> V:
    """Make a value from the fields of a message that have the same names, and from `others`."""
    same = {name: getattr(message, name) for name in kind.__annotations__ if name not in others}
    return kind(**same, **others)


def topic_of(message: Any) -> types.Topic:
    """Return a topic of the API as a value."""
    share = share_of(message.share) if message.HasField("share") else None
    return of_fields(types.Topic, message, share=share)


def share_of(message: Any) -> types.TopicShare:
    """Return the share of a topic."""
    queues = (of_fields(types.QueueRange, queue, parents=_places_of(queue.parents)) for queue in message.queues)
    return types.TopicShare(
        message.version, tuple(queues), _change_of(message.change) if message.HasField("change") else None
    )


def _change_of(message: Any) -> types.ShareChange:
    children = (
        of_fields(types.ChildQueue, child, place=of_fields(types.QueuePlace, child.place)) for child in message.children
    )
    return types.ShareChange(message.version, _places_of(message.parents), tuple(children))


def _places_of(places: Any) -> tuple[types.QueuePlace, ...]:
    return tuple(of_fields(types.QueuePlace, place) for place in places)


def topic_in(answer: Any) -> types.Topic:
    """Return the topic of an answer."""
    return topic_of(answer.topic)


def key_messages_of(key: str, matches: Any) -> types.KeyMessages:
    """Return what an answer knows of a key."""
    if not matches.error_reason:
        return types.KeyMessages(key, messages_in(matches))
    error = DataLossError(matches.error_text, code=grpc.StatusCode.DATA_LOSS, reason=matches.error_reason)
    return types.KeyMessages(key, [], error)


def offset_of(message: Any) -> types.ConsumerOffset:
    """Return an offset of a group as a value."""
    return of_fields(types.ConsumerOffset, message)


def group_of(message: Any) -> types.ConsumerGroup:
    """Return a group and its offsets as a value."""
    return types.ConsumerGroup(message.group, tuple(map(offset_of, message.offsets)))


def queue_of(message: Any) -> types.Queue:
    """Return a queue of the API as a value."""
    times = {
        name: types.from_ms(getattr(message, name).ToMilliseconds()) if message.HasField(name) else None
        for name in ("first_store_time", "last_store_time")
    }
    return of_fields(types.Queue, message, **times)


def pulled(answer: Any) -> types.PullResult:
    """Return the answer to a pull as a value."""
    return of_fields(types.PullResult, answer, status=types.PullStatus(answer.status), messages=messages_in(answer))
