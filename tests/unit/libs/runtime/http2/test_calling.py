# SPDX-License-Identifier: Apache-2.0
"""Calls between services over the HTTP/2 channel of the event loop and over gRPC's: both behave the same."""

import asyncio
import contextlib
import gc
import weakref
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import grpc
import pytest
from reput.commitlog.v1 import log_service_pb2, log_service_pb2_grpc

from libs.runtime.http2.calling.call import UNREAD_BYTES_MAX
from libs.runtime.http2.calling.outcome import timeout_field
from libs.runtime.http2.heads import timeout_s_of
from libs.runtime.http2.wire import ANSWER_WINDOW_BYTES, CALLING_WINDOW_BYTES
from libs.runtime.peer.calls import error_info
from libs.runtime.settings import ServerConfig
from tests.support.patience import LIMIT_S, eventually
from tests.support.surroundings import free_port
from tests.unit.libs.runtime.http2.channels import channel_to, code_of, said
from tests.unit.libs.runtime.servers import APPEND, APPEND_STREAM, DISPATCH, FRONTS, Served, TooLate, serving

pytestmark = pytest.mark.usefixtures("each_session")

C = grpc.StatusCode


@contextlib.asynccontextmanager
async def called(kind: str, config: ServerConfig | None = None) -> AsyncIterator[tuple[Served, Any]]:
    """A server and a channel to it."""
    async with serving(config, request_size_bytes_max=64 << 20) as served:
        channel = channel_to(f"localhost:{served.server.port}", kind)
        try:
            yield served, channel
        finally:
            await channel.close()


@pytest.fixture(params=(*FRONTS, "relaying"))
def kind(request: pytest.FixtureRequest) -> str:
    """Each channel."""
    return str(request.param)


