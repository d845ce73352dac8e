# SPDX-License-Identifier: Apache-2.0
"""LogClient: the CommitLog, as far as the gateway needs it."""

from collections.abc import Sequence
from typing import Any

from reput.commitlog.v1 import (
    append_service_pb2,
    append_service_pb2_grpc,
    topic_service_pb2,
    topic_service_pb2_grpc,
)

from libs.runtime.rpc.peer import Connection
from services.gateway.errors import PeerRefused
from services.gateway.rpc.store.errors import errors_of

SERVICE = "commitlog"


class LogClient:
    """All calls raise PeerRefused."""

    def __init__(self, connection: Connection, *, creates_topics: bool) -> None:
        self._connection, self._creates_topics = connection, creates_topics
        self._append: Any = append_service_pb2_grpc.AppendServiceStub(connection.channel)
        self._topics: Any = topic_service_pb2_grpc.TopicServiceStub(connection.channel)

    async def append(self, messages: Sequence[append_service_pb2.AppendMessage]) -> Sequence[int]:
        """Store messages, as safely as the store does by itself. Returns their queue offsets."""
        request = append_service_pb2.AppendRequest(messages=messages)
        with errors_of(SERVICE):
            response = await self._append.Append(request, **self._connection.options())
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
            with errors_of(SERVICE):
                request = topic_service_pb2.CreateTopicRequest(name=name)
                created = await self._topics.CreateTopic(request, **self._connection.options())
        except PeerRefused as error:
            if error.reason != "TOPIC_EXISTS":
                raise
            return await self._get(name)
        topic: topic_service_pb2.Topic = created.topic
        return topic

    async def _get(self, name: str) -> topic_service_pb2.Topic:
        with errors_of(SERVICE):
            request = topic_service_pb2.GetTopicRequest(name=name)
            response = await self._topics.GetTopic(request, **self._connection.options())
        topic: topic_service_pb2.Topic = response.topic
        return topic
