# SPDX-License-Identifier: Apache-2.0
"""Calls of one service to another, over the channel in the loop and over gRPC's: callers see the same of both."""

import asyncio
import contextlib
import gc
import random
import weakref
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import grpc
import ngh2
import pytest
from reput.commitlog.v1 import log_service_pb2, log_service_pb2_grpc

from libs.runtime.http2.calling import link as links
from libs.runtime.http2.calling.call import UNREAD_BYTES_MAX, Method, OutgoingCall
from libs.runtime.http2.calling.channel import LoopChannel
from libs.runtime.http2.calling.link import Link
from libs.runtime.http2.calling.outcome import head_of, timeout_field
from libs.runtime.http2.framing import framed
from libs.runtime.http2.heads import HEAD, timeout_s_of
from libs.runtime.http2.wire import ANSWER_WINDOW_BYTES, CALLING_WINDOW_BYTES
from libs.runtime.rpc.errors import error_info
from libs.runtime.rpc.peer import Peer
from libs.runtime.settings import PeerConfig, ServerConfig
from libs.runtime.trust.tokens import TokenFile, find_local_token, local_token_path
from tests.support.patience import LIMIT_S, eventually
from tests.unit.libs.runtime.servers import APPEND, APPEND_STREAM, DISPATCH, Served, TooLate, serving

CHANNELS = ("http2", "grpcio")


def said() -> Any:
    """What calls carry: the token of this machine, and metadata of both kinds."""
    return (("authorization", f"Bearer {find_local_token(())}"), ("a", "b"), ("b-bin", b"\0\xff"))


def channel_to(target: str, kind: Any = "http2", reconnect_ms_max: int = 1_000) -> Any:
    """A channel as services make it."""
    token = TokenFile("token", local_token_path())
    peer = Peer(name="peer", config=PeerConfig(target=target, channel=kind), token=token)
    return peer.connect(interceptors=(), reconnect_ms_max=reconnect_ms_max).channel


@contextlib.asynccontextmanager
async def called(kind: str, config: ServerConfig | None = None) -> AsyncIterator[tuple[Served, Any]]:
    """A server and a channel to it."""
    async with serving(config, request_size_bytes_max=64 << 20) as served:
        channel = channel_to(f"localhost:{served.server.port}", kind)
        try:
            yield served, channel
        finally:
            await channel.close()


@pytest.fixture(params=CHANNELS)
def kind(request: pytest.FixtureRequest) -> str:
    """Each channel."""
    return str(request.param)


@pytest.mark.usefixtures("each_front")
class TestSame:
    """What callers see of both channels, on both fronts."""

    @pytest.mark.parametrize("size", [0, 1, 16 << 10, (16 << 10) + 1, 5 << 20, 40 << 20])
    async def test_one_answer(self, kind: str, size: int) -> None:
        """Requests and answers of any size."""
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
            served.log.answer = log_service_pb2.DispatchResponse().SerializeToString()
            call = stub.Dispatch(log_service_pb2.DispatchRequest(), metadata=said())
            assert [await call.read() for _ in range(3)] == [log_service_pb2.DispatchResponse()] * 3
            call.cancel()

    async def test_unknown_method(self, kind: str) -> None:
        """A method that nobody serves."""
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
        """Who cancels a call ends its handler, and reads nothing more."""
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
        """A call ends in its time."""
        async with called(kind) as (_, channel):
            call = channel.stream_stream(APPEND_STREAM)(metadata=said(), timeout=0.1)
            with pytest.raises(grpc.aio.AioRpcError) as caught:
                await call.read()
        assert caught.value.code() is grpc.StatusCode.DEADLINE_EXCEEDED

    async def test_nobody_reads(self, kind: str) -> None:
        """Answers that nobody reads stay with the server."""
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
        """A call to nobody fails soon; once somebody is there calls succeed again."""
        async with serving() as served:
            port = served.server.port
        channel = channel_to(f"localhost:{port}", kind, reconnect_ms_max=100)
        method = channel.unary_unary(APPEND)
        try:
            for _ in range(3):
                with pytest.raises(grpc.aio.AioRpcError) as caught:
                    await method(b"", timeout=LIMIT_S, metadata=said())
                assert caught.value.code() is grpc.StatusCode.UNAVAILABLE
            for _ in range(2):
                async with serving(ServerConfig(port=port)), asyncio.timeout(LIMIT_S):
                    while await _code(method) is not grpc.StatusCode.OK:  # noqa: ASYNC110 - it has no event
                        await asyncio.sleep(0.01)
                assert await _code(method) is grpc.StatusCode.UNAVAILABLE
        finally:
            await channel.close()

    async def test_unix(self, kind: str, tmp_path: Path) -> None:
        """Over a Unix socket."""
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
                assert await _code(method) is grpc.StatusCode.OK
                await asyncio.sleep(0.005)


async def _code(method: Any) -> grpc.StatusCode:
    try:
        await method(b"", timeout=LIMIT_S, metadata=said())
    except grpc.aio.AioRpcError as error:
        return error.code()
    return grpc.StatusCode.OK