@pytest.mark.usefixtures("each_front")
class TestSame:
    """The behaviour of both channels for callers, on both fronts."""

    @pytest.mark.parametrize("size", [0, 1, 16 << 10, (16 << 10) + 1, 5 << 20, 40 << 20])
    async def test_one_answer(self, kind: str, size: int) -> None:
        """A request and an answer of any size arrive whole."""
        async with called(kind) as (_, channel):
            request = bytes(size)
            assert await channel.unary_unary(APPEND)(request, timeout=LIMIT_S, metadata=said()) == request

    async def test_error(self, kind: str) -> None:
        """An error comes with its code, text and details."""
        async with called(kind) as (served, channel):
            served.append.error = TooLate(4, "ä%")
            with pytest.raises(grpc.aio.AioRpcError) as caught:
                await channel.unary_unary(APPEND)(b"x", timeout=LIMIT_S, metadata=said())
        assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT
        assert caught.value.details() == "value 4 is too late"
        assert dict(error_info(caught.value).metadata) == {"field": "ä%", "value": "4"}

    async def test_stub(self, kind: str) -> None:
        """Generated stubs call methods of both kinds over it, with messages as objects."""
        async with called(kind) as (served, channel):
            stub: Any = log_service_pb2_grpc.LogServiceStub(channel)
            status = await stub.GetStatus(log_service_pb2.GetStatusRequest(), timeout=LIMIT_S, metadata=said())
            assert status == log_service_pb2.GetStatusResponse()
            answer = log_service_pb2.DispatchResponse(handshake={"history_id": "x" * 100_000})
            served.log.answer = answer.SerializeToString()
            call = stub.Dispatch(log_service_pb2.DispatchRequest(), metadata=said())
            assert [await call.read() for _ in range(3)] == [log_service_pb2.DispatchResponse(), answer, answer]
            call.cancel()

    async def test_unknown_method(self, kind: str) -> None:
        """A method that no service has is UNIMPLEMENTED."""
        async with called(kind) as (_, channel):
            with pytest.raises(grpc.aio.AioRpcError) as caught:
                await channel.unary_unary("/a/B")(b"", timeout=LIMIT_S)
        assert caught.value.code() is grpc.StatusCode.UNIMPLEMENTED

    async def test_both_ways(self, kind: str) -> None:
        """Requests are written and answers read in turn; the end comes after the end."""
        async with called(kind) as (_, channel):
            call = channel.stream_stream(APPEND_STREAM)(metadata=said())
            for request in (b"a", bytes(3 << 20), b""):
                await call.write(request)
                assert await call.read() == request
            await call.done_writing()
            assert await call.read() is grpc.aio.EOF
            assert await call.code() is grpc.StatusCode.OK
            with pytest.raises(asyncio.InvalidStateError):
                await call.write(b"")

    async def test_requests_of_an_iterator(self, kind: str) -> None:
        """An iterator's requests are sent, and answers iterated."""

        async def requests() -> AsyncIterator[bytes]:
            for number in range(300):
                yield b"%d" % number * 1_000

        async with called(kind) as (_, channel):
            call = channel.stream_stream(APPEND_STREAM)(requests(), metadata=said())
            assert [answer[:3] async for answer in call] == [(b"%d" % number * 3)[:3] for number in range(300)]

    async def test_error_in_a_stream(self, kind: str) -> None:
        """A stream that fails raises, when it is read and when it is written."""
        async with called(kind) as (served, channel):
            served.append.error = TooLate(4)
            call = channel.stream_stream(APPEND_STREAM)(metadata=said())
            await call.write(b"x")
            with pytest.raises(grpc.aio.AioRpcError):
                await call.read()
            with pytest.raises((grpc.aio.AioRpcError, asyncio.InvalidStateError)):
                await call.write(b"x")

    async def test_cancelled(self, kind: str) -> None:
        """A cancelled call ends its handler, and reads nothing more."""
        async with called(kind) as (served, channel):
            call = channel.unary_stream(DISPATCH)(b"", metadata=said())
            assert await call.read() == b""
            assert call.cancel()
            await served.log.ended.wait()
            with pytest.raises(asyncio.CancelledError):
                await call.read()
            assert not call.cancel()

    async def test_whoever_reads_is_cancelled(self, kind: str) -> None:
        """A time-out around a read ends the call."""
        async with called(kind) as (_, channel):
            call = channel.stream_stream(APPEND_STREAM)(metadata=said())
            await call.write(b"x")
            await call.read()
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.05):
                    await call.read()
            await eventually(call.done)

    async def test_deadline(self, kind: str) -> None:
        """A call without an answer fails with DEADLINE_EXCEEDED after its time-out."""
        async with called(kind) as (_, channel):
            call = channel.stream_stream(APPEND_STREAM)(metadata=said(), timeout=0.1)
            with pytest.raises(grpc.aio.AioRpcError) as caught:
                await call.read()
        assert caught.value.code() is grpc.StatusCode.DEADLINE_EXCEEDED

    async def test_nobody_reads(self, kind: str) -> None:
        """Answers that are not read stay with the server."""
        async with called(kind) as (served, channel):
            served.log.answer = bytes(100_000)
            call = channel.unary_stream(DISPATCH)(b"", metadata=said())
            await call.read()
            await asyncio.sleep(0.2)
            count = 0
            while count < 1_000:
                assert len(await call.read()) == 100_000
                count += 1
            call.cancel()

    async def test_server_goes_and_comes(self, kind: str) -> None:
        """A call without a server fails soon; once a server is there calls succeed again."""
        port = free_port()
        channel = channel_to(f"localhost:{port}", kind, reconnect_ms_max=100)
        method = channel.unary_unary(APPEND)
        try:
            for _ in range(3):
                with pytest.raises(grpc.aio.AioRpcError) as caught:
                    await method(b"", timeout=LIMIT_S, metadata=said())
                assert caught.value.code() is grpc.StatusCode.UNAVAILABLE
            for _ in range(2):
                async with serving(ServerConfig(port=port)), asyncio.timeout(LIMIT_S):
                    while await code_of(method) is not grpc.StatusCode.OK:  # noqa: ASYNC110 - it has no event
                        await asyncio.sleep(0.01)
                assert await code_of(method) is grpc.StatusCode.UNAVAILABLE
        finally:
            await channel.close()

    async def test_unix(self, kind: str, tmp_path: Path) -> None:
        """A call over a Unix socket is answered."""
        path = tmp_path / "s"
        async with serving(ServerConfig(port=0, unix_socket=path)):
            channel = channel_to(f"unix:{path}", kind)
            assert await channel.unary_unary(APPEND)(b"x", timeout=LIMIT_S, metadata=said()) == b"x"
            await channel.close()

    async def test_old_connections(self, kind: str) -> None:
        """A server that closes its old connections harms no call."""
        limits = replace(ServerConfig(port=0).connections, connection_age_max_ms=30)
        async with called(kind, ServerConfig(port=0, connections=limits)) as (_, channel):
            method = channel.unary_unary(APPEND)
            for _ in range(200):
                assert await code_of(method) is grpc.StatusCode.OK
                await asyncio.sleep(0.005)


