# SPDX-License-Identifier: Apache-2.0
"""LogTail: the CommitLog's dispatch stream as the engine's LogSource.

A single step is in memory at a time: the stream is read when the engine is done with the step before, and HTTP/2's flow
control slows the log down. The log sends a heartbeat every second, so silence means that it is unavailable.
"""

import asyncio
from collections.abc import AsyncGenerator, Callable, Sequence
from typing import Any

import grpc
import msgspec
from reput.commitlog.v1 import log_service_pb2 as messages
from reput.commitlog.v1 import log_service_pb2_grpc

from libs.formats.epoch import EPOCH_COUNT_MAX, Epoch
from libs.formats.errors import FormatError
from libs.formats.records import dispatch_columns
from libs.formats.records.dispatch_columns import DispatchBatch, Handshake, Heartbeat
from libs.formats.state.log_history import QueueEnd
from libs.requests.errors import DependencyUnavailable
from libs.runtime.peer.calls import PeerClient, peer_errors
from libs.runtime.peer.connection import Connection
from libs.runtime.rpc.by_name import named
from services.indexer.engine.log.source import LogRole, ProgressReport
from services.indexer.errors import Inapplicable
from services.indexer.rpc.log.errors import ERRORS, SERVICE

LOG_SERVICE = "/reput.commitlog.v1.LogService/"


class LogTail:
    """The LogSource over gRPC."""

    def __init__(self, log: Connection, *, record_count_max: int) -> None:
        self.history_id: Callable[[], str] = lambda: ""
        """Returns the name of the indexed history. It is sent, so that the log can detect another history."""
        self._record_count_max = record_count_max
        self._log, self._reports = log, PeerClient(SERVICE, log, ERRORS)
        stub: Any = log_service_pb2_grpc.LogServiceStub(log.channel)
        self._report, self._check = stub.ReportProgress, stub.CheckQueueOffsets
        self._dispatch: Any = log.channel.unary_stream(  # its answers stay bytes
            LOG_SERVICE + "Dispatch", request_serializer=messages.DispatchRequest.SerializeToString
        )

    async def follow(
        self, start_physical_offset: int, epoch: int, epochs: Sequence[Epoch] = ()
    ) -> AsyncGenerator[Handshake | DispatchBatch | Heartbeat, None]:
        """See LogSource. A step that is no dispatch response raises Inapplicable: a further attempt would not help."""
        request = messages.DispatchRequest(
            start_physical_offset=start_physical_offset,
            epoch=epoch,
            record_count_max=self._record_count_max,
            history_id=self.history_id(),
            epochs=[messages.Epoch(**one._asdict()) for one in epochs[-EPOCH_COUNT_MAX:]],
        )
        position = start_physical_offset
        with peer_errors(SERVICE, ERRORS):
            call = self._dispatch(request, metadata=self._log.metadata())
            try:
                while True:
                    try:
                        async with asyncio.timeout(self._log.timeout_s):
                            data = await call.read()
                    except TimeoutError:
                        raise DependencyUnavailable(SERVICE, f"silent for {self._log.timeout_s} s") from None
                    if data is grpc.aio.EOF:
                        raise DependencyUnavailable(SERVICE, "the dispatch stream has ended")
                    try:
                        step = dispatch_columns.decode(data)
                    except FormatError as error:
                        raise Inapplicable(f"malformed step: {error}", physical_offset=position) from error
                    if isinstance(step, DispatchBatch):
                        position = step.end_physical_offset
                    yield step
            finally:
                call.cancel()

    async def check_queue_offsets(
        self, pages: AsyncGenerator[list[QueueEnd], None], *, epoch: int, history_id: str, is_complete: bool
    ) -> int:
        """See LogSource. It may take long, without a time-out: `follow` detects when the log falls silent."""

        async def requests() -> AsyncGenerator[messages.CheckQueueOffsetsRequest, None]:
            async for page in pages:
                queues = [messages.QueueEnd(**msgspec.structs.asdict(end)) for end in page]
                yield messages.CheckQueueOffsetsRequest(
                    epoch=epoch, queues=queues, history_id=history_id, is_complete=is_complete
                )

        with peer_errors(SERVICE, ERRORS):
            response = await self._check(requests(), metadata=self._log.metadata())
        return int(response.contradicting_queue_count)

    async def report(self, report: ProgressReport) -> LogRole:
        """See LogSource."""
        request = named(messages.ReportProgressRequest, report)
        response = await self._reports.call(self._report, request)
        return LogRole(not response.is_follower, response.is_replicated)
