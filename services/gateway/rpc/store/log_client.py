# SPDX-License-Identifier: Apache-2.0
"""LogClient: the gateway's calls to the CommitLog."""

import hashlib
from collections.abc import Sequence

from reput.commitlog.v1 import (
    append_service_pb2,
    append_service_pb2_grpc,
    log_service_pb2,
    log_service_pb2_grpc,
    topic_service_pb2,
    topic_service_pb2_grpc,
)
from reput.common.v1.message_pb2 import DURABILITY_LOCAL_DISK

from libs.machine.clock import Clock
from libs.requests.durable import until_durable
from libs.requests.errors import NotDurableYet, PeerError
from libs.runtime.peer.leader import LeaderClient
from services.gateway.engine.known_topics import KnownTopics
from services.gateway.engine.names import is_of_group
from services.gateway.engine.shared_calls import SharedCalls
from services.gateway.errors import Refused
from services.gateway.rpc.store.ports import BROKER, Sent, TopicQueues

_Append = append_service_pb2_grpc.AppendServiceStub
_Log = log_service_pb2_grpc.LogServiceStub
_Topics = topic_service_pb2_grpc.TopicServiceStub


PASSING = frozenset({"NOT_ENOUGH_REPLICAS", "WINDOW_FULL", "NOT_LEADER", "RECOVERING"})
"""Reasons after which an append with a writer id may be retried a moment later."""


BATCH_COUNT_MAX = 1_024
"""Messages of several callers that share a batch."""

REFUSALS = frozenset({"INVALID_ARGUMENT", "NOT_FOUND", "FAILED_PRECONDITION", "PERMISSION_DENIED"})
"""Codes with which the log refuses a batch because of its messages, and stores none of them."""


class LogClient:
    """The client of the CommitLog. All calls raise PeerError."""

    def __init__(self, log: LeaderClient, clock: Clock, *, creates_topics: bool, is_once: bool = False) -> None:
        self._log, self.creates_topics, self._is_once = log, creates_topics, is_once
        self._known = KnownTopics(clock)
        self._appends = SharedCalls[append_service_pb2.AppendMessage, int](
            self._append,
            entry_count_max=BATCH_COUNT_MAX,
            size_of=append_service_pb2.AppendMessage.ByteSize,
            may_be_split=_is_refusal,
        )

    async def send(self, messages: Sequence[append_service_pb2.AppendMessage]) -> Sequence[Sent]:
        """Append messages of a topic. Returns where they are. See `append`."""
        return [Sent("", offset) for offset in await self.append(messages)]

    async def append(self, messages: Sequence[append_service_pb2.AppendMessage]) -> Sequence[int]:
        """Append messages with the durability that the store promises. Returns their queue offsets.

        The messages of several callers may share a batch; if the log refuses the batch, each caller's messages are a
        batch of their own. With `is_once` a message whose id the store has already is not stored again. Raises Refused,
        too, for messages that are stored with less durability: a failover may lose them, so their producer has to send
        them again.
        """
        await self._expect(messages[0].topic)
        if self._is_once and len(messages) == 1:
            return await self._append(messages, writer_id=once_id(messages[0]))
        return await self._appends.outcomes(messages)

    async def _append(self, messages: Sequence[append_service_pb2.AppendMessage], writer_id: str = "") -> Sequence[int]:
        """Append messages as a batch."""
        request = append_service_pb2.AppendRequest(messages=messages)
        if writer_id:
            request.writer.id = writer_id

        async def append() -> append_service_pb2.AppendResult:
            result: append_service_pb2.AppendResult = (await self._log.call(_Append, "Append", request)).result
            return result

        try:
            result = await until_durable(
                append,
                is_repeatable=request.HasField("writer"),
                is_passing=_is_passing,
                describe=str,
                within_s=self._log.timeout_s,
            )
        except NotDurableYet as error:
            raise Refused(_late_code(error.durability), str(error)) from error
        return [await self._first_offset(result)] if result.is_repeated else result.queue_offsets

    async def _first_offset(self, result: append_service_pb2.AppendResult) -> int:
        """Return the queue offset of a message that was stored before, 0 if it is deleted."""
        request = log_service_pb2.ReadRecordsRequest(physical_offsets=[result.start_physical_offset])
        found = await self._log.call(_Log, "ReadRecords", request)
        return next((message.queue_offset for message in found.messages), 0)

    async def queues(self, name: str) -> TopicQueues:
        """Return a topic with its queues.

        A missing topic is created if the settings say so and it is no topic of a group.
        """
        try:
            topic = await self.get(name)
        except PeerError as error:
            if error.reason != "TOPIC_NOT_FOUND" or not self.creates_topics or is_of_group(name):
                raise
            topic = await self.create(topic_service_pb2.CreateTopicRequest(name=name))
        return TopicQueues(topic, {BROKER: range(queue_count_of(topic))})

    async def create(self, request: topic_service_pb2.CreateTopicRequest) -> topic_service_pb2.Topic:
        """Create a topic, and return it, also if another caller was first."""
        try:
            created = await self._log.call(_Topics, "CreateTopic", request)
        except PeerError as error:
            if error.reason != "TOPIC_EXISTS":
                raise
            return await self.get(request.name)
        topic: topic_service_pb2.Topic = created.topic
        return topic

    async def _expect(self, name: str) -> None:
        """Return if messages may be sent to a topic: the CommitLog creates topics by its own settings."""
        if not self.creates_topics and not self._known.is_known(name):
            await self.get(name)

    async def get(self, name: str) -> topic_service_pb2.Topic:
        """Return a topic."""
        response = await self._log.call(_Topics, "GetTopic", topic_service_pb2.GetTopicRequest(name=name))
        self._known.note(name)
        topic: topic_service_pb2.Topic = response.topic
        return topic


def queue_count_of(topic: topic_service_pb2.Topic) -> int:
    """Return the number of queues that clients see."""
    return max(topic.queue_count, topic.read_queue_count, topic.write_queue_count)


def _is_refusal(error: Exception) -> bool:
    return isinstance(error, PeerError) and error.code in REFUSALS and error.reason not in PASSING


def _is_passing(error: Exception) -> bool:
    return isinstance(error, PeerError) and error.reason in PASSING


def _late_code(durability: int) -> str:
    """Return RocketMQ's code for a stored message that is late on the leader's disk, or on the disk of a follower."""
    is_on_disk = durability >= DURABILITY_LOCAL_DISK
    return "SLAVE_PERSISTENCE_TIMEOUT" if is_on_disk else "MASTER_PERSISTENCE_TIMEOUT"


def once_id(message: append_service_pb2.AppendMessage) -> str:
    """Return the writer id for an append of a single message, made from its topic and its message id."""
    name = f"{message.topic}\0{message.properties['UNIQ_KEY']}"
    return "once/" + hashlib.sha256(name.encode()).hexdigest()
