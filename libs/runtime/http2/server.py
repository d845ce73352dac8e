# SPDX-License-Identifier: Apache-2.0
"""Http2Server: gRPC in the event loop itself, without gRPC's own server: connections, their calls and their end.

To `libs.runtime.rpc.server` it is what grpc.aio's server is: handlers are added, it listens, it stops with a grace.
Invariants: bytes of requests are bounded over all connections; a connection that is silent is asked and then closed.
"""

import asyncio
import contextlib
import ssl
import weakref
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final, cast

import grpc

from libs.runtime.http2.connection import Budget, Connection
from libs.runtime.http2.deadlines import Deadlines
from libs.runtime.http2.heads import Head

CONNECTION_COUNT_MAX: Final = 4_096
SILENCE_S: Final = 60.0
"""A caller that has said nothing for so long is asked for a sign of life."""

ANSWER_S: Final = 20.0
"""So long it has for that."""

HANDSHAKE_S: Final = 10.0
CLOSE_S: Final = 1.0
"""How long a closed connection may take to hand over what was said."""

LOOK_S: Final = 0.005
BACKLOG: Final = 1_024


class Http2Server:
    """See the module. Callers: one event loop."""

    def __init__(self, *, request_size_bytes_max: int, incoming: Budget, call_count_max: int) -> None:
        self.deadlines = Deadlines()
        self.call_count = 0
        self.call_count_max = call_count_max
        self.incoming = incoming
        self.request_size_bytes_max = request_size_bytes_max
        self._handlers: list[grpc.GenericRpcHandler] = []
        self._connections: set[Connection] = set()
        self._greeting: weakref.WeakSet[Connection] = weakref.WeakSet()
        """Those whose handshake of TLS is under way. Nobody tells when one fails."""
        self._listeners: list[asyncio.Server] = []
        self._asking: asyncio.Task[None] | None = None

    def add_generic_rpc_handlers(self, handlers: Sequence[grpc.GenericRpcHandler]) -> None:
        """Ask these, too, who answers a call. The first one that knows counts."""
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
        """Listen on a Unix socket, in place of what a killed process left there. Raises OSError."""
        with contextlib.suppress(FileNotFoundError):
            path.unlink()  # noqa: ASYNC240 - quick
        listener = await asyncio.get_running_loop().create_unix_server(self._connection, str(path), backlog=BACKLOG)
        self._listeners.append(listener)

    def close_listeners(self) -> None:
        """Listen no more."""
        for listener in self._listeners:
            listener.close()

    async def start(self) -> None:
        """Look after the connections. Calls are answered since it listens."""
        self._asking = asyncio.create_task(self._ask(), name="silent connections")

    async def stop(self, grace_s: float) -> None:
        """Listen no more. Calls that still run after the grace are cancelled."""
        self.close_listeners()
        for connection in list(self._connections):
            connection.shut()
        await _until(lambda: not self.call_count, grace_s)
        tasks = [task for connection in self._connections for task in connection.cancel()]
        if tasks:
            await asyncio.wait(tasks)
        for connection in list(self._connections):
            connection.close()
        await _until(lambda: not self._connections and not self._greeting, CLOSE_S)
        for connection in list(self._connections):
            connection.abort()
        await _until(lambda: not self._connections, CLOSE_S)
        if self._asking is not None:
            self._asking.cancel()
            await asyncio.wait([self._asking])
        self.deadlines.close()

    # Server, for its connections.

    def handler_of(self, head: Head) -> "grpc.RpcMethodHandler[Any, Any] | None":
        """Return who answers, or None."""
        for handler in self._handlers:
            found = handler.service(cast("grpc.HandlerCallDetails", head))
            if found is not None:
                return found
        return None

    def opened(self, connection: Connection) -> bool:
        """Note a connection. Returns False if there is no room for it."""
        if len(self._connections) >= CONNECTION_COUNT_MAX:
            return False
        self._greeting.discard(connection)
        self._connections.add(connection)
        return True

    def closed(self, connection: Connection) -> None:
        """Forget a connection."""
        self._connections.discard(connection)

    def _connection(self) -> Connection:
        connection = Connection(self)
        self._greeting.add(connection)
        return connection

    async def _ask(self) -> None:
        while True:
            await asyncio.sleep(ANSWER_S)
            now_s = asyncio.get_running_loop().time()
            for connection in list(self._connections):
                silent_s = now_s - connection.received_at_s
                if silent_s > SILENCE_S + ANSWER_S:
                    connection.abort()
                elif silent_s > SILENCE_S:
                    connection.ping()


async def _until(is_so: Callable[[], bool], timeout_s: float) -> None:
    """Wait until it is so, or the time is over."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(timeout_s):
            while not is_so():  # noqa: ASYNC110 - it has no event
                await asyncio.sleep(LOOK_S)
