# SPDX-License-Identifier: Apache-2.0
"""The gRPC server end to end: errors, raw bytes, states, health, reflection, tokens, addresses."""

import asyncio
import logging
import socket
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc
from reput.commitlog.v1 import append_service_pb2, log_service_pb2

from libs.runtime.errors import ConfigError, ListenFailed, PortInUse
from libs.runtime.rpc.bounds import CallBounds
from libs.runtime.rpc.handlers import Surroundings, service_handler
from libs.runtime.settings import ServerConfig
from libs.runtime.watch.telemetry import Telemetry
from tests.support.patience import LIMIT_S
from tests.unit.libs.runtime import servers
from tests.unit.libs.runtime.servers import (
    APPEND,
    APPEND_STREAM,
    DISPATCH,
    GET_STATUS,
    Full,
    FullForLong,
    LogServicer,
    TooLate,
    details_of,
    serving,
)

pytestmark = pytest.mark.usefixtures("each_front")

NOT_PROTOBUF = b"\xff\xff\xff"


async def failure_of(call: Any) -> grpc.aio.AioRpcError:
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await call
    return caught.value


async def test_a_raw_method_gets_and_gives_bytes() -> None:
    """A hot method sees the request's bytes exactly as they came, even if they are no protobuf."""
    async with serving() as served:
        assert await served.call(APPEND, NOT_PROTOBUF) == NOT_PROTOBUF
        stream = served.channel.stream_stream(APPEND_STREAM)()
        for request in (b"one", b"two"):
            await stream.write(request)
            assert await stream.read() == request
        await stream.done_writing()
        assert await stream.read() is grpc.aio.EOF
        assert served.append.requests == [NOT_PROTOBUF, b"one", b"two"]


async def test_a_generated_stub_talks_to_it() -> None:
    """Registering without serializers is invisible on the wire."""
    async with serving() as served:
        stub = served.channel.unary_unary(
            APPEND,
            request_serializer=append_service_pb2.AppendRequest.SerializeToString,
            response_deserializer=append_service_pb2.AppendRequest.FromString,
        )
        request = append_service_pb2.AppendRequest(durability=2)  # type: ignore[arg-type]
        assert await stub(request) == request


async def test_a_malformed_request_is_the_callers_fault() -> None:
    """Bytes that are not the method's message give INVALID_ARGUMENT MALFORMED_REQUEST, streamed or not."""
    async with serving() as served:
        error = await failure_of(served.call(GET_STATUS, NOT_PROTOBUF))
        assert error.code() is grpc.StatusCode.INVALID_ARGUMENT
        info, _, _ = details_of(error)
        assert (info.reason, info.domain) == ("MALFORMED_REQUEST", "reput")
        error = await failure_of(served.channel.unary_stream(DISPATCH)(NOT_PROTOBUF).read())
        assert details_of(error)[0].reason == "MALFORMED_REQUEST"
        assert await served.call(GET_STATUS) == b""


@pytest.mark.parametrize(
    ("request_bytes", "is_refused"),
    [(b"\x0a\x01x", True), (b"\x08\x01\x15\x00\x00\x00\x00", True), (b"\x08\x01", False), (b"\xa0\x06\x01", False)],
    ids=["text for a number", "fixed for a varint", "right", "unknown field"],
)
async def test_a_wrong_wire_type_is_malformed(request_bytes: bytes, is_refused: bool) -> None:
    """A known field of a wrong wire type is refused, not dropped; fields of a newer client are passed over."""
    async with serving() as served:
        call = served.channel.unary_stream(DISPATCH)(request_bytes)
        if is_refused:
            assert details_of(await failure_of(call.read()))[0].reason == "MALFORMED_REQUEST"
        else:
            assert await call.read() == b""
            call.cancel()


async def test_a_domain_error_carries_its_row() -> None:
    """Code, reason, metadata without empty values, and the field at fault reach the client."""
    async with serving() as served:
        served.append.error = TooLate(7, field="messages[3].topic")
        error = await failure_of(served.call(APPEND))
        info, bad_request, _ = details_of(error)
        assert error.code() is grpc.StatusCode.INVALID_ARGUMENT
        assert error.details() == "value 7 is too late"
        assert info.reason == "BAD_ARGUMENT"
        assert dict(info.metadata) == {"field": "messages[3].topic", "value": "7"}
        assert [violation.field for violation in bad_request.field_violations] == ["messages[3].topic"]


