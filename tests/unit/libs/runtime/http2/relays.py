# SPDX-License-Identifier: Apache-2.0
"""A server that passes all calls on, and a server of gRPC's own behind it that answers calls of all four kinds."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Sequence
from typing import Any

import grpc

from libs.runtime.http2.calling.outcome import Outcome
from libs.runtime.http2.connection import Connection
from libs.runtime.http2.limits import ConnectionLimits
from libs.runtime.http2.relay.upstream import RelayHandler, Upstream
from libs.runtime.http2.server import Http2Server
from libs.runtime.peer.connection import Peer
from libs.runtime.rpc.fronts.in_loop import IncomingBudget
from libs.runtime.settings import PeerConfig
from libs.runtime.trust.tokens import TokenFile, ensure_local_token

SIZE_MAX = 80 << 20
OPTIONS = [("grpc.max_receive_message_length", SIZE_MAX), ("grpc.max_send_message_length", SIZE_MAX)]


class Relay(grpc.GenericRpcHandler):
    """Passes on every call but those of `/own.`."""

    def __init__(self, targets: Sequence[str], budget_bytes: int = 256 << 20) -> None:
        token = TokenFile("token", ensure_local_token())
        self.channels: list[Any] = [
            Peer(name="p", config=PeerConfig(target=target), token=token).connect_relaying(reconnect_ms_max=100).channel
            for target in targets
        ]
        self.upstream = Upstream(
            "the service x",
            self.channels,
            reason_of=lambda fields: dict(fields).get(b"reason", b"-").decode(),
            unreached=lambda text: Outcome(grpc.StatusCode.UNAVAILABLE, text, (("unreached", "yes"),)),
        )
        self.requests, self.answers = IncomingBudget("requests", budget_bytes), IncomingBudget("answers", budget_bytes)
        self.handler = RelayHandler(self.upstream, self.requests, self.answers, self._own_fields)

    def _own_fields(self, connection: Connection) -> list[tuple[bytes, bytes]]:
        return [(b"reput-door-peer", connection.peer.encode())]

    def service(self, handler_call_details: grpc.HandlerCallDetails) -> RelayHandler | None:
        """Return the handler of all calls that go on."""
        return None if handler_call_details.method.startswith("/own.") else self.handler

    @property
    def held_bytes(self) -> int:
        """Bytes that are held for callers."""
        return self.requests.charged_bytes + self.answers.charged_bytes


class Service:
    """A server that answers calls of all kinds. It keeps the metadata of calls, and how they ended."""

    def __init__(self) -> None:
        self.seen: list[dict[str, str | bytes]] = []
        self.remaining_s: list[float | None] = []
        self.ended = asyncio.Event()
        """A call of `both` or `hang` has ended."""
        self.taken_count = 0
        self.may_read = asyncio.Event()
        self.may_read.set()
        self.reason = ""
        """Refuses all calls with this reason."""
        self.server = grpc.aio.server(options=[*OPTIONS, ("grpc.so_reuseport", 0)])
        self.server.add_generic_rpc_handlers((_Methods(self),))

    async def start(self, port: int = 0) -> str:
        """Listen, and return the address."""
        port = self.server.add_insecure_port(f"127.0.0.1:{port}")
        await self.server.start()
        return f"127.0.0.1:{port}"

    async def note(self, context: Any) -> None:
        """Keep what a call shows, and answer with metadata of both kinds at its begin and its end."""
        self.seen.append(dict(context.invocation_metadata()))
        self.remaining_s.append(context.time_remaining())
        if self.reason:
            context.set_trailing_metadata((("reason", self.reason),))
            await context.abort(grpc.StatusCode.UNAVAILABLE, f"refused: {self.reason}")
        await context.send_initial_metadata((("begun", "yes"), ("begun-bin", b"\0\xfe")))
        context.set_trailing_metadata((("ended", "ü".encode("latin-1").hex()), ("ended-bin", b"\0\xfd")))

    async def unary(self, request: bytes, context: Any) -> bytes:
        """Echo."""
        await self.note(context)
        return request

    async def down(self, request: bytes, context: Any) -> AsyncIterator[bytes]:
        """Answer with as many messages, each of as many bytes, as the request says."""
        await self.note(context)
        count, size = map(int, request.split())
        for number in range(count):
            yield bytes([number % 256]) * size

    async def up(self, requests: AsyncIterator[bytes], context: Any) -> bytes:
        """Return the number of bytes of all requests."""
        await self.note(context)
        size = 0
        async for request in requests:
            size += len(request)
        return b"%d" % size

    async def both(self, requests: AsyncIterator[bytes], context: Any) -> AsyncIterator[bytes]:
        """Echo each request, when it may be read."""
        await self.note(context)
        try:
            async for request in requests:
                await self.may_read.wait()
                self.taken_count += 1
                yield request
        finally:
            self.ended.set()

    async def fail(self, request: bytes, context: Any) -> bytes:
        """Fail with text, metadata and rich details."""
        metadata = (("a-bin", b"\1\2"), ("grpc-status-details-bin", b"\x08\x05\x12\x01x"))
        await context.abort(grpc.StatusCode.NOT_FOUND, "ä% is missing\n", metadata)
        return request

    async def fail_late(self, request: bytes, context: Any) -> AsyncIterator[bytes]:
        """Fail after an answer."""
        yield request
        await context.abort(grpc.StatusCode.DATA_LOSS, "half", (("a", "b"),))

    async def hang(self, _: bytes, context: Any) -> bytes:
        """Never answer."""
        self.remaining_s.append(context.time_remaining())
        try:
            await asyncio.Event().wait()
        finally:
            self.ended.set()
        return b""


class _Methods(grpc.GenericRpcHandler):
    def __init__(self, service: Service) -> None:
        self._handlers = {
            "/x.X/Unary": grpc.unary_unary_rpc_method_handler(service.unary),
            "/x.X/Down": grpc.unary_stream_rpc_method_handler(service.down),
            "/x.X/Up": grpc.stream_unary_rpc_method_handler(service.up),
            "/x.X/Both": grpc.stream_stream_rpc_method_handler(service.both),
            "/x.X/Fail": grpc.unary_unary_rpc_method_handler(service.fail),
            "/x.X/FailLate": grpc.unary_stream_rpc_method_handler(service.fail_late),
            "/x.X/Hang": grpc.unary_unary_rpc_method_handler(service.hang),
        }

    def service(self, handler_call_details: grpc.HandlerCallDetails) -> Any:
        return self._handlers.get(handler_call_details.method)


class Relayed:
    """A relay, the service behind it, and channels to both."""

    relay: Relay
    service: Service
    server: Http2Server
    channel: grpc.aio.Channel
    direct: grpc.aio.Channel
    target: str
    address: str
    """The address of the relay."""


@contextlib.asynccontextmanager
async def relaying(*targets: str, limits: ConnectionLimits | None = None, **options: Any) -> AsyncIterator[Relayed]:
    """A relay to these targets, by default to a service."""
    found = Relayed()
    found.service = Service()
    found.target = await found.service.start()
    found.relay = Relay(targets or (found.target,), **options)
    found.server = Http2Server(
        limits or ConnectionLimits(call_window_size_bytes=1 << 20),
        request_size_bytes_max=SIZE_MAX,
        incoming=IncomingBudget("own", 256 << 20),
        call_count_max=1_000,
    )
    found.server.add_first(found.relay)
    port = await found.server.listen_tcp("127.0.0.1", 0, None)
    found.address = f"127.0.0.1:{port}"
    await found.server.start()
    async with (
        grpc.aio.insecure_channel(found.address, options=OPTIONS) as found.channel,
        grpc.aio.insecure_channel(found.target, options=OPTIONS) as found.direct,
    ):
        try:
            yield found
        finally:
            await found.server.stop(0)
            for channel in found.relay.channels:
                await channel.close()
            await found.service.server.stop(None)