class Scripted:
    """A server that does to each call what the test says, by libnghttp2."""

    def __init__(self, act: Callable[[ngh2.Connection, int], None]) -> None:
        self._act = act
        self.connection_count = self.open_count = 0
        self.received = asyncio.Event()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connection_count += 1
        self.open_count += 1
        wire = ngh2.Connection(ngh2.Role.SERVER, ngh2.Configuration())
        wire.initiate_connection({})
        with contextlib.suppress(ConnectionError):
            while data := await reader.read(65_536):
                wire.receive_data(data)
                for event in wire.events():
                    if isinstance(event, ngh2.RequestReceived):
                        self._act(wire, event.stream_id)
                        self.received.set()
                writer.write(wire.data_to_send())
                await writer.drain()
        writer.close()
        self.open_count -= 1


@contextlib.asynccontextmanager
async def scripted(act: Callable[[ngh2.Connection, int], None]) -> AsyncIterator[tuple[Scripted, LoopChannel]]:
    """A server of that kind, and a channel to it that takes answers of a kilobyte."""
    server = Scripted(act)
    listener = await asyncio.start_server(server.serve, "127.0.0.1", 0)
    port = listener.sockets[0].getsockname()[1]
    channel = LoopChannel(f"127.0.0.1:{port}", context=None, reconnect_ms_max=100, answer_size_bytes_max=1_024)
    try:
        yield server, channel
    finally:
        await channel.close()
        listener.close()
        await eventually(lambda: not server.open_count)


def answer(*frames: bytes, last: tuple[tuple[bytes, bytes], ...] = ((b"grpc-status", b"0"),)) -> Any:
    """What answers with these bytes and that end."""

    def act(wire: ngh2.Connection, stream_id: int) -> None:
        wire.send_response(stream_id, HEAD)
        for frame in frames:
            wire.send_data(stream_id, frame)
        wire.send_trailers(stream_id, last)

    return act


def only(*fields: tuple[bytes, bytes]) -> Any:
    """What answers with a head alone."""
    return lambda wire, stream_id: wire.send_response(stream_id, fields, end_stream=True)


OK_FRAME = b"".join(framed(b"x"))
C = grpc.StatusCode
HOSTILE = {
    "no answer": (answer(), C.INTERNAL),
    "two answers": (answer(OK_FRAME, OK_FRAME), C.INTERNAL),
    "half an answer": (answer(OK_FRAME[:-1]), C.INTERNAL),
    "too large": (answer(b"\0\0\0\x04\1"), C.RESOURCE_EXHAUSTED),
    "compressed in secret": (answer(b"\1\0\0\0\1x"), C.INTERNAL),
    "no status": (answer(OK_FRAME, last=((b"a", b"b"),)), C.UNKNOWN),
    "unknown status": (answer(OK_FRAME, last=((b"grpc-status", b"99"),)), C.UNKNOWN),
    "metadata that is no base64": (answer(OK_FRAME, last=((b"grpc-status", b"0"), (b"a-bin", b"!"))), C.INTERNAL),
    "text that is no UTF-8": (answer(last=((b"grpc-status", b"5"), (b"grpc-message", b"%ff%"))), C.NOT_FOUND),
    "HTTP 503": (only((b":status", b"503")), C.UNAVAILABLE),
    "HTTP 404": (only((b":status", b"404")), C.UNIMPLEMENTED),
    "HTTP 200 of a page": (only((b":status", b"200"), (b"content-type", b"text/html")), C.UNKNOWN),
    "unknown encoding": (
        lambda wire, one: wire.send_response(one, (*HEAD, (b"grpc-encoding", b"br"))), C.UNIMPLEMENTED
    ),
    "refused": (lambda wire, one: wire.reset_stream(one, 7), C.UNAVAILABLE),
    "calm down": (lambda wire, one: wire.reset_stream(one, 11), C.RESOURCE_EXHAUSTED),
    "reset": (lambda wire, one: wire.reset_stream(one, 2), C.INTERNAL),
    "gone": (lambda wire, one: wire.terminate_connection(0, last_stream_id=0), C.UNAVAILABLE),
}  # fmt: skip


@pytest.mark.parametrize("name", HOSTILE)
async def test_hostile_server(name: str) -> None:
    """An answer that breaks gRPC's rules ends its call with a status, and the next one is served."""
    act, code = HOSTILE[name]
    acts = [act, answer(OK_FRAME)]
    async with scripted(lambda wire, one: acts.pop(0)(wire, one)) as (_, channel):
        method = channel.unary_unary("/a/B")
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await method(b"", timeout=LIMIT_S)
        assert caught.value.code() is code
        assert await method(b"", timeout=LIMIT_S) == b"x"


class Sink(asyncio.Transport):
    """Keeps what is written."""

    def __init__(self) -> None:
        super().__init__()
        self.is_closed = False
        self.written = b""

    def write(self, data: Any) -> None:
        self.written += data

    def close(self) -> None:
        self.is_closed = True

    abort = close

    def is_closing(self) -> bool:
        return self.is_closed

    def pause_reading(self) -> None:
        pass

    resume_reading = pause_reading


