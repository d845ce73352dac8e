# SPDX-License-Identifier: Apache-2.0
"""TopicService: protobuf to and from the topic registry."""

from dataclasses import dataclass
from typing import Any

from reput.commitlog.v1 import topic_service_pb2 as pb

from libs.formats.config.topics_json import TopicConfig
from libs.formats.state.system_topics import is_system_topic
from libs.requests.checks import size_of_page
from libs.requests.page_token import decode_token, encode_token
from libs.runtime.rpc.by_name import named
from services.commitlog.engine.durable.topic_changes import TopicChanges
from services.commitlog.engine.write.gate import WriteGate
from services.commitlog.engine.write.topics import TopicRegistry
from services.commitlog.errors import TopicNotFound

PAGE_SIZE_DEFAULT, PAGE_SIZE_MAX = 100, 1_000
LIST = "topics"


@dataclass(frozen=True, slots=True, eq=False)
class TopicServicer:
    """The servicer of reput.commitlog.v1.TopicService."""

    _topics: TopicRegistry
    _changes: TopicChanges
    _gate: WriteGate

    async def CreateTopic(self, request: pb.CreateTopicRequest, _: object) -> pb.CreateTopicResponse:
        """Create a topic. Answers when it is as durable as an acknowledged append, as the two changes below do."""
        topic = await self._leading.create(request.name, **_given(request))
        return pb.CreateTopicResponse(topic=self._topic(topic))

    async def UpdateTopic(self, request: pb.UpdateTopicRequest, _: object) -> pb.UpdateTopicResponse:
        """Change the values that the request names."""
        topic = await self._leading.update(request.name, **_given(request))
        return pb.UpdateTopicResponse(topic=self._topic(topic))

    async def GetTopic(self, request: pb.GetTopicRequest, _: object) -> pb.GetTopicResponse:
        """Return a topic. Only a leader answers that a topic does not exist: other logs may not have it yet."""
        try:
            topic = self._topics.get(request.name)
        except TopicNotFound:
            self._gate.check_leads()
            raise
        return pb.GetTopicResponse(topic=self._topic(topic))

    async def ListTopics(self, request: pb.ListTopicsRequest, _: object) -> pb.ListTopicsResponse:
        """Return a page of topics, by name."""
        size = size_of_page(request, "page_size", default=PAGE_SIZE_DEFAULT, most=PAGE_SIZE_MAX)
        token, arguments = request.page_token, (request.include_system,)
        last_name = decode_token(LIST, arguments, token, str) or ""
        found = self._topics.list_after(last_name, size + 1, include_system=request.include_system)
        page = found[:size]
        token = encode_token(LIST, arguments, page[-1].name) if len(found) > size else ""
        return pb.ListTopicsResponse(topics=[self._topic(topic) for topic in page], next_page_token=token)

    async def DeleteTopic(self, request: pb.DeleteTopicRequest, _: object) -> pb.DeleteTopicResponse:
        """Delete a topic."""
        await self._leading.delete(request.name)
        return pb.DeleteTopicResponse()

    @property
    def _leading(self) -> TopicChanges:
        """The topic changes. Raises NotLeader and Stopping."""
        self._gate.check_leads()
        self._gate.check_lease()
        return self._changes

    def _topic(self, topic: TopicConfig) -> pb.Topic:
        why = self._topics.set_apart.why(topic.name)
        queue_count = self._topics.queue_count(topic)
        return named(pb.Topic, topic, is_system=is_system_topic(topic.name), set_apart=why, queue_count=queue_count)


def _given(request: pb.CreateTopicRequest | pb.UpdateTopicRequest) -> dict[str, Any]:
    """Return the values of a topic that a request names."""
    return {field.name: value for field, value in request.ListFields() if field.name != "name"}
