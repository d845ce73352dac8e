# SPDX-License-Identifier: Apache-2.0
"""LogClient: the CommitLog as the engine's Log, over gRPC."""

from collections.abc import Sequence
from typing import Any

import grpc
from reput.commitlog.v1 import (
    append_service_pb2,
    append_service_pb2_grpc,
    log_service_pb2,
    log_service_pb2_grpc,
    topic_service_pb2,
    topic_service_pb2_grpc,
)
from reput.common.v1.message_pb2 import DURABILITY_MEMORY, DURABILITY_UNSPECIFIED

from libs.formats.state.system_topics import DELIVERY_QUEUE_ID, DELIVERY_TOPIC
from libs.runtime.rpc.errors import describe, error_info
from libs.runtime.rpc.peer import Connection
from services.delivery.engine.ports import DeadLetter, Written
from services.delivery.errors import JournalLost
from services.delivery.rpc.log.errors import errors_of

SERVICE = "commitlog"
APPEND_TIMEOUT_S = 30.0
"""Longer than the log waits for its disk: an answer that is given up means that the journal is read anew."""

DLQ_ORIGIN_TOPIC, DLQ_ORIGIN_MESSAGE_ID = "DLQ_ORIGIN_TOPIC", "DLQ_ORIGIN_MESSAGE_ID"
STORE_PROPERTIES = frozenset({"__CRC32#", "DELAY", "REAL_TOPIC", "REAL_QID"})
"""Of the stored message; the log would add them again, or take them as orders."""


class LogClient:
    """See the module."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._append: Any = append_service_pb2_grpc.AppendServiceStub(connection.channel)
        self._log: Any = log_service_pb2_grpc.LogServiceStub(connection.channel)
        self._topics: Any = topic_service_pb2_grpc.TopicServiceStub(connection.channel)

    async def write(self, body: bytes, letters: Sequence[DeadLetter], *, is_safe: bool) -> Written:
        """See Log."""
        own = append_service_pb2.AppendMessage(topic=DELIVERY_TOPIC, queue_id=DELIVERY_QUEUE_ID, body=body)
        request = append_service_pb2.AppendStateRequest(
            messages=[*map(_letter, letters), own], durability=DURABILITY_UNSPECIFIED if is_safe else DURABILITY_MEMORY
        )
        metadata = self._connection.metadata()
        with errors_of(SERVICE):
            try:
                response = await self._append.AppendState(request, timeout=APPEND_TIMEOUT_S, metadata=metadata)
            except grpc.aio.AioRpcError as error:
                if error_info(error).reason:
                    raise  # the log has told: nothing was stored
                raise JournalLost(f"nobody knows whether it was stored: {describe(error)}") from error
        result = response.result
        return Written(result.queue_offsets[-1], result.physical_offsets[-1])

    async def active_segment(self) -> int:
        """See Log."""
        with errors_of(SERVICE):
            status = await self._log.GetStatus(log_service_pb2.GetStatusRequest(), **self._connection.options())
        return int(status.max_physical_offset // status.segment_size_bytes * status.segment_size_bytes)

    async def queue_count(self, topic: str) -> int:
        """See Log."""
        request = topic_service_pb2.GetTopicRequest(name=topic)
        with errors_of(SERVICE):
            found = await self._topics.GetTopic(request, **self._connection.options())
        return int(found.topic.read_queue_count)


def _letter(letter: DeadLetter) -> append_service_pb2.AppendMessage:
    """Return a message for the dead letters: as it was, with what says where it came from."""
    stored = letter.found.message
    properties = {name: value for name, value in stored.properties.items() if name not in STORE_PROPERTIES}
    properties.setdefault(DLQ_ORIGIN_TOPIC, letter.origin_topic)
    properties.setdefault(DLQ_ORIGIN_MESSAGE_ID, properties.get("UNIQ_KEY") or stored.offset_message_id)
    return append_service_pb2.AppendMessage(
        topic=letter.topic,
        body=stored.body,
        properties=properties,
        flag=stored.flag,
        sys_flag=stored.sys_flag,
        born_time_ms=stored.born_time_ms,
        born_host=stored.born_host,
        reconsume_times=stored.reconsume_times,
    )
