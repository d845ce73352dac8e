# SPDX-License-Identifier: Apache-2.0
"""LogClient: implements the engine's Log by the CommitLog, over gRPC."""

from collections.abc import Sequence

from msgspec.structs import replace
from reput.commitlog.v1 import (
    append_service_pb2,
    append_service_pb2_grpc,
    log_service_pb2,
    log_service_pb2_grpc,
    topic_service_pb2,
    topic_service_pb2_grpc,
)
from reput.common.v1.message_pb2 import DURABILITY_MEMORY, DURABILITY_UNSPECIFIED

from libs.formats.limits import INT64_MAX
from libs.formats.names import is_topic
from libs.formats.records.delivery_record import DeliveryRecord
from libs.formats.state.system_topics import DELIVERY_QUEUE_ID, DELIVERY_TOPIC, is_system_topic
from libs.requests.durable import until_durable
from libs.requests.errors import NotDurableYet, PeerError, TopicNotFound
from libs.runtime.peer.calls import PeerClient, PeerErrors, by_reason
from libs.runtime.peer.connection import Connection
from libs.runtime.rpc.topic_shares import share_of
from services.delivery.engine.ports.log import TopicQueues
from services.delivery.engine.ports.messages import JournaledMessage, Written
from services.delivery.errors import AppendRefused, JournalLost, JournalNotDurable
from services.delivery.rpc.log.errors import ERRORS
from services.delivery.rpc.log.letters import message_of

SERVICE = "commitlog"
APPEND_TIMEOUT_S = 30.0
"""Longer than the log waits for its disk: an answer that is given up means that the journal is read anew."""

NEVER = frozenset(
    {
        "BAD_ARGUMENT",
        "BAD_PROPERTIES",
        "BAD_TOPIC_NAME",
        "BATCH_TOO_LARGE",
        "MESSAGE_TOO_LARGE",
        "PROPERTIES_TOO_LARGE",
        "QUEUE_OUT_OF_RANGE",
        "TOPIC_FORBIDDEN",
        "TOPIC_NOT_FOUND",
        "TOPIC_SET_APART",
    }
)
"""Reasons that lie in the messages: the log refuses these messages each time."""

OTHERS = frozenset({"WRITER_CONTENT_DIFFERS", "WRITER_FORGOTTEN", "WRITER_SEQUENCE_GAP"})
"""Reasons that lie in the number of a record: another process writes the journal."""

WRITE_ERRORS: PeerErrors = {
    **ERRORS,
    **dict.fromkeys(NEVER, lambda error: AppendRefused(f"{error.reason}: {error.text}")),
    **dict.fromkeys(OTHERS, lambda error: JournalLost(f"another process wrote the journal: {error.text}")),
    "": lambda error: JournalLost(f"nobody knows whether it was stored: {error.line}"),
}
"""With every other reason the log has told that nothing was stored."""

EMPTY = DeliveryRecord(owner="", events=()).encode()


