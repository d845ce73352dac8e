# SPDX-License-Identifier: Apache-2.0
"""LogAppender: the CommitLog's Append as the engine's LogSink, over the channel that the log is read with."""

import re
from typing import Any

import grpc
from reput.commitlog.v1 import append_service_pb2 as messages
from reput.commitlog.v1 import append_service_pb2_grpc
from reput.common.v1.message_pb2 import DURABILITY_LOCAL_DISK, Host

from libs.formats.records.record import Record
from libs.runtime.rpc.errors import error_info
from libs.runtime.rpc.peer import Connection
from services.indexer.engine.log.source import Appended
from services.indexer.errors import AppendRefused
from services.indexer.rpc.log.errors import commitlog_errors

REFUSALS = (grpc.StatusCode.INVALID_ARGUMENT, grpc.StatusCode.NOT_FOUND, grpc.StatusCode.PERMISSION_DENIED)
TIMEOUT_S = 30.0
"""Longer than the log waits for its disk: an answer that is given up means that the messages come twice."""

_MESSAGE = re.compile(r"messages\[([0-9]{1,9})\]", re.ASCII)


class LogAppender:
    """LogSink over gRPC."""

    def __init__(self, log: Connection) -> None:
        self._metadata = log.metadata
        self._append: Any = append_service_pb2_grpc.AppendServiceStub(log.channel).Append

    async def append(self, batch: list[Record], *, names_queue: bool) -> Appended:
        """See LogSink."""
        request = append_request(batch, names_queue=names_queue)
        with commitlog_errors():
            try:
                response = await self._append(request, timeout=TIMEOUT_S, metadata=self._metadata())
            except grpc.aio.AioRpcError as error:
                info = error_info(error)
                if error.code() not in REFUSALS or not info.reason:
                    raise
                index = _MESSAGE.match(info.metadata["field"])
                raise AppendRefused(
                    info.reason,
                    message_index=int(index[1]) if index else -1,
                    text=f"{info.reason}: {error.details()}",
                ) from error
        result = response.result
        return Appended(result.end_physical_offset, is_on_disk=result.durability >= DURABILITY_LOCAL_DISK)


def append_request(batch: list[Record], *, names_queue: bool) -> messages.AppendRequest:
    """Return the request, to be answered from the disk. Without queue ids the log chooses the queues."""
    return messages.AppendRequest(
        messages=[
            messages.AppendMessage(
                topic=record.topic,
                queue_id=record.queue_id if names_queue else None,
                body=record.body,
                property_string=record.properties,
                flag=record.flag,
                sys_flag=record.sys_flag,
                born_time_ms=record.born_time_ms,
                born_host=Host(address=record.born_host.address, port=record.born_host.port),
                reconsume_times=record.reconsume_times,
                prepared_transaction_offset=record.prepared_transaction_offset,
            )
            for record in batch
        ],
        durability=DURABILITY_LOCAL_DISK,
    )
