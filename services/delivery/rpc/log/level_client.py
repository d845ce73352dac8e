# SPDX-License-Identifier: Apache-2.0
"""LevelClient: implements the engine's LevelIndex, the schedule topic, by the Indexer, over gRPC."""

from reput.common.v1.message_pb2 import StoredMessage

from libs.formats.records.delay_level import SCHEDULE_TOPIC
from services.delivery.engine.ports.levels import Delayed
from services.delivery.engine.ports.messages import Read
from services.delivery.rpc.log.index_client import IndexClient
from services.delivery.rpc.log.letters import properties_of
from services.delivery.rpc.log.stored import read_of

COUNT, SIZE_BYTES = 512, 1 << 20
QUEUE_ID_DIGIT_COUNT_MAX = 9


class LevelClient:
    """The client of the Indexer for the schedule topic. See LevelIndex."""

    def __init__(self, index: IndexClient) -> None:
        self._index = index

    async def delayed(self, queue_id: int, queue_offset: int, *, wait_s: float) -> Read[Delayed]:
        """See LevelIndex."""
        place = SCHEDULE_TOPIC, queue_id, queue_offset
        answer = await self._index.read(*place, count=COUNT, size_bytes=SIZE_BYTES, wait_s=wait_s)
        return read_of(answer, [_delayed(message) for message in answer.messages])


def _delayed(message: StoredMessage) -> Delayed:
    properties = properties_of(message)
    queue_id = properties.get("REAL_QID", "")
    is_number = len(queue_id) <= QUEUE_ID_DIGIT_COUNT_MAX and queue_id.isascii() and queue_id.isdigit()
    return Delayed(
        queue_offset=message.queue_offset,
        size_bytes=message.record_size_bytes,
        store_time_ms=message.store_time_ms,
        topic=properties.get("REAL_TOPIC", ""),
        queue_id=int(queue_id) if is_number else None,
        message=message,
    )
