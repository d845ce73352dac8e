# SPDX-License-Identifier: Apache-2.0
"""LogRecords: the CommitLog's ReadRecords and GetTopic as the engine's RecordSource, over a long-lived channel."""

from typing import Any

import numpy as np
from numpy.typing import NDArray
from reput.commitlog.v1 import log_service_pb2 as messages
from reput.commitlog.v1 import topic_service_pb2 as topic_messages
from reput.commitlog.v1 import topic_service_pb2_grpc

from libs.formats import fields
from libs.formats.limits import READ_COUNT_MAX
from libs.formats.protobuf_wire import int_field, length_delimited
from libs.requests.errors import DependencyUnavailable, LogFollows, TopicNotFound
from libs.runtime.peer.calls import PeerClient
from libs.runtime.peer.connection import Connection
from services.indexer.engine.log.source import RecordBlock
from services.indexer.rpc.log.errors import ERRORS, SERVICE
from services.indexer.rpc.log.tail import LOG_SERVICE


class LogRecords:
    """The RecordSource over gRPC."""

    def __init__(self, log: Connection) -> None:
        self._log = PeerClient(SERVICE, log, ERRORS)
        self._read: Any = log.channel.unary_unary(
            LOG_SERVICE + "ReadRecords", response_deserializer=messages.ReadRecordsResponse.FromString
        )
        self._get_topic = topic_service_pb2_grpc.TopicServiceStub(log.channel).GetTopic

    async def has_topic(self, topic: str) -> bool:
        """See RecordSource."""
        try:
            await self._log.call(self._get_topic, topic_messages.GetTopicRequest(name=topic))
        except (TopicNotFound, LogFollows):  # only the topics of the log beside this Indexer matter here
            return False
        return True

    async def read(
        self, physical_offsets: NDArray[np.int64], record_sizes: NDArray[np.int32] | None = None
    ) -> RecordBlock:
        """See RecordSource."""
        offsets = physical_offsets[:READ_COUNT_MAX]
        assert len(offsets)
        request = length_delimited(fields.READ_RECORDS_REQUEST_PHYSICAL_OFFSETS, offsets.astype("<i8").tobytes())
        if record_sizes is not None:
            request += length_delimited(
                fields.READ_RECORDS_REQUEST_RECORD_SIZES_BYTES, record_sizes[:READ_COUNT_MAX].astype("<i4").tobytes()
            )
        request += int_field(fields.READ_RECORDS_REQUEST_VIEW, messages.RECORD_VIEW_RAW)
        response = await self._log.call(self._read, request)
        sizes = np.array(response.record_sizes_bytes, np.int32)
        ends = np.cumsum(sizes, dtype=np.int64)
        if not 0 < len(sizes) <= len(offsets) or sizes.min() < 0 or ends[-1] != len(response.records):
            raise DependencyUnavailable(SERVICE, "an answer with records contradicts itself")
        return RecordBlock(response.records, ends - sizes, sizes, response.min_physical_offset)