@pytest.mark.parametrize("error_class", [Full, FullForLong])
async def test_a_passing_error_says_when_to_retry(error_class: type[Exception]) -> None:
    """RetryInfo comes from the row, which serves subclasses too."""
    async with serving() as served:
        served.append.error = error_class("disk full")
        error = await failure_of(served.call(APPEND))
        info, _, retry = details_of(error)
        assert (error.code(), info.reason) == (grpc.StatusCode.RESOURCE_EXHAUSTED, "STORE_FULL")
        assert retry.retry_delay.ToMilliseconds() == 1_500


async def test_an_error_ends_a_stream_with_its_status() -> None:
    """Answers before the error arrive, then the rich status."""
    async with serving() as served:
        served.log.error = TooLate(9)
        call = served.channel.unary_stream(DISPATCH)(b"")
        assert await call.read() == b""
        assert details_of(await failure_of(call.read()))[0].reason == "BAD_ARGUMENT"
        assert served.log.ended.is_set()


async def test_calls_are_answered_in_their_blocks() -> None:
    """A block refuses a call before it begins, and an answer of a stream before it is sent.

    Methods without a block are not refused.
    """
    async with serving() as served:
        await served.call(GET_STATUS)
        call = served.channel.unary_stream(DISPATCH)(b"")
        assert await call.read() == b""
        served.refusal = TooLate(9)

        async def read_on() -> None:
            while True:
                await call.read()

        for refused in (read_on(), served.call(GET_STATUS)):
            assert details_of(await failure_of(refused))[0].reason == "BAD_ARGUMENT"
        assert served.log.ended.is_set()
        assert await served.call(APPEND, b"one") == b"one"


async def test_an_unknown_error_leaks_nothing_and_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    """A bug gives INTERNAL without its text; the log has the traceback."""
    async with serving() as served:
        served.append.error = RuntimeError("password 1234")
        with caplog.at_level(logging.ERROR):
            error = await failure_of(served.call(APPEND))
        assert error.code() is grpc.StatusCode.INTERNAL
        assert "1234" not in str(error)
        assert details_of(error)[0].reason == "INTERNAL"
        assert "password 1234" in caplog.text


async def test_a_cancelled_stream_is_closed() -> None:
    """If the client cancels a stream, the `finally` of the handler's generator runs."""
    async with serving() as served:
        call = served.channel.unary_stream(DISPATCH)(b"")
        await call.read()
        call.cancel()
        async with asyncio.timeout(LIMIT_S):
            await served.log.ended.wait()


async def test_a_caller_who_goes_during_a_write_is_no_error(caplog: pytest.LogCaptureFixture) -> None:
    """A call whose connection ends during a write ends as a cancelled call.

    Nothing is logged as a bug.
    """

    class GoneContext:
        """gRPC's context when the connection ended a moment ago."""

        async def write(self, _message: bytes) -> None:
            raise grpc.aio.InternalError("failed")

    class Details:
        method = DISPATCH
        invocation_metadata = ()

    servicer = LogServicer()
    handler = service_handler(
        log_service_pb2.DESCRIPTOR.services_by_name["LogService"],
        servicer,
        Surroundings(
            errors={},
            gate=SimpleNamespace(is_ready=True, is_stopping=False),
            bounds=CallBounds(call_count_max=1, answer_bytes_max=1, unread_timeout_s=60),
            trusted_bounds=CallBounds(call_count_max=1, answer_bytes_max=1, unread_timeout_s=60),
            telemetry=Telemetry.off(),
        ),
    ).service(Details())
    with caplog.at_level(logging.ERROR), pytest.raises(asyncio.CancelledError):
        await handler.unary_stream(b"", GoneContext())
    assert servicer.ended.is_set()
    assert caplog.text == ""


async def test_a_method_that_the_servicer_lacks_is_unimplemented() -> None:
    """An RPC of the proto that is not served yet fails with UNIMPLEMENTED."""
    async with serving() as served:
        error = await failure_of(served.call("/reput.commitlog.v1.LogService/ReadRecords"))
        assert error.code() is grpc.StatusCode.UNIMPLEMENTED


