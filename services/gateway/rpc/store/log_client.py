# SPDX-License-Identifier: Apache-2.0
"""LogClient: the CommitLog, as far as the gateway needs it."""

from collections.abc import Sequence

from reput.commitlog.v1 import (
    append_service_pb2,
    append_service_pb2_grpc,
    topic_service_pb2,
    topic_service_pb2_grpc,
)

from services.gateway.errors import PeerRefused
from services.gateway.rpc.store.leading import Leading

_Append = append_service_pb2_grpc.AppendServiceStub
_Topics = topic_service_pb2_grpc.TopicServiceStub


class LogClient:
    """All calls raise PeerRefused."""

    def __init__(self, log: Leading, *, creates_topics: bool) -> None:
        self._log, self._creates_topics = log, creates_topics

    async def append(self, messages: Sequence[append_service_pb2.AppendMessage]) -> Sequence[int]:
        """Store messages, as safely as the store does by itself. Returns their queue offsets."""
        response = await self._log.call(_Append, "Append", append_service_pb2.AppendRequest(messages=messages))
        offsets: Sequence[int] = response.result.queue_offsets
        return offsets

    async def topic(self, name: str) -> topic_service_pb2.Topic:
        """Return a topic. One that nobody has made is made, if the settings say so."""
        try:
            return await self._get(name)
        except PeerRefused as error:
            if error.reason != "TOPIC_NOT_FOUND" or not self._creates_topics:
                raise
        try:
            created = await self._log.call(_Topics, "CreateTopic", topic_service_pb2.CreateTopicRequest(name=name))
        except PeerRefused as error:
            if error.reason != "TOPIC_EXISTS":
                raise
            return await self._get(name)
        topic: topic_service_pb2.Topic = created.topic
        return topic

    async def _get(self, name: str) -> topic_service_pb2.Topic:
        response = await self._log.call(_Topics, "GetTopic", topic_service_pb2.GetTopicRequest(name=name))
        topic: topic_service_pb2.Topic = response.topic
        return topic
