# SPDX-License-Identifier: Apache-2.0
"""TimerClient: implements the engine's TimerIndex, the timer topic, over gRPC."""

import re
from collections.abc import Sequence
from typing import Any

import grpc
from google.protobuf.duration import from_milliseconds
from reput.commitlog.v1 import log_service_pb2, log_service_pb2_grpc
from reput.common.v1.message_pb2 import StoredMessage
from reput.indexer.v1 import query_service_pb2, query_service_pb2_grpc, queue_service_pb2, queue_service_pb2_grpc

from libs.formats.records import timed as timed_record
from libs.formats.records.message_id import OFFSET_ID_IPV4_DIGIT_COUNT, OFFSET_ID_IPV6_DIGIT_COUNT
from libs.formats.state.system_topics import TIMER_TOPIC
from libs.runtime.rpc.peer import Connection
from services.delivery.engine.ports.index import Index
from services.delivery.engine.ports.timers import Timed, TimedRead
from services.delivery.rpc.log.errors import errors_of

LOG, INDEXER = "commitlog", "indexer"
COUNT, SIZE_BYTES = 1_000, 1 << 20
KEY_PAGE_SIZE = 1_024
LOOK_COUNT = 64
"""The newest messages of an id; among these, a message that RocketMQ delivered is looked for."""
NO_SUCH_ID = {grpc.StatusCode.NOT_FOUND, grpc.StatusCode.INVALID_ARGUMENT, grpc.StatusCode.OUT_OF_RANGE}
"""Unique ids may look like offset ids, and name any place."""
OFFSET_ID = re.compile(rf"[0-9A-Fa-f]{{{OFFSET_ID_IPV4_DIGIT_COUNT}}}|[0-9A-Fa-f]{{{OFFSET_ID_IPV6_DIGIT_COUNT}}}")


class TimerClient:
    """The client of the CommitLog and the Indexer for the timer topic. See TimerIndex."""

    def __init__(self, log: Connection, indexer: Connection, index: Index) -> None:
        self._log_connection, self._connection, self._index = log, indexer, index
        self._log: Any = log_service_pb2_grpc.LogServiceStub(log.channel)
        self._queues: Any = queue_service_pb2_grpc.QueueServiceStub(indexer.channel)
        self._queries: Any = query_service_pb2_grpc.QueryServiceStub(indexer.channel)

    async def waiting(self, queue_offset: int, *, wait_s: float) -> TimedRead:
        """See TimerIndex."""
        request = queue_service_pb2.PullRequest(
            topic=TIMER_TOPIC,
            queue_offset=queue_offset,
            message_count_max=COUNT,
            size_bytes_max=SIZE_BYTES,
            wait=from_milliseconds(round(wait_s * 1000)),
        )
        timeout_s, metadata = self._connection.timeout_s + wait_s, self._connection.metadata()
        with errors_of(INDEXER):
            answer = await self._queues.Pull(request, timeout=timeout_s, metadata=metadata)
        return TimedRead([_timed(one) for one in answer.messages], answer.next_queue_offset, answer.min_queue_offset)

    async def read(self, physical_offsets: Sequence[int]) -> list[Timed | None]:
        """See TimerIndex."""
        if not physical_offsets:
            return []
        request = log_service_pb2.ReadRecordsRequest(
            physical_offsets=physical_offsets, view=log_service_pb2.RECORD_VIEW_MESSAGES
        )
        with errors_of(LOG):
            answer = await self._log.ReadRecords(request, **self._log_connection.options())
        messages = iter(answer.messages)
        return [_timed(next(messages)) if size else None for size in answer.record_sizes_bytes]

    async def by_id(self, topic: str, unique_id: str) -> tuple[list[Timed], int]:
        """See TimerIndex."""
        request = query_service_pb2.QueryByKeyRequest(topic=TIMER_TOPIC, key=unique_id, page_size=KEY_PAGE_SIZE)
        with errors_of(INDEXER):
            answer = await self._queries.QueryByKey(request, **self._connection.options())
        found = {one.physical_offset: one for one in answer.messages}
        if OFFSET_ID.fullmatch(unique_id) and (one := await self._by_offset_id(unique_id)) is not None:
            found[one.physical_offset] = one
        timed = [_timed(found[physical_offset]) for physical_offset in sorted(found, reverse=True)]
        return [one for one in timed if topic in ("", one.topic)], answer.indexed_physical_offset

    async def is_delivered(self, timed: Timed) -> bool:
        """See TimerIndex."""
        if timed_record.UNIQUE_ID not in timed.message.properties:
            return False
        request = query_service_pb2.QueryByKeyRequest(topic=timed.topic, key=timed.unique_id, page_size=LOOK_COUNT)
        with errors_of(INDEXER):
            answer = await self._queries.QueryByKey(request, **self._connection.options())
        return any(
            one.physical_offset > timed.physical_offset
            and timed_record.DEQUEUED_MS in one.properties
            and one.properties.get(timed_record.OUT_MS) == timed.out
            for one in answer.messages
        )

    async def stored_before(self, time_ms: int) -> int:
        """See TimerIndex."""
        return await self._index.offset_at(TIMER_TOPIC, 0, time_ms)

    async def log_bounds(self) -> tuple[int, int, int]:
        """See TimerIndex."""
        with errors_of(LOG):
            request = log_service_pb2.GetStatusRequest()
            status = await self._log.GetStatus(request, **self._log_connection.options())
        return status.min_physical_offset, status.max_physical_offset, status.segment_size_bytes

    async def _by_offset_id(self, message_id: str) -> StoredMessage | None:
        request = query_service_pb2.QueryByIdRequest(message_id=message_id)
        with errors_of(INDEXER):
            try:
                answer = await self._queries.QueryById(request, **self._connection.options())
            except grpc.aio.AioRpcError as error:
                if error.code() in NO_SUCH_ID:
                    return None
                raise
        found: StoredMessage = answer.message
        return found if found.topic == TIMER_TOPIC else None


def _timed(message: StoredMessage) -> Timed:
    properties = message.properties
    queue_id = properties.get(timed_record.REAL_QUEUE_ID, "")
    return Timed(
        queue_offset=message.queue_offset,
        physical_offset=message.physical_offset,
        size_bytes=message.record_size_bytes,
        due_ms=timed_record.due_ms(properties, message.store_time_ms),
        topic=properties.get(timed_record.REAL_TOPIC, ""),
        queue_id=int(queue_id) if queue_id.isascii() and queue_id.isdigit() else 0,
        unique_id=properties.get(timed_record.UNIQUE_ID) or message.offset_message_id,
        deletes=properties.get(timed_record.DELETE, ""),
        is_cancelled=timed_record.CANCELLED in properties,
        out=properties.get(timed_record.OUT_MS, ""),
        is_rolled_by_rocketmq=timed_record.DEQUEUED_MS in properties,
        message=message,
        is_by_clock=timed_record.is_by_clock(properties),
    )