async def test_mutated_answers() -> None:
    """Whatever bytes a server sends, calls end with a status or wait, and nothing else happens."""
    outcomes: set[grpc.StatusCode | None] = set()
    for seed in range(2_000):
        chance = random.Random(seed)
        server = ngh2.Connection(ngh2.Role.SERVER, ngh2.Configuration())
        server.initiate_connection({})
        arriving = memoryview(bytearray(1 << 16))
        link = Link(arriving, Mock())
        sink = Sink()
        link.connection_made(sink)
        calls = [OutgoingCall(Method(b"/a/B", None, None, 1_024)) for _ in range(2)]
        for call in calls:
            link.begin(call, head_of(b"/a/B", b"a", b"http", None, ()), b"x")
        link.flush()
        server.receive_data(sink.written)
        for event in server.events():
            if isinstance(event, ngh2.RequestReceived):
                answer(OK_FRAME)(server, event.stream_id)
        data = bytearray(server.data_to_send())
        for _ in range(chance.randrange(1, 5)):
            at = chance.randrange(len(data))
            change = chance.randrange(3)
            if change == 0:
                data[at] ^= 1 << chance.randrange(8)
            elif change == 1:
                del data[at : at + chance.randrange(1, 20)]
            else:
                data[at:at] = data[chance.randrange(len(data)) :][: chance.randrange(1, 40)]
        for start in range(0, len(data), 37):
            piece = bytes(data[start : start + 37])
            arriving[: len(piece)] = piece
            link.buffer_updated(len(piece))
        await asyncio.sleep(0)
        link.connection_lost(None)
        assert all(call.done() for call in calls)
        outcomes |= {await call.code() for call in calls}
    assert outcomes >= {C.OK, C.UNAVAILABLE, C.INTERNAL}


async def test_no_http2() -> None:
    """A server that speaks something else."""

    async def serve(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n" * 20)
        writer.close()

    listener = await asyncio.start_server(serve, "127.0.0.1", 0)
    channel = channel_to(f"127.0.0.1:{listener.sockets[0].getsockname()[1]}")
    for _ in range(3):
        assert await _code(channel.unary_unary(APPEND)) is C.UNAVAILABLE
    await channel.close()
    listener.close()


async def test_silent_server(monkeypatch: pytest.MonkeyPatch) -> None:
    """A server that answers no call but pings is waited for."""
    monkeypatch.setattr(links, "SILENCE_S", 0.05)
    monkeypatch.setattr(links, "ANSWER_S", 0.1)
    async with scripted(lambda _, one: None) as (server, channel):
        method = channel.unary_unary("/a/B")
        for _ in range(2):
            call = method(b"")
            await server.received.wait()
            server.received.clear()
            await asyncio.sleep(0.5)
            assert not call.done()
            call.cancel()
        assert server.connection_count == 1


async def test_dead_server(monkeypatch: pytest.MonkeyPatch) -> None:
    """A server that does not even answer pings is given up."""
    monkeypatch.setattr(links, "SILENCE_S", 0.05)
    monkeypatch.setattr(links, "ANSWER_S", 0.1)
    accepted = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        accepted.append(writer)
        while await reader.read(1_000):
            pass
        writer.close()

    listener = await asyncio.start_server(serve, "127.0.0.1", 0)
    channel = channel_to(f"127.0.0.1:{listener.sockets[0].getsockname()[1]}")
    for count in (1, 2):
        assert await _code(channel.unary_unary(APPEND)) is C.UNAVAILABLE
        assert len(accepted) == count
    await channel.close()
    listener.close()


async def test_unread_answers_are_bounded() -> None:
    """What a call holds that nobody reads is its window at most."""
    async with called("http2") as (served, channel):
        served.log.answer = bytes(1 << 20)
        call = channel.unary_stream(DISPATCH)(b"", metadata=said())
        await eventually(lambda: call._unread_bytes >= UNREAD_BYTES_MAX)
        await asyncio.sleep(0.3)
        assert call._unread_bytes <= ANSWER_WINDOW_BYTES
        call.cancel()


async def test_calls_given_up_leave_the_window_whole() -> None:
    """Calls that end with much unread take nothing of what their connection may hold for others."""
    async with called("http2") as (served, channel):
        served.log.answer = bytes(1 << 20)
        for _ in range(2 * CALLING_WINDOW_BYTES // ANSWER_WINDOW_BYTES):
            call = channel.unary_stream(DISPATCH)(b"", metadata=said())
            await eventually(lambda one=call: one._unread_bytes >= UNREAD_BYTES_MAX)
            call.cancel()
        request = bytes(CALLING_WINDOW_BYTES)
        assert await channel.unary_unary(APPEND)(request, timeout=LIMIT_S, metadata=said()) == request


async def test_writing_to_a_server_that_goes() -> None:
    """Who waits until a request has left learns that the server is gone, and is not cancelled."""
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
    """Who closes a channel ends its calls, also those that wait for a connection."""
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
    """Nobody keeps a connection that is closed, with its loop: not the channel, nor a call that is kept itself."""
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
    """A call that is over is not found by the cyclic collector."""
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
