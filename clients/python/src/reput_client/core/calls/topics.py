# SPDX-License-Identifier: Apache-2.0
"""Calls of the CommitLog's TopicService."""

from typing import Any

from google.protobuf.message import Message
from reput.commitlog.v1 import topic_service_pb2 as messages

from reput_client.core.calls.call import Call, Pages
from reput_client.core.types import Topic

_SERVICE = "reput.commitlog.v1.TopicService"


def create(name: str, **fields: int | bool | None) -> Call[Topic]:
    """Make a topic; fields that are None are the store's defaults."""
    request = messages.CreateTopicRequest(name=name, **_present(fields))
    return _call("CreateTopic", request, messages.CreateTopicResponse, is_repeatable=False)


def update(name: str, **fields: int | bool | None) -> Call[Topic]:
    """Change a topic; fields that are None stay."""
    request = messages.UpdateTopicRequest(name=name, **_present(fields))
    return _call("UpdateTopic", request, messages.UpdateTopicResponse)


def get(name: str) -> Call[Topic]:
    """Return a topic."""
    return _call("GetTopic", messages.GetTopicRequest(name=name), messages.GetTopicResponse)


def listing(*, include_system: bool) -> Pages[Topic]:
    """All topics by name."""
    request = messages.ListTopicsRequest(include_system=include_system, page_size=1000)
    call = Call("commitlog", f"{_SERVICE}/ListTopics", request, messages.ListTopicsResponse, lambda page: page)
    return Pages(call, lambda page: [_topic(topic) for topic in page.topics])


def delete(name: str) -> Call[None]:
    """Forget a topic."""
    request = messages.DeleteTopicRequest(name=name)
    path = f"{_SERVICE}/DeleteTopic"
    return Call("commitlog", path, request, messages.DeleteTopicResponse, lambda _: None, is_repeatable=False)


def _call(method: str, request: Message, response_type: type[Message], *, is_repeatable: bool = True) -> Call[Topic]:
    path = f"{_SERVICE}/{method}"
    return Call("commitlog", path, request, response_type, lambda response: _topic(response.topic), is_repeatable)


def _present(fields: dict[str, int | bool | None]) -> Any:
    return {name: value for name, value in fields.items() if value is not None}


def _topic(topic: messages.Topic) -> Topic:
    return Topic(
        name=topic.name,
        read_queue_count=topic.read_queue_count,
        write_queue_count=topic.write_queue_count,
        is_readable=topic.is_readable,
        is_writable=topic.is_writable,
        is_system=topic.is_system,
        set_apart=topic.set_apart,
    )
