# SPDX-License-Identifier: Apache-2.0
"""HalfClient: implements HalfIndex, the two topics of transactions, over gRPC."""

import logging
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from google.protobuf.duration import from_milliseconds
from reput.common.v1.message_pb2 import StoredMessage
from reput.indexer.v1 import (
    index_service_pb2,
    index_service_pb2_grpc,
    query_service_pb2,
    query_service_pb2_grpc,
    queue_service_pb2,
    queue_service_pb2_grpc,
)

from libs.formats.errors import FormatError
from libs.formats.records.transaction_record import (
    HALF_QUEUE_ID,
    OP_QUEUE_ID,
    RENEWED,
    TRANSACTION_GROUP,
    Ended,
    Half,
    ended_of,
    half_of,
)
from libs.formats.state.system_topics import HALF_TOPIC, OP_TOPIC
from libs.runtime.rpc.peer import Connection
from services.delivery.engine.ports.halves import Ends, Halves
from services.delivery.engine.ports.index import Index
from services.delivery.rpc.log.errors import errors_of

SERVICE = "indexer"
COUNT, SIZE_BYTES = 256, 1 << 20
ENDED_COUNT, ENDED_SIZE_BYTES = 1_000, 1 << 20
LOOK_COUNT = 64
"""Records of a transaction that a look-up reads: each check renews the transaction."""

T = TypeVar("T")

_log = logging.getLogger(__name__)


class HalfClient:
    """The client of the Indexer for the two topics of transactions. See HalfIndex."""

    def __init__(self, connection: Connection, index: Index) -> None:
        self._connection, self._index = connection, index
        self._queues: Any = queue_service_pb2_grpc.QueueServiceStub(connection.channel)
        self._queries: Any = query_service_pb2_grpc.QueryServiceStub(connection.channel)
        self._status: Any = index_service_pb2_grpc.IndexServiceStub(connection.channel)

    async def halves(self, queue_offset: int, *, wait_s: float) -> Halves:
        """See HalfIndex."""
        answer = await self._pull(HALF_TOPIC, HALF_QUEUE_ID, queue_offset, COUNT, SIZE_BYTES, wait_s)
        return Halves(_read(answer.messages, _half), answer.next_queue_offset, answer.max_queue_offset)

    async def ends(self, queue_offset: int) -> Ends:
        """See HalfIndex."""
        answer = await self._pull(OP_TOPIC, OP_QUEUE_ID, queue_offset, ENDED_COUNT, ENDED_SIZE_BYTES, 0)
        return Ends(_read(answer.messages, _ended), answer.next_queue_offset, answer.max_queue_offset)

    async def message(self, half: Half) -> StoredMessage | None:
        """See HalfIndex."""
        answer = await self._pull(HALF_TOPIC, HALF_QUEUE_ID, half.queue_offset, 1, SIZE_BYTES, 0)
        found: StoredMessage | None = next(iter(answer.messages), None)
        return found if found is not None and found.queue_offset == half.queue_offset else None

    async def how_ended(self, name: str) -> str | None:
        """See HalfIndex."""
        request = query_service_pb2.QueryByKeyRequest(topic=OP_TOPIC, key=name, page_size=LOOK_COUNT)
        with errors_of(SERVICE):
            answer = await self._queries.QueryByKey(request, **self._connection.options())
        said = [one for one in _read(answer.messages, _ended) if name in one.ids and one.how != RENEWED]
        return said[0].how if said else None

    async def half_end(self) -> int:
        """See HalfIndex."""
        bounds = await self._index.bounds(HALF_TOPIC)
        return bounds.get(HALF_QUEUE_ID, (0, 0))[1]

    async def indexed(self) -> int:
        """See HalfIndex."""
        request = index_service_pb2.GetStatusRequest()
        with errors_of(SERVICE):
            status = await self._status.GetStatus(request, **self._connection.options())
        return int(status.indexed_physical_offset)

    async def floors(self) -> tuple[int, int]:
        """See HalfIndex."""
        half = await self._index.stored_offset(TRANSACTION_GROUP, HALF_TOPIC, HALF_QUEUE_ID)
        ended = await self._index.stored_offset(TRANSACTION_GROUP, OP_TOPIC, OP_QUEUE_ID)
        return half or 0, ended or 0

    async def store_floors(self, half_offset: int, ended_offset: int) -> None:
        """See HalfIndex."""
        offsets = {(HALF_TOPIC, HALF_QUEUE_ID): half_offset, (OP_TOPIC, OP_QUEUE_ID): ended_offset}
        await self._index.store_offsets(TRANSACTION_GROUP, offsets)

    async def _pull(
        self, topic: str, queue_id: int, queue_offset: int, count: int, size_bytes: int, wait_s: float
    ) -> queue_service_pb2.PullResponse:
        request = queue_service_pb2.PullRequest(
            topic=topic,
            queue_id=queue_id,
            queue_offset=queue_offset,
            message_count_max=count,
            size_bytes_max=size_bytes,
            wait=from_milliseconds(round(wait_s * 1000)),
        )
        timeout_s, metadata = self._connection.timeout_s + wait_s, self._connection.metadata()
        with errors_of(SERVICE):
            answer: queue_service_pb2.PullResponse = await self._queues.Pull(
                request, timeout=timeout_s, metadata=metadata
            )
        return answer


def _read(messages: Sequence[StoredMessage], read: Callable[[StoredMessage], T]) -> list[T]:
    """Return the decoded records. Records that can't be decoded are skipped and logged."""
    found: list[T] = []
    for message in messages:
        try:
            found.append(read(message))
        except FormatError as error:
            _log.error("record %d of %s is stepped over: %s", message.queue_offset, message.topic, error)
    return found


def _half(message: StoredMessage) -> Half:
    return half_of(
        message.properties,
        queue_offset=message.queue_offset,
        physical_offset=message.physical_offset,
        store_time_ms=message.store_time_ms,
        size_bytes=message.record_size_bytes,
        offset_id=message.offset_message_id,
    )


def _ended(message: StoredMessage) -> Ended:
    return ended_of(message.body, message.properties, queue_offset=message.queue_offset)