async def test_calls_are_refused_until_admitted_and_while_stopping() -> None:
    """Calls are refused with RECOVERING and a delay before they are admitted, and with STOPPING during a stop.

    Health becomes SERVING only by `set_healthy`, and NOT_SERVING at once.
    """
    async with serving(is_ready=False) as served:
        health = health_pb2_grpc.HealthStub(served.channel)
        error = await failure_of(served.call(APPEND))
        info, _, retry = details_of(error)
        assert (error.code(), info.reason) == (grpc.StatusCode.UNAVAILABLE, "RECOVERING")
        assert retry.retry_delay.ToMilliseconds() == 1_000
        names = ("", "reput.commitlog.v1.AppendService")
        for name in names:
            answer = await health.Check(health_pb2.HealthCheckRequest(service=name))
            assert answer.status == health_pb2.HealthCheckResponse.NOT_SERVING
        served.server.admit()
        await served.call(APPEND)
        answer = await health.Check(health_pb2.HealthCheckRequest())
        assert answer.status == health_pb2.HealthCheckResponse.NOT_SERVING
        await served.server.set_healthy()
        for name in names:
            answer = await health.Check(health_pb2.HealthCheckRequest(service=name))
            assert answer.status == health_pb2.HealthCheckResponse.SERVING
        await served.call(APPEND)
        await served.server.drain()
        error = await failure_of(served.call(APPEND))
        assert (error.code(), details_of(error)[0].reason) == (grpc.StatusCode.UNAVAILABLE, "STOPPING")
        answer = await health.Check(health_pb2.HealthCheckRequest())
        assert answer.status == health_pb2.HealthCheckResponse.NOT_SERVING


