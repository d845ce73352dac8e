# SPDX-License-Identifier: Apache-2.0
"""Http2Server: gRPC in the event loop itself, without gRPC's own server: connections, their calls and their end.

`libs.runtime.rpc.server` uses it like the server of grpc.aio: it adds handlers, listens, and stops with a grace.
Invariants: bytes of requests are bounded over all connections, and so are calls.
"""

import asyncio
import contextlib
import ssl
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final, cast

import grpc

from libs.runtime.http2 import wire as h2
from libs.runtime.http2.connection import Budget, Connection
from libs.runtime.http2.connections import CLOSE_S, Connections
from libs.runtime.http2.deadlines import Deadlines
from libs.runtime.http2.endpoint import ARRIVING_BYTES_MAX
from libs.runtime.http2.framing import CallRefused
from libs.runtime.http2.heads import Fields, Head, ending
from libs.runtime.http2.limits import ConnectionLimits

HANDSHAKE_S: Final = 10.0
LOOK_S: Final = 0.005
BACKLOG: Final = 1_024


class Http2Server:
    """A server of gRPC. Callers: a single event loop."""

    def __init__(
        self, limits: ConnectionLimits, *, request_size_bytes_max: int, incoming: Budget, call_count_max: int
    ) -> None:
        self.connections = Connections(limits)
        self.deadlines = Deadlines()
        self.call_count = 0
        self.call_count_max = call_count_max
        self.incoming = incoming
        self.arriving = memoryview(bytearray(ARRIVING_BYTES_MAX))
        self.request_size_bytes_max = request_size_bytes_max
        self._handlers: list[grpc.GenericRpcHandler] = []
        self._listeners: list[asyncio.Server] = []
        self._looking: asyncio.Task[None] | None = None
        self.open_wire = h2.Opener(limits).open

    def add_generic_rpc_handlers(self, handlers: Sequence[grpc.GenericRpcHandler]) -> None:
        """Add handlers. The first added handler that knows a method answers its calls."""
        self._handlers.extend(handlers)

    async def listen_tcp(self, host: str, port: int, context: ssl.SSLContext | None) -> int:
        """Listen on all addresses of a host, and return the port. Raises OSError."""
        listener = await asyncio.get_running_loop().create_server(
            self._connection,
            host,
            port,
            ssl=context,
            ssl_handshake_timeout=None if context is None else HANDSHAKE_S,
            ssl_shutdown_timeout=None if context is None else CLOSE_S,
            backlog=BACKLOG,
        )
        self._listeners.append(listener)
        return int(listener.sockets[0].getsockname()[1])

    async def listen_unix(self, path: Path) -> None:
        """Listen on a Unix socket. Replaces the socket that a killed process left there. Raises OSError."""
        with contextlib.suppress(FileNotFoundError):
            path.unlink()  # noqa: ASYNC240 - quick
        listener = await asyncio.get_running_loop().create_unix_server(self._connection, str(path), backlog=BACKLOG)
        self._listeners.append(listener)

    def close_listeners(self) -> None:
        """Stop listening."""
        for listener in self._listeners:
            listener.close()

    async def start(self) -> None:
        """Start the periodic checks of the connections. Calls are answered as soon as the server listens."""
        self._looking = asyncio.create_task(self.connections.look_after(), name="connections")

    async def stop(self, grace_s: float) -> None:
        """Stop listening. Calls that still run after the grace are cancelled."""
        self.close_listeners()
        self.connections.shut()
        await _until(lambda: not self.call_count, grace_s)
        tasks = [task for connection in self.connections for task in connection.cancel()]
        if tasks:
            await asyncio.wait(tasks)
        for connection in self.connections:
            connection.close()
        await _until(lambda: self.connections.is_empty, 2 * CLOSE_S)
        if self._looking is not None:
            self._looking.cancel()
            await asyncio.wait([self._looking])
        self.deadlines.close()

    # Methods for its connections: it is their Server

    def handler_of(self, head: Head) -> "grpc.RpcMethodHandler[Any, Any] | None":
        """Return the handler of a call. None for an unknown method."""
        for handler in self._handlers:
            found = handler.service(cast("grpc.HandlerCallDetails", head))
            if found is not None:
                return found
        return None

    def ending(self, refusal: CallRefused) -> Fields:
        """Return the end of a call that is refused before a handler sees it."""
        return ending(refusal)

    def _connection(self) -> Connection:
        connection = Connection(self)
        self.connections.greeting(connection)
        return connection


async def _until(is_so: Callable[[], bool], timeout_s: float) -> None:
    """Wait until `is_so` returns True, at most `timeout_s`."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(timeout_s):
            while not is_so():  # noqa: ASYNC110 - it has no event
                await asyncio.sleep(LOOK_S)
