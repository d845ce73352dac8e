# SPDX-License-Identifier: Apache-2.0
"""A real server on a free port with servicers that follow the test."""

import asyncio
import contextlib
import weakref
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import replace
from typing import Any, Literal

import grpc
import pytest
from google.rpc.error_details_pb2 import BadRequest, ErrorInfo, RetryInfo
from google.rpc.status_pb2 import Status
from reput.commitlog.v1 import append_service_pb2, log_service_pb2, topic_service_pb2

from libs.runtime.rpc.errors import ErrorRow
from libs.runtime.rpc.server import GrpcServer
from libs.runtime.settings import ServerConfig
from libs.runtime.watch.telemetry import Telemetry
from tests.support.patience import LIMIT_S
from tests.support.trusted import trusted

APPEND = "/reput.commitlog.v1.AppendService/Append"
APPEND_STREAM = "/reput.commitlog.v1.AppendService/AppendStream"
GET_STATUS = "/reput.commitlog.v1.LogService/GetStatus"
DISPATCH = "/reput.commitlog.v1.LogService/Dispatch"
DELETE_TOPIC = "/reput.commitlog.v1.TopicService/DeleteTopic"


FRONTS = ("http2", pytest.param("grpcio", marks=pytest.mark.long))
"""The fronts of a server, or the channels of a client. grpcio is the fallback: `make test-long` tests it."""
front: Literal["http2", "grpcio"] = "http2"
"""The front of `serving`, independent of the settings; see `each_front`."""
is_at_once = False
"""Whether the unary methods of `serving` are called without a task."""


class TooLate(Exception):
    """An error with coordinates."""

    def __init__(self, value: int, field: str = "") -> None:
        super().__init__(f"value {value} is too late")
        self.value, self.field, self.nothing = value, field, None


class Full(Exception):
    """An error that passes."""


class FullForLong(Full):
    """A subclass without a row of its own."""


TABLE = {
    TooLate: ErrorRow(grpc.StatusCode.INVALID_ARGUMENT, "BAD_ARGUMENT", metadata=("field", "value", "nothing")),
    Full: ErrorRow(grpc.StatusCode.RESOURCE_EXHAUSTED, "STORE_FULL", retry_after_ms=1_500),
}


class Mark:
    """Lives as long as the frame that made it."""


class AppendServicer:
    """Takes raw requests. `error` is raised by each call."""

    def __init__(self) -> None:
        self.error: Exception | None = None
        self.requests: list[Any] = []
        self.marks: list[weakref.ref[Mark]] = []

    async def Append(self, request: bytes, context: object) -> bytes:  # noqa: N802
        """Answer with the request's own bytes."""
        mark = Mark()
        self.marks.append(weakref.ref(mark))
        self.requests.append(request)
        if self.error is not None:
            raise self.error
        return request

    async def AppendStream(self, requests: AsyncIterator[bytes], context: object) -> AsyncIterator[bytes]:  # noqa: N802
        """Echo."""
        async for request in requests:
            self.requests.append(request)
            if self.error is not None:
                raise self.error
            yield request


class LogServicer:
    """Takes parsed requests."""

    def __init__(self) -> None:
        self.error: Exception | None = None
        self.answer = bytes(64 << 10)
        """The bytes of all answers but the first. Few of them fill a window, so a stream that waits costs little."""
        self.ended = asyncio.Event()

    async def GetStatus(self, request: log_service_pb2.GetStatusRequest, context: object) -> object:  # noqa: N802
        """Answer with a message."""
        return log_service_pb2.GetStatusResponse()

    async def Dispatch(self, request: log_service_pb2.DispatchRequest, context: object) -> AsyncIterator[object]:  # noqa: N802
        """Answer without end: a message first, then bytes."""
        try:
            yield log_service_pb2.DispatchResponse()
            if self.error is not None:
                raise self.error
            while True:
                yield self.answer
        finally:
            self.ended.set()


class TopicServicer:
    """A method of operators."""

    async def DeleteTopic(self, request: topic_service_pb2.DeleteTopicRequest, context: object) -> object:  # noqa: N802
        """Answer with a message."""
        return topic_service_pb2.DeleteTopicResponse()


class Served:
    """A started server with its servicers and a channel to it."""

    def __init__(self, server: GrpcServer) -> None:
        self.server = server
        self.append = AppendServicer()
        self.log = LogServicer()
        append_service = append_service_pb2.DESCRIPTOR.services_by_name["AppendService"]
        append_at_once, log_at_once = ({"Append"}, {"GetStatus"}) if is_at_once else (set[str](), set[str]())
        server.add_service(append_service, self.append, raw={"Append", "AppendStream"}, at_once=append_at_once)
        self.refusal: Exception | None = None
        """Refuses calls of the log's methods, before they begin and before an answer leaves."""
        log_service = log_service_pb2.DESCRIPTOR.services_by_name["LogService"]
        around = {"GetStatus": self._block, "Dispatch": self._block}
        server.add_service(log_service, self.log, around=around, at_once=log_at_once)
        server.add_service(topic_service_pb2.DESCRIPTOR.services_by_name["TopicService"], TopicServicer())
        self.channel: grpc.aio.Channel

    @contextlib.contextmanager
    def _block(self) -> Iterator[Callable[[], None]]:
        self._check()
        yield self._check

    def _check(self) -> None:
        if self.refusal is not None:
            raise self.refusal

    async def call(self, method: str, request: bytes = b"", **options: Any) -> bytes:
        """A unary call with raw bytes."""
        return await self.channel.unary_unary(method)(request, timeout=LIMIT_S, **options)


@contextlib.asynccontextmanager
async def serving(
    config: ServerConfig | None = None,
    *,
    telemetry: Telemetry | None = None,
    is_ready: bool = True,
    credentials: grpc.ChannelCredentials | None = None,
    request_size_bytes_max: int = 1 << 20,
    target: str = "",
    prepare: Callable[[GrpcServer], None] = lambda _: None,
) -> AsyncIterator[Served]:
    """Serve for the time of the block. `prepare` may add services."""
    own_telemetry = telemetry or Telemetry.off()
    config = replace(config or ServerConfig(port=0), front=front)
    server = GrpcServer(config, errors=TABLE, telemetry=own_telemetry, request_size_bytes_max=request_size_bytes_max)
    served = Served(server)
    prepare(server)
    await server.start()
    if is_ready:
        server.admit()
        await server.set_healthy()
    target = target or f"localhost:{server.port}"
    channel = grpc.aio.insecure_channel(target) if credentials is None else grpc.aio.secure_channel(target, credentials)
    try:
        async with channel:
            served.channel = trusted(channel)
            yield served
    finally:
        await server.stop(0)
        own_telemetry.shutdown()


def details_of(error: grpc.aio.AioRpcError) -> tuple[ErrorInfo, BadRequest, RetryInfo]:
    """The rich details of a failed call; missing details are empty."""
    metadata = dict(error.trailing_metadata() or ())
    status = Status.FromString(metadata["grpc-status-details-bin"])
    assert status.code == error.code().value[0]
    found = (ErrorInfo(), BadRequest(), RetryInfo())
    for detail in status.details:
        for message in found:
            detail.Unpack(message)
    return found
