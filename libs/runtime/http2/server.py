# SPDX-License-Identifier: Apache-2.0
"""Http2Server: gRPC in the event loop itself, without gRPC's own server: connections, their calls and their end.

`libs.runtime.rpc.server` uses it like the server of grpc.aio: it adds handlers, listens, and stops with a grace.
Invariants: bytes of requests are bounded over all connections, and so are calls.
"""

import asyncio
import contextlib
import logging
import ssl
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final, cast

import grpc

from libs.runtime.http2.connection import Connection
from libs.runtime.http2.connections import CLOSE_S, Connections
from libs.runtime.http2.deadlines import Deadlines
from libs.runtime.http2.endpoint import ARRIVING_BYTES_MAX, WORK_OF_A_CALL
from libs.runtime.http2.framing import CallRefused
from libs.runtime.http2.heads import Fields, Head, HttpRefused, ending
from libs.runtime.http2.limits import ConnectionLimits
from libs.runtime.http2.relay.call import RelayedCall
from libs.runtime.http2.relay.upstream import RelayHandler
from libs.runtime.http2.serving import Budget
from libs.runtime.http2.session import build
from libs.runtime.http2.session.opener import SessionLimits
from libs.runtime.http2.session.plain import PlainSession
from libs.runtime.http2.turns import TurnHandler, Turns

HANDSHAKE_S: Final = 10.0
LOOK_S: Final = 0.005
BACKLOG: Final = 1_024

WORK_IN_A_GROUP: Final = 4
"""Work of a call that costs less together with the other calls of its turn."""

_FIXED: Final = type(grpc.method_handlers_generic_handler("", {}))
"""The type of handlers whose methods do not change. Handlers of other types are asked about each call."""

_log = logging.getLogger(__name__)


class Http2Server:
    """A server of gRPC. Callers: a single event loop."""

    def __init__(
        self, limits: ConnectionLimits, *, request_size_bytes_max: int, incoming: Budget, call_count_max: int
    ) -> None:
        self.connections = Connections(limits)
        self.deadlines = Deadlines()
        self.call_count = 0
        self.call_count_max = call_count_max
        self.unknown_text = "Method not found!"
        self.incoming = incoming
        self.arriving = memoryview(bytearray(ARRIVING_BYTES_MAX))
        self.request_size_bytes_max = request_size_bytes_max
        self.turns = Turns()
        self._handlers: list[grpc.GenericRpcHandler] = []
        """Handlers with a fixed table of methods."""
        self._judges: list[grpc.GenericRpcHandler] = []
        """All other handlers."""
        self._door: grpc.GenericRpcHandler | None = None
        """The first of them, if it passes calls on."""
        self._methods: dict[str, grpc.RpcMethodHandler[Any, Any]] = {}
        """Methods that were called, and their handlers."""
        self._listeners: list[asyncio.Server] = []
        self._looking: asyncio.Task[None] | None = None
        self._session_limits = SessionLimits(limits, request_size_bytes_max, self._head_of)
        self._session, reason = build.best()
        if reason:
            _log.warning("the HTTP/2 session is not compiled, so calls cost twice the processor time: %s", reason)

    def add_generic_rpc_handlers(self, handlers: Sequence[grpc.GenericRpcHandler]) -> None:
        """Add handlers. The first added handler that knows a method answers its calls.

        Handlers that are asked about each call come before handlers with a fixed table.
        """
        for handler in handlers:
            (self._handlers if type(handler) is _FIXED else self._judges).append(handler)

    def add_first(self, handler: grpc.GenericRpcHandler) -> None:
        """Add a handler that is asked about each call before all others, and may pass calls on."""
        self._door = handler
        self._judges.insert(0, handler)

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

    def end_relayed_streams(self) -> None:
        """End calls that were passed on and may last for ever. Other calls go on."""
        for connection in self.open_connections():
            for call in list(connection.calls):
                if isinstance(call, RelayedCall) and call.is_stream:
                    call.cancel()

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
        return self.refusing(head) or self._method(head)

    def refusing(self, head: Head) -> "grpc.RpcMethodHandler[Any, Any] | None":
        """Return the handler that refuses a call of a known method. None for a call that is permitted."""
        return _first(self._judges, head)

    def _relaying(self, head: Head) -> "grpc.RpcMethodHandler[Any, Any] | None":
        return None if self._door is None else self._door.service(cast("grpc.HandlerCallDetails", head))

    def _method(self, head: Head) -> "grpc.RpcMethodHandler[Any, Any] | None":
        found = self._methods.get(head.method)
        if found is None:
            found = _first(self._handlers, head)
            if found is not None:
                self._methods[head.method] = found
        return found

    def _head_of(self, fields: Fields) -> Head | None:
        """Return the head of a call that may come whole. None if its method is unknown or takes a stream of requests.

        `fields` have no grpc-timeout. None also for a head that is refused.
        """
        try:
            head = Head(fields)
            head.check()
        except (HttpRefused, CallRefused):
            return None
        head.handler = self._relaying(head) or self._method(head)
        if isinstance(head.handler, RelayHandler):
            head.work = WORK_OF_A_CALL
            return head
        if head.handler is None or head.handler.request_streaming:
            return None
        is_quick = isinstance(head.handler, TurnHandler) and head.handler.is_quick
        head.work = WORK_IN_A_GROUP if is_quick else WORK_OF_A_CALL
        return head

    def open_session(self) -> PlainSession:
        """Return HTTP/2 for a connection, whose settings are ready to be sent."""
        return self._session(self._session_limits)

    def open_connections(self) -> Iterator[Connection]:
        """Iterate over the connections that are open now."""
        return cast("Iterator[Connection]", iter(self.connections))

    def ending(self, refusal: CallRefused) -> Fields:
        """Return the end of a call that is refused before a handler sees it."""
        return ending(refusal)

    def _connection(self) -> Connection:
        connection = Connection(self)
        self.connections.greeting(connection)
        return connection


def _first(handlers: "Sequence[grpc.GenericRpcHandler]", head: Head) -> "grpc.RpcMethodHandler[Any, Any] | None":
    for handler in handlers:
        found = handler.service(cast("grpc.HandlerCallDetails", head))
        if found is not None:
            return found
    return None


async def _until(is_so: Callable[[], bool], timeout_s: float) -> None:
    """Wait until `is_so` returns True, at most `timeout_s`."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(timeout_s):
            while not is_so():  # noqa: ASYNC110 - it has no event
                await asyncio.sleep(LOOK_S)
