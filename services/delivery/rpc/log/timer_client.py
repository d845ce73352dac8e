# SPDX-License-Identifier: Apache-2.0
"""TimerClient: implements the engine's TimerIndex, the timer topic, over gRPC."""

import re
from collections.abc import Sequence

from msgspec.structs import replace
from reput.commitlog.v1 import log_service_pb2, log_service_pb2_grpc
from reput.common.v1.message_pb2 import StoredMessage
from reput.indexer.v1 import query_service_pb2, query_service_pb2_grpc

from libs.formats.records import timed as timed_record
from libs.formats.records.message_id import OFFSET_ID_IPV4_DIGIT_COUNT, OFFSET_ID_IPV6_DIGIT_COUNT
from libs.formats.state.system_topics import TIMER_TOPIC
from libs.requests.errors import PeerError
from libs.runtime.peer.calls import PeerClient, by_reason
from libs.runtime.peer.connection import Connection
from services.delivery.engine.ports.messages import Read
from services.delivery.engine.ports.timers import Timed
from services.delivery.rpc.log.errors import ERRORS
from services.delivery.rpc.log.index_client import IndexClient
from services.delivery.rpc.log.stored import INDEXER, read_of

LOG = "commitlog"
COUNT, SIZE_BYTES = 1_000, 1 << 20
KEY_PAGE_SIZE = 1_024
LOOK_COUNT = 64
"""The newest messages of an id; among these, a message that RocketMQ delivered is looked for."""
NO_SUCH_ID = {"NOT_FOUND", "INVALID_ARGUMENT", "OUT_OF_RANGE"}
"""Unique ids may look like offset ids, and name any place."""
OFFSET_ID = re.compile(rf"[0-9A-Fa-f]{{{OFFSET_ID_IPV4_DIGIT_COUNT}}}|[0-9A-Fa-f]{{{OFFSET_ID_IPV6_DIGIT_COUNT}}}")


class TimerClient:
    """The client of the CommitLog and the Indexer for the timer topic. See TimerIndex."""

    def __init__(self, log: Connection, indexer: Connection, index: IndexClient) -> None:
        self._log, self._indexer = PeerClient(LOG, log, ERRORS), PeerClient(INDEXER, indexer, ERRORS)
        self._index = index
        self._records = log_service_pb2_grpc.LogServiceStub(log.channel)
        self._queries = query_service_pb2_grpc.QueryServiceStub(indexer.channel)

    async def waiting(self, queue_offset: int, *, wait_s: float) -> Read[Timed]:
        """See TimerIndex."""
        place = TIMER_TOPIC, 0, queue_offset
        answer = await self._index.read(*place, count=COUNT, size_bytes=SIZE_BYTES, wait_s=wait_s)
        return read_of(answer, [_timed(one) for one in answer.messages])

    async def read(self, physical_offsets: Sequence[int]) -> list[Timed | None]:
        """See TimerIndex."""
        if not physical_offsets:
            return []
        request = log_service_pb2.ReadRecordsRequest(
            physical_offsets=physical_offsets, view=log_service_pb2.RECORD_VIEW_MESSAGES
        )
        answer = await self._log.call(self._records.ReadRecords, request)
        messages = iter(answer.messages)
        return [_timed(next(messages)) if size else None for size in answer.record_sizes_bytes]

    async def by_id(self, topic: str, unique_id: str) -> tuple[list[Timed], int]:
        """See TimerIndex."""
        request = query_service_pb2.QueryByKeyRequest(topic=TIMER_TOPIC, key=unique_id, page_size=KEY_PAGE_SIZE)
        answer = await self._indexer.call(self._queries.QueryByKey, request)
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
        answer = await self._indexer.call(self._queries.QueryByKey, request)
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
        status = await self._log.call(self._records.GetStatus, log_service_pb2.GetStatusRequest())
        return status.min_physical_offset, status.max_physical_offset, status.segment_size_bytes

    async def _by_offset_id(self, message_id: str) -> StoredMessage | None:
        request = query_service_pb2.QueryByIdRequest(message_id=message_id)
        with by_reason(ERRORS):
            try:
                answer = await replace(self._indexer, errors=None).call(self._queries.QueryById, request)
            except PeerError as error:
                if error.code in NO_SUCH_ID:
                    return None
                raise
        return answer.message if answer.message.topic == TIMER_TOPIC else None


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
