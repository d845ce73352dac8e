# SPDX-License-Identifier: Apache-2.0
"""TopicService: protobuf to and from the topic registry."""

from dataclasses import dataclass
from typing import Any

from reput.commitlog.v1 import topic_service_pb2 as pb

from libs.formats.config.topics_json import TopicConfig
from libs.formats.state.system_topics import is_system_topic
from libs.requests.checks import size_of_page
from libs.requests.page_token import decode_token, encode_token
from libs.runtime.rpc.handlers import Context
from services.commitlog.engine.write.topics import TopicRegistry

PAGE_SIZE_DEFAULT, PAGE_SIZE_MAX = 100, 1_000
LIST = "topics"


@dataclass(frozen=True, slots=True, eq=False)
class TopicServicer:
    """Serves reput.commitlog.v1.TopicService."""

    _topics: TopicRegistry

    async def CreateTopic(self, request: pb.CreateTopicRequest, context: Context) -> pb.CreateTopicResponse:
        """Make a topic."""
        del context
        topic = await self._topics.create(request.name, **_given(request))
        return pb.CreateTopicResponse(topic=self._topic(topic))

    async def UpdateTopic(self, request: pb.UpdateTopicRequest, context: Context) -> pb.UpdateTopicResponse:
        """Change what the request names."""
        del context
        topic = await self._topics.update(request.name, **_given(request))
        return pb.UpdateTopicResponse(topic=self._topic(topic))

    async def GetTopic(self, request: pb.GetTopicRequest, context: Context) -> pb.GetTopicResponse:
        """Return one topic."""
        del context
        return pb.GetTopicResponse(topic=self._topic(self._topics.get(request.name)))

    async def ListTopics(self, request: pb.ListTopicsRequest, context: Context) -> pb.ListTopicsResponse:
        """Return one page, by name."""
        del context
        size = size_of_page(request, "page_size", default=PAGE_SIZE_DEFAULT, most=PAGE_SIZE_MAX)
        token, arguments = request.page_token, (request.include_system,)
        last_name = decode_token(LIST, arguments, token, str) or ""
        found = self._topics.list_after(last_name, size + 1, include_system=request.include_system)
        page = found[:size]
        token = encode_token(LIST, arguments, page[-1].name) if len(found) > size else ""
        return pb.ListTopicsResponse(topics=[self._topic(topic) for topic in page], next_page_token=token)

    async def DeleteTopic(self, request: pb.DeleteTopicRequest, context: Context) -> pb.DeleteTopicResponse:
        """Forget one topic."""
        del context
        await self._topics.delete(request.name)
        return pb.DeleteTopicResponse()

    def _topic(self, topic: TopicConfig) -> pb.Topic:
        return pb.Topic(
            name=topic.name,
            read_queue_count=topic.read_queue_count,
            write_queue_count=topic.write_queue_count,
            is_readable=topic.is_readable,
            is_writable=topic.is_writable,
            is_system=is_system_topic(topic.name),
            set_apart=self._topics.set_apart.why(topic.name),
        )


def _given(request: pb.CreateTopicRequest | pb.UpdateTopicRequest) -> dict[str, Any]:
    """Return the values of a topic that a request names."""
    return {field.name: value for field, value in request.ListFields() if field.name != "name"}