class LogClient:
    """The client of the CommitLog. See Log."""

    def __init__(self, connection: Connection) -> None:
        self._log = PeerClient(SERVICE, connection, ERRORS)
        self._appends = PeerClient(SERVICE, replace(connection, timeout_s=APPEND_TIMEOUT_S))
        self._append = append_service_pb2_grpc.AppendServiceStub(connection.channel)
        self._status = log_service_pb2_grpc.LogServiceStub(connection.channel)
        self._topics = topic_service_pb2_grpc.TopicServiceStub(connection.channel)

    async def next_number(self) -> int:
        """See Log. The log names the next number when it refuses a number that no record has."""
        request = _request(INT64_MAX - 1, b"", (), is_safe=False)
        with by_reason(ERRORS):
            try:
                await self._append_state(request)
            except PeerError as error:
                if error.reason == "WRITER_SEQUENCE_GAP":
                    return int(error.metadata["expected"])
                if error.reason == "WRITER_FORGOTTEN":  # the journal has no record, or had none for very long
                    return 0
                raise
        raise AssertionError("the log has taken a number that is far from the next one")

    async def write(self, number: int, body: bytes, letters: Sequence[JournaledMessage], *, is_safe: bool) -> Written:
        """See Log."""
        request = _request(number, body, letters, is_safe=is_safe)
        with by_reason(WRITE_ERRORS):
            try:
                result = await until_durable(lambda: self._append_state(request), is_repeatable=True)
            except NotDurableYet as error:
                raise JournalNotDurable(str(error)) from error
        place = result.queue_offsets[-1], result.physical_offsets[-1]
        return Written(*place, result.store_time_ms, result.store_time_ahead_ms)

    async def _append_state(self, request: append_service_pb2.AppendStateRequest) -> append_service_pb2.AppendResult:
        return (await self._appends.call(self._append.AppendState, request)).result

    async def active_segment(self) -> int:
        """See Log."""
        status = await self._log.call(self._status.GetStatus, log_service_pb2.GetStatusRequest())
        if status.HasField("following"):  # another process may have changed the state since
            raise JournalLost("the log follows another one")
        return status.max_physical_offset // status.segment_size_bytes * status.segment_size_bytes

    async def ahead_ms(self) -> int:
        """See Log."""
        status = await self._log.call(self._status.GetStatus, log_service_pb2.GetStatusRequest())
        return status.store_time_ahead_ms

    async def end_offset(self) -> int:
        """See Log."""
        status = await self._log.call(self._status.GetStatus, log_service_pb2.GetStatusRequest())
        return status.max_physical_offset

    async def topic_queues(self, topic: str) -> TopicQueues:
        """See Log."""
        found = await self._topic(topic)
        if not found.HasField("share"):  # a log of an older version answers only with read_queue_count
            return TopicQueues(range(max(found.queue_count, found.read_queue_count)))
        share = share_of(found.share)
        queues = share.queues
        return TopicQueues(
            [queue.queue_id for queue in queues],
            frozenset(queue.queue_id for queue in queues if queue.is_sealed),
            {queue.queue_id: queue.parents for queue in queues if queue.parents},
            share.version,
        )

    async def refusal(self, topic: str) -> str:
        """See Log."""
        if not is_topic(topic) or is_system_topic(topic):
            return f"{topic} is no topic of clients"
        try:
            found = await self._topic(topic)
        except TopicNotFound as error:
            return str(error)
        if found.set_apart:
            return f"{topic} ({found.set_apart}) is RocketMQ's alone"
        return "" if found.is_writable else f"topic {topic} is not writable"

    async def _topic(self, name: str) -> topic_service_pb2.Topic:
        request = topic_service_pb2.GetTopicRequest(name=name)
        return (await self._log.call(self._topics.GetTopic, request)).topic


def _request(
    number: int, body: bytes, letters: Sequence[JournaledMessage], *, is_safe: bool
) -> append_service_pb2.AppendStateRequest:
    """Return the request for a record of the journal, as the batch `number` of the journal's single writer.

    The record is the last of the batch, so that the log never has it without the messages, also if it is truncated. An
    empty record before the messages has the stamp, which would be a property of the first message otherwise.
    """
    own = append_service_pb2.AppendMessage(topic=DELIVERY_TOPIC, queue_id=DELIVERY_QUEUE_ID, body=body)
    first = append_service_pb2.AppendMessage(topic=DELIVERY_TOPIC, queue_id=DELIVERY_QUEUE_ID, body=EMPTY)
    return append_service_pb2.AppendStateRequest(
        messages=[*([first] if letters else ()), *map(message_of, letters), own],
        durability=DURABILITY_UNSPECIFIED if is_safe else DURABILITY_MEMORY,
        writer=append_service_pb2.Writer(id=DELIVERY_TOPIC, sequence=number),
    )
