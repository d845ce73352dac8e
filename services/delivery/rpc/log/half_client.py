# SPDX-License-Identifier: Apache-2.0
"""HalfClient: implements HalfIndex, the two topics of transactions, over gRPC."""

import logging
from collections.abc import Callable, Sequence
from typing import TypeVar

from reput.common.v1.message_pb2 import StoredMessage
from reput.indexer.v1 import (
    index_service_pb2,
    index_service_pb2_grpc,
    query_service_pb2,
    query_service_pb2_grpc,
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
from libs.runtime.peer.calls import PeerClient
from libs.runtime.peer.connection import Connection
from services.delivery.engine.ports.messages import Read
from services.delivery.rpc.log.errors import ERRORS
from services.delivery.rpc.log.index_client import IndexClient
from services.delivery.rpc.log.stored import INDEXER, read_of

COUNT, SIZE_BYTES = 256, 1 << 20
ENDED_COUNT, ENDED_SIZE_BYTES = 1_000, 1 << 20
LOOK_COUNT = 64
"""Records of a transaction that a look-up reads: each check renews the transaction."""

T = TypeVar("T")

_log = logging.getLogger(__name__)


class HalfClient:
    """The client of the Indexer for the two topics of transactions. See HalfIndex."""

    def __init__(self, connection: Connection, index: IndexClient) -> None:
        self._indexer, self._index = PeerClient(INDEXER, connection, ERRORS), index
        self._queries = query_service_pb2_grpc.QueryServiceStub(connection.channel)
        self._status = index_service_pb2_grpc.IndexServiceStub(connection.channel)

    async def halves(self, queue_offset: int, *, wait_s: float) -> Read[Half]:
        """See HalfIndex."""
        place = HALF_TOPIC, HALF_QUEUE_ID, queue_offset
        answer = await self._index.read(*place, count=COUNT, size_bytes=SIZE_BYTES, wait_s=wait_s)
        return read_of(answer, _read(answer.messages, _half))

    async def ends(self, queue_offset: int) -> Read[Ended]:
        """See HalfIndex."""
        place = OP_TOPIC, OP_QUEUE_ID, queue_offset
        answer = await self._index.read(*place, count=ENDED_COUNT, size_bytes=ENDED_SIZE_BYTES)
        return read_of(answer, _read(answer.messages, _ended))

    async def message(self, half: Half) -> StoredMessage | None:
        """See HalfIndex."""
        place = HALF_TOPIC, HALF_QUEUE_ID, half.queue_offset
        answer = await self._index.read(*place, count=1, size_bytes=SIZE_BYTES)
        found = next(iter(answer.messages), None)
        return found if found is not None and found.queue_offset == half.queue_offset else None

    async def how_ended(self, name: str) -> str | None:
        """See HalfIndex."""
        request = query_service_pb2.QueryByKeyRequest(topic=OP_TOPIC, key=name, page_size=LOOK_COUNT)
        answer = await self._indexer.call(self._queries.QueryByKey, request)
        said = [one for one in _read(answer.messages, _ended) if name in one.ids and one.how != RENEWED]
        return said[0].how if said else None

    async def half_end(self) -> int:
        """See HalfIndex."""
        bounds = await self._index.bounds(HALF_TOPIC)
        return bounds.get(HALF_QUEUE_ID, (0, 0))[1]

    async def indexed(self) -> int:
        """See HalfIndex."""
        status = await self._indexer.call(self._status.GetStatus, index_service_pb2.GetStatusRequest())
        return status.indexed_physical_offset

    async def floors(self) -> tuple[int, int]:
        """See HalfIndex."""
        half = await self._index.stored_offset(TRANSACTION_GROUP, HALF_TOPIC, HALF_QUEUE_ID)
        ended = await self._index.stored_offset(TRANSACTION_GROUP, OP_TOPIC, OP_QUEUE_ID)
        return half or 0, ended or 0

    async def store_floors(self, half_offset: int, ended_offset: int) -> None:
        """See HalfIndex."""
        offsets = {(HALF_TOPIC, HALF_QUEUE_ID): half_offset, (OP_TOPIC, OP_QUEUE_ID): ended_offset}
        await self._index.store_offsets(TRANSACTION_GROUP, offsets)


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