async def test_unread_answers_are_bounded() -> None:
    """A call holds at most its window of unread answers."""
    async with called("http2") as (served, channel):
        served.log.answer = bytes(1 << 20)
        call = channel.unary_stream(DISPATCH)(b"", metadata=said())
        await eventually(lambda: call._unread_bytes >= UNREAD_BYTES_MAX)
        await asyncio.sleep(0.3)
        assert call._unread_bytes <= ANSWER_WINDOW_BYTES
        call.cancel()


async def test_calls_given_up_leave_the_window_whole() -> None:
    """Calls that end with many unread bytes free their part of the connection's window."""
    async with called("http2") as (served, channel):
        served.log.answer = bytes(1 << 20)
        for _ in range(2 * CALLING_WINDOW_BYTES // ANSWER_WINDOW_BYTES):
            call = channel.unary_stream(DISPATCH)(b"", metadata=said())
            await eventually(lambda one=call: one._unread_bytes >= UNREAD_BYTES_MAX)
            call.cancel()
        request = bytes(CALLING_WINDOW_BYTES)
        assert await channel.unary_unary(APPEND)(request, timeout=LIMIT_S, metadata=said()) == request


async def test_writing_to_a_server_that_goes() -> None:
    """A caller that waits until a request is sent gets an error when the server is gone, and no cancellation."""
    taken: list[asyncio.StreamWriter] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        taken.append(writer)
        await reader.read(1)

    listener = await asyncio.start_server(serve, "127.0.0.1", 0)
    channel = channel_to(f"127.0.0.1:{listener.sockets[0].getsockname()[1]}")
    call = channel.stream_stream(APPEND_STREAM)()
    writing = asyncio.create_task(call.write(bytes(1 << 20)))
    await eventually(lambda: bool(taken))
    await asyncio.sleep(0.05)
    assert not writing.done()
    taken[0].close()
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await writing
    assert caught.value.code() is C.UNAVAILABLE
    await channel.close()
    listener.close()


async def test_iterator_that_fails() -> None:
    """Requests that can't be made cancel the call."""

    async def requests() -> AsyncIterator[bytes]:
        yield b"x"
        raise ValueError

    async with called("http2") as (_, channel):
        call = channel.stream_stream(APPEND_STREAM)(requests(), metadata=said())
        with pytest.raises(asyncio.CancelledError):
            async for _ in call:
                pass
        assert await call.code() is C.CANCELLED
        call._feeding.exception()


async def test_close() -> None:
    """Closing a channel ends its calls, also calls that wait for a connection."""
    async with called("http2") as (_, channel):
        calls = [channel.stream_stream(APPEND_STREAM)(metadata=said()) for _ in range(3)]
        await calls[0].write(b"x")
        waiting = channel.unary_unary(APPEND)(b"", metadata=said())
        await channel.close()
        for call in (*calls, waiting):
            assert await call.code() is C.CANCELLED
        with pytest.raises(grpc.aio.UsageError):
            channel.unary_unary(APPEND)(b"")


async def test_a_closed_connection_is_freed() -> None:
    """A closed connection, with its loop, is kept neither by the channel nor by a call that is kept itself."""
    gc.collect()
    gc.disable()
    try:
        async with called("http2") as (_, channel):
            call = channel.stream_stream(APPEND_STREAM)(metadata=said())
            await call.write(b"x")
            await call.read()
            link = weakref.ref(channel._link)
            await channel.close()
            await eventually(lambda: link() is None)
            assert call.done()
    finally:
        gc.enable()


async def test_nothing_is_left_behind() -> None:
    """An ended call leaves nothing for the cyclic collector."""
    async with called("http2") as (_, channel):
        method = channel.unary_unary(APPEND)
        await method(b"x", timeout=LIMIT_S, metadata=said())
        gc.collect()
        gc.disable()
        try:
            for _ in range(20):
                await method(b"x", timeout=LIMIT_S, metadata=said())
            gc.set_debug(gc.DEBUG_SAVEALL)
            gc.collect()
            found = [one for one in gc.garbage if type(one).__name__ == "OutgoingCall"]
        finally:
            gc.set_debug(0)
            gc.garbage.clear()
            gc.enable()
        assert not found


@pytest.mark.parametrize("timeout_s", [0.0, 1e-9, 0.5, 99.0, 99.9999999, 100.0, 4_000.0, 99_999.5, 1e7, 1e12])
def test_timeout_field(timeout_s: float) -> None:
    """A server waits at least as long as its caller, and hardly longer."""
    travelled_s = timeout_s_of(timeout_field(timeout_s))
    assert min(timeout_s, 99_999_999) <= travelled_s <= max(timeout_s * 1.0001 + 1e-6, 0)
