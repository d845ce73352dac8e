# SPDX-License-Identifier: Apache-2.0
"""The calling side against servers that break the rules, do not answer or close the connection."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from typing import Any

import grpc
import ngh2
import pytest

from libs.runtime.http2.calling import link as links
from libs.runtime.http2.calling.call import REPEAT_COUNT_MAX
from libs.runtime.http2.calling.channel import LoopChannel
from libs.runtime.http2.calling.link import Link
from libs.runtime.http2.framing import PREFIX_SIZE_BYTES
from libs.runtime.http2.heads import HEAD
from tests.support.patience import LIMIT_S, eventually
from tests.support.scripted_answers import OK_FRAME, C, answer
from tests.unit.libs.runtime.http2.channels import channel_to, code_of
from tests.unit.libs.runtime.servers import APPEND

pytestmark = pytest.mark.usefixtures("each_session")


class Scripted:
    """A server that handles each call as the test demands, by libnghttp2."""

    def __init__(self, act: Callable[[ngh2.Connection, int], None]) -> None:
        self._act = act
        self.connection_count = self.open_count = 0
        self.received = asyncio.Event()
        self.requests: list[bytes] = []

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
                    elif isinstance(event, ngh2.DataReceived) and event.data:
                        self.requests.append(event.data[PREFIX_SIZE_BYTES:])
                writer.write(wire.data_to_send())
                await writer.drain()
        writer.close()
        self.open_count -= 1


@contextlib.asynccontextmanager
async def scripted(act: Callable[[ngh2.Connection, int], None]) -> AsyncIterator[tuple[Scripted, LoopChannel]]:
    """A scripted server, and a channel to it that accepts answers of a kilobyte."""
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


def only(*fields: tuple[bytes, bytes]) -> Any:
    """An action that answers with a head alone."""
    return lambda wire, stream_id: wire.send_response(stream_id, fields, end_stream=True)


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
    "calm down": (lambda wire, one: wire.reset_stream(one, 11), C.RESOURCE_EXHAUSTED),
    "reset": (lambda wire, one: wire.reset_stream(one, 2), C.INTERNAL),
}  # fmt: skip


@pytest.mark.parametrize("name", HOSTILE)
async def test_hostile_server(name: str) -> None:
    """An answer that breaks gRPC's rules ends its call with a status, and the next call is served."""
    act, code = HOSTILE[name]
    acts = [act, answer(OK_FRAME)]
    async with scripted(lambda wire, one: acts.pop(0)(wire, one)) as (_, channel):
        method = channel.unary_unary("/a/B")
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await method(b"", timeout=LIMIT_S)
        assert caught.value.code() is code
        assert await method(b"", timeout=LIMIT_S) == b"x"


UNTAKEN = {
    "refused": lambda wire, one: wire.reset_stream(one, 7),
    "gone": lambda wire, one: wire.terminate_connection(0, last_stream_id=0),
}
"""Answers of a server whose handler has not seen the call."""


@pytest.mark.parametrize("name", UNTAKEN)
async def test_a_call_that_no_handler_has_seen_begins_again(name: str) -> None:
    """The call with a single request is repeated a few times; then the refusal is its outcome."""
    count = REPEAT_COUNT_MAX
    acts = [*[UNTAKEN[name]] * count, answer(OK_FRAME), *[UNTAKEN[name]] * (count + 1), answer(OK_FRAME)]
    async with scripted(lambda wire, one: acts.pop(0)(wire, one)) as (server, channel):
        method = channel.unary_unary("/a/B")
        assert await method(b"1", timeout=LIMIT_S) == b"x"
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await method(b"2", timeout=LIMIT_S)
        assert caught.value.code() is C.UNAVAILABLE
        assert await method(b"3", timeout=LIMIT_S) == b"x"
        assert server.requests == [b"1"] * (count + 1) + [b"2"] * (count + 1) + [b"3"]


async def test_a_stream_that_no_handler_has_seen_fails() -> None:
    """The channel keeps no requests of a stream, so it does not repeat the stream."""
    async with scripted(lambda wire, one: wire.reset_stream(one, 7)) as (_, channel):
        call = channel.stream_stream("/a/B")(timeout=LIMIT_S)
        await call.write(b"1")
        assert await call.code() is C.UNAVAILABLE


async def test_a_repeated_call_keeps_its_deadline() -> None:
    """The deadline counts from the first attempt, and a cancelled call does not begin again."""
    acts = [UNTAKEN["refused"], lambda _, one: None]
    async with scripted(lambda wire, one: acts.pop(0)(wire, one)) as (_, channel):
        assert await channel.unary_unary("/a/B")(b"", timeout=0.2).code() is C.DEADLINE_EXCEEDED
        assert not acts


async def test_a_connection_that_ends_before_its_first_call(monkeypatch: pytest.MonkeyPatch) -> None:
    """Calls that waited for a connection begin on the next connection if the server shuts the first one at once."""
    open_link, is_shut = Link.connection_made, []

    def open_shut(link: Link, transport: Any) -> None:
        open_link(link, transport)
        if not is_shut:
            wire = ngh2.Connection(ngh2.Role.SERVER, ngh2.Configuration())
            wire.initiate_connection({})
            wire.send_shutdown_notice()
            notice = wire.data_to_send()
            is_shut.append(link)
            link.get_buffer(0)[: len(notice)] = notice
            link.buffer_updated(len(notice))

    monkeypatch.setattr(Link, "connection_made", open_shut)
    async with scripted(answer(OK_FRAME)) as (server, channel):
        calls = [channel.unary_unary("/a/B")(b"", timeout=LIMIT_S) for _ in range(3)]
        assert [await call for call in calls] == [b"x"] * 3
        assert is_shut[0].is_leaving
        assert server.connection_count == 2


async def test_no_http2() -> None:
    """Calls to a server that speaks another protocol fail with UNAVAILABLE."""

    async def serve(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n" * 20)
        writer.close()

    listener = await asyncio.start_server(serve, "127.0.0.1", 0)
    channel = channel_to(f"127.0.0.1:{listener.sockets[0].getsockname()[1]}")
    for _ in range(3):
        assert await code_of(channel.unary_unary(APPEND)) is C.UNAVAILABLE
    await channel.close()
    listener.close()


async def test_silent_server(monkeypatch: pytest.MonkeyPatch) -> None:
    """A server that answers no call but pings is waited for."""
    monkeypatch.setattr(links, "SILENCE_S", 0.05)
    monkeypatch.setattr(links, "ANSWER_S", 1.0)
    async with scripted(lambda _, one: None) as (server, channel):
        method = channel.unary_unary("/a/B")
        for _ in range(2):
            call = method(b"")
            await server.received.wait()
            server.received.clear()
            await asyncio.sleep(1.5)
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
        assert await code_of(channel.unary_unary(APPEND)) is C.UNAVAILABLE
        assert len(accepted) == count
    await channel.close()
    listener.close()
