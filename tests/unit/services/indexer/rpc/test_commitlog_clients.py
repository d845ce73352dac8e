# SPDX-License-Identifier: Apache-2.0
"""LogTail and LogRecords against a server with correct and incorrect answers of a CommitLog."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from typing import Any

import grpc
import numpy as np
import pytest
from google.rpc.error_details_pb2 import ErrorInfo
from google.rpc.status_pb2 import Status
from reput.commitlog.v1 import log_service_pb2 as pb
from reput.commitlog.v1 import topic_service_pb2 as topic_pb

from libs.formats.epoch import Epoch
from libs.formats.records.dispatch_columns import Handshake, Heartbeat
from libs.requests.errors import DependencyUnavailable, RecordDamaged
from libs.runtime.peer.connection import Connection
from libs.runtime.rpc.errors import STATUS_METADATA_KEY
from services.indexer.engine.log.source import ProgressReport
from services.indexer.errors import Inapplicable, LogEndsEarlier, NotARecord
from services.indexer.rpc.log.record_source import LogRecords
from services.indexer.rpc.log.tail import LogTail

TOKEN = ("authorization", "Bearer secret")
Context = grpc.aio.ServicerContext[Any, Any]


class FakeService:
    """A LogService whose answers a test sets. Keeps the requests and their metadata."""

    def __init__(self) -> None:
        self.steps: list[bytes] = []
        self.hangs = False
        self.answer: Callable[[pb.ReadRecordsRequest], pb.ReadRecordsResponse] = lambda _: pb.ReadRecordsResponse()
        self.reason = ""
        self.metadata: dict[str, str] = {}
        self.requests: list[Any] = []
        self.seen_metadata: list[dict[str, Any]] = []

    async def _note(self, request: Any, context: Context) -> None:
        self.requests.append(request)
        self.seen_metadata.append(dict(context.invocation_metadata() or ()))
        if self.reason:
            status = Status(code=9, message="refused")
            status.details.add().Pack(ErrorInfo(reason=self.reason, domain="reput", metadata=self.metadata))
            details = ((STATUS_METADATA_KEY, status.SerializeToString()),)
            await context.abort(grpc.StatusCode.FAILED_PRECONDITION, "refused", details)

    async def dispatch(self, request: pb.DispatchRequest, context: Context) -> AsyncIterator[bytes]:
        await self._note(request, context)
        for step in self.steps:
            yield step
        if self.hangs:
            await asyncio.sleep(30)

    async def read(self, request: pb.ReadRecordsRequest, context: Context) -> pb.ReadRecordsResponse:
        await self._note(request, context)
        return self.answer(request)

    async def get_topic(self, request: topic_pb.GetTopicRequest, context: Context) -> topic_pb.GetTopicResponse:
        await self._note(request, context)
        return topic_pb.GetTopicResponse()

    async def report(self, request: pb.ReportProgressRequest, context: Context) -> pb.ReportProgressResponse:
        await self._note(request, context)
        return pb.ReportProgressResponse()


@contextlib.asynccontextmanager
async def clients(service: FakeService, *, timeout_s: float = 30) -> AsyncIterator[tuple[LogTail, LogRecords]]:
    """Both clients of a server on a free port."""
    server = grpc.aio.server()
    handlers = {
        "Dispatch": grpc.unary_stream_rpc_method_handler(
            service.dispatch, request_deserializer=pb.DispatchRequest.FromString
        ),
        "ReadRecords": grpc.unary_unary_rpc_method_handler(
            service.read,
            request_deserializer=pb.ReadRecordsRequest.FromString,
            response_serializer=pb.ReadRecordsResponse.SerializeToString,
        ),
        "ReportProgress": grpc.unary_unary_rpc_method_handler(
            service.report,
            request_deserializer=pb.ReportProgressRequest.FromString,
            response_serializer=pb.ReportProgressResponse.SerializeToString,
        ),
    }
    get_topic = grpc.unary_unary_rpc_method_handler(
        service.get_topic, topic_pb.GetTopicRequest.FromString, topic_pb.GetTopicResponse.SerializeToString
    )
    topics = grpc.method_handlers_generic_handler("reput.commitlog.v1.TopicService", {"GetTopic": get_topic})
    server.add_generic_rpc_handlers((topics,))
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("reput.commitlog.v1.LogService", handlers),))
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
        connection = Connection(channel, timeout_s, lambda: (TOKEN,))
        yield LogTail(connection, record_count_max=77), LogRecords(connection)
    await server.stop(0)


def offsets(*values: int) -> Any:
    return np.array(values, np.int64)


async def test_the_tail_passes_steps_on() -> None:
    """Steps arrive unchanged; the request has the offset, the epochs and the token."""
    service = FakeService()
    handshake = pb.DispatchHandshake(
        common_end_physical_offset=5, epoch=3, min_physical_offset=1, confirmed_physical_offset=9
    )
    heartbeat = pb.DispatchHeartbeat(confirmed_physical_offset=9, min_physical_offset=2)
    service.steps = [
        pb.DispatchResponse(handshake=handshake).SerializeToString(),
        pb.DispatchResponse(heartbeat=heartbeat).SerializeToString(),
    ]
    async with clients(service) as (tail, _):
        steps = tail.follow(5, 2, [Epoch(1, 0), Epoch(2, 4)])
        found = [await anext(steps), await anext(steps)]
        with pytest.raises(DependencyUnavailable, match="ended"):
            await anext(steps)
        assert found == [Handshake(5, 3, 1, 9), Heartbeat(9, 2)]
    (request,) = service.requests
    assert (request.start_physical_offset, request.epoch, request.record_count_max) == (5, 2, 77)
    assert [(one.number, one.start_physical_offset) for one in request.epochs] == [(1, 0), (2, 4)]
    assert service.seen_metadata[0]["authorization"] == "Bearer secret"


async def test_a_silent_log_is_a_lost_one() -> None:
    """A stream without a heartbeat is given up; a log sends heartbeats every second."""
    service = FakeService()
    service.hangs = True
    async with clients(service, timeout_s=0.3) as (tail, _):
        with pytest.raises(DependencyUnavailable, match="silent"):
            await anext(tail.follow(0, 0))


@pytest.mark.parametrize("step", [b"", b"\xff", b"\x12\x05", b"\x12\x02\x22\x00\x01"])
async def test_a_malformed_step_is_inapplicable(step: bytes) -> None:
    """Bytes that are no step raise Inapplicable."""
    service = FakeService()
    service.steps = [step]
    async with clients(service) as (tail, _):
        with pytest.raises(Inapplicable):
            await anext(tail.follow(0, 0))


async def test_records_come_with_positions() -> None:
    """Deleted records have size 0; a short answer is passed on unchanged."""
    service = FakeService()
    service.answer = lambda _: pb.ReadRecordsResponse(
        record_sizes_bytes=[3, 0, 2], records=b"abcde", min_physical_offset=40
    )
    async with clients(service) as (_, records):
        block = await records.read(offsets(50, 10, 90, 95), np.array([3, 4, 2, 5], np.int32))
        assert (block.records, block.positions.tolist(), block.sizes.tolist()) == (b"abcde", [0, 3, 3], [3, 0, 2])
        assert block.min_physical_offset == 40
        await records.read(offsets(7, 8, 9))
    first, second = service.requests
    assert (list(first.physical_offsets), list(first.record_sizes_bytes)) == ([50, 10, 90, 95], [3, 4, 2, 5])
    assert (list(second.physical_offsets), list(second.record_sizes_bytes)) == ([7, 8, 9], [])
    assert first.view == pb.RECORD_VIEW_RAW
    assert service.seen_metadata[0]["authorization"] == "Bearer secret"


@pytest.mark.parametrize(
    "answer",
    [
        pb.ReadRecordsResponse(),
        pb.ReadRecordsResponse(record_sizes_bytes=[5], records=b"abc"),
        pb.ReadRecordsResponse(record_sizes_bytes=[-1, 4], records=b"abc"),
        pb.ReadRecordsResponse(record_sizes_bytes=[1, 1, 1], records=b"abc"),
    ],
    ids=["nothing", "too few bytes", "negative", "too many records"],
)
async def test_answers_that_contradict_themselves_are_refused(answer: pb.ReadRecordsResponse) -> None:
    """An answer whose sizes do not add up is refused, as it would give bytes of other records."""
    service = FakeService()
    service.answer = lambda _: answer
    async with clients(service) as (_, records):
        with pytest.raises(DependencyUnavailable, match="contradicts"):
            await records.read(offsets(1, 2))


@pytest.mark.parametrize(
    ("reason", "metadata", "error"),
    [
        ("NOT_A_RECORD", {"value": "55"}, NotARecord),
        ("NOT_A_RECORD", {"value": "nonsense"}, NotARecord),
        ("RECORD_DAMAGED", {"segment": "0", "position": "5", "reason": "CRC"}, RecordDamaged),
        ("OFFSET_BEYOND_END", {}, LogEndsEarlier),
        ("STOPPING", {}, DependencyUnavailable),
        ("UNAUTHENTICATED", {}, DependencyUnavailable),
        ("SOMETHING_NEW", {}, DependencyUnavailable),
    ],
)
async def test_refusals_keep_their_meaning(reason: str, metadata: dict[str, str], error: type[Exception]) -> None:
    """The log's refusals of a record become the engine's errors.

    All other failures mean that the log is unavailable.
    """
    service = FakeService()
    service.reason, service.metadata = reason, metadata
    async with clients(service) as (tail, records):
        with pytest.raises(error):
            await records.read(offsets(1))
        with pytest.raises(error):
            await anext(tail.follow(0, 0))


@pytest.mark.parametrize("reason", ["TOPIC_NOT_FOUND", "BAD_TOPIC_NAME", "NOT_LEADER"])
async def test_the_log_is_asked_for_topics(reason: str) -> None:
    """A topic exists if the log says so; a refusal with another reason than a missing topic is no answer.

    A log that follows another log answers NOT_LEADER for a topic that it lacks.
    """
    service = FakeService()
    async with clients(service) as (_, records):
        assert await records.has_topic("orders")
        service.reason = reason
        assert not await records.has_topic("orders")
        service.reason = "RECOVERING"
        with pytest.raises(DependencyUnavailable):
            await records.has_topic("orders")
    assert service.requests[0].name == "orders"
    assert service.seen_metadata[0]["authorization"] == "Bearer secret"


async def test_progress_is_reported() -> None:
    """A report has every number, and a refusal is an error that the flush loop knows."""
    service = FakeService()
    async with clients(service) as (tail, _):
        await tail.report(ProgressReport(9, 8, 7, 6, 5))
        service.reason = "STALE_EPOCH"
        with pytest.raises(DependencyUnavailable):
            await tail.report(ProgressReport(9, 8, 7, 6, 5))
    sent = service.requests[0]
    assert (sent.indexed_physical_offset, sent.flushed_physical_offset) == (9, 8)
    assert (sent.queue_flushed_time_ms, sent.index_flushed_time_ms, sent.epoch) == (7, 6, 5)


async def test_a_log_that_is_not_there() -> None:
    """Without a server the clients raise DependencyUnavailable."""
    async with grpc.aio.insecure_channel("127.0.0.1:1") as channel:
        with pytest.raises(DependencyUnavailable):
            await LogRecords(Connection(channel, 2, lambda: (TOKEN,))).read(offsets(1))