@pytest.mark.parametrize(
    ("method", "name"),
    [
        ("/grpc.health.v1.Health/Check", "grpc.health.v1.HealthCheckRequest"),
        ("/grpc.health.v1.Health/Watch", "grpc.health.v1.HealthCheckRequest"),
        (
            "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo",
            "grpc.reflection.v1alpha.ServerReflectionRequest",
        ),
    ],
)
async def test_malformed_requests_of_services_that_packages_bring(
    method: str, name: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Malformed requests of health and reflection are refused as the requests of Reput's services.

    They need no token, so they leave nothing in the log.
    """
    async with serving() as served:
        call = served.channel.stream_stream(method)()
        await call.write(b"\xff")
        await call.done_writing()
        error = await failure_of(call.read())
        assert (error.code(), details_of(error)[0].reason) == (grpc.StatusCode.INVALID_ARGUMENT, "MALFORMED_REQUEST")
        assert name in error.details()
    assert [record for record in caplog.records if record.levelno >= logging.WARNING] == []


async def test_reflection_lists_what_is_served() -> None:
    """A generic client finds the services and their descriptors."""
    async with serving() as served:
        stub = reflection_pb2_grpc.ServerReflectionStub(served.channel)
        requests = [
            reflection_pb2.ServerReflectionRequest(list_services=""),
            reflection_pb2.ServerReflectionRequest(file_containing_symbol="reput.commitlog.v1.AppendService"),
        ]
        answers = [answer async for answer in stub.ServerReflectionInfo(iter(requests))]
        names = {service.name for service in answers[0].list_services_response.service}
        assert names == {
            "reput.commitlog.v1.AppendService",
            "reput.commitlog.v1.LogService",
            "reput.commitlog.v1.TopicService",
            "reput.common.v1.AuditService",
            *({"reput.common.v1.ConnectionService"} if servers.front == "http2" else ()),
            "grpc.health.v1.Health",
            "grpc.reflection.v1alpha.ServerReflection",
        }
        assert answers[1].file_descriptor_response.file_descriptor_proto


@pytest.mark.parametrize("metadata", [(), (("authorization", "Bearer wrong"),), (("authorization", "sesame"),)])
async def test_a_call_without_the_token_is_refused(tmp_path: Path, metadata: tuple[tuple[str, str], ...]) -> None:
    """A call without the token gets UNAUTHENTICATED: unary and streamed calls, and reflection.

    Health stays open for orchestrators.
    """
    (tmp_path / "token").write_text("sesame\n")
    async with serving(ServerConfig(port=0, token_file=tmp_path / "token")) as served:
        for call in (
            served.call(APPEND, metadata=metadata),
            served.channel.stream_stream(APPEND_STREAM)(metadata=metadata).read(),
            served.channel.unary_stream(DISPATCH)(b"", metadata=metadata).read(),
        ):
            error = await failure_of(call)
            assert error.code() is grpc.StatusCode.UNAUTHENTICATED
            assert details_of(error)[0].reason == "UNAUTHENTICATED"
        assert served.append.requests == []
        await served.call(APPEND, metadata=(("authorization", "Bearer sesame"),))
        await health_pb2_grpc.HealthStub(served.channel).Check(health_pb2.HealthCheckRequest())


async def test_a_port_in_use_is_named(capfd: pytest.CaptureFixture[str]) -> None:
    """The second server gets PortInUse with the address, and gRPC writes nothing of its own about it."""
    async with serving() as served:
        with pytest.raises(PortInUse, match=f"127.0.0.1:{served.server.port} is in use"):
            async with serving(ServerConfig(port=served.server.port)):
                pass
        assert str(served.server.port) not in capfd.readouterr().err


@pytest.mark.parametrize(
    ("config", "error", "text"),
    [
        (ServerConfig(port=0, listen_host="0.0.0.0"), ConfigError, "allow_insecure"),
        (ServerConfig(port=0, listen_host="example.invalid"), ConfigError, "allow_insecure"),
        (ServerConfig(port=0, listen_host="192.0.2.1", allow_insecure=True), ListenFailed, "192.0.2.1:0"),
        (ServerConfig(port=0, unix_socket=Path("/nonexistent/s")), ListenFailed, "unix:/nonexistent/s"),
        (
            ServerConfig(port=0, tls_certificate_file=Path("/no/cert"), tls_key_file=Path("/no/key")),
            ConfigError,
            "tls_certificate_file: /no/cert: No such file",
        ),
    ],
)
async def test_an_address_that_cannot_be_served_is_refused(
    config: ServerConfig, error: type[Exception], text: str
) -> None:
    """An open address without TLS, a foreign address, and missing files are refused in a single clear line."""
    with pytest.raises(error, match=text):
        async with serving(config):
            pass


@pytest.mark.parametrize(("content", "text"), [(None, "No such file"), ("\n", "the file is empty")])
async def test_a_bad_token_file_is_refused(tmp_path: Path, content: str | None, text: str) -> None:
    """A missing or empty token file raises ConfigError, and does not admit all callers."""
    path = tmp_path / "token"
    if content is not None:
        path.write_text(content)
    with pytest.raises(ConfigError, match=text):
        async with serving(ServerConfig(port=0, token_file=path)):
            pass


async def test_a_unix_socket_serves_and_is_not_stolen(tmp_path: Path) -> None:
    """A server on a Unix socket answers, and a second server on it raises PortInUse.

    The socket of a dead process is replaced.
    """
    path = tmp_path / "s"
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(str(path))
    config = ServerConfig(port=0, unix_socket=path)
    async with serving(config, target=f"unix:{path}") as served:
        assert await served.call(APPEND, b"x") == b"x"
        with pytest.raises(PortInUse, match="unix_socket"):
            async with serving(config):
                pass


async def test_a_request_above_the_limit_is_refused() -> None:
    """A request beyond the service's own limit and the slack reaches no method, and the server continues."""
    async with serving(request_size_bytes_max=1 << 10) as served:
        await served.call(APPEND, bytes(1 << 20))
        error = await failure_of(served.call(APPEND, bytes(3 << 20)))
        if error.code() is not grpc.StatusCode.RESOURCE_EXHAUSTED:  # as gRPC's own server has it, without a reason
            assert error.code() is grpc.StatusCode.INVALID_ARGUMENT
            info = details_of(error)[0]
            assert (info.reason, info.metadata["value"]) == ("REQUEST_TOO_LARGE", str(3 << 20))
        await served.call(APPEND)
