# SPDX-License-Identifier: Apache-2.0
"""WebServer: uvicorn in the loop of the process, with limits for callers that are slow or many.

Not handled: the meaning of requests (`web.app`), the right to send them (`web.gate`).
"""

import asyncio
import contextlib
import errno
import logging
import socket
from collections.abc import Iterator
from typing import Any

import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from libs.runtime.errors import ListenFailed, PortInUse
from libs.runtime.settings import ListenConfig
from libs.runtime.trust.credentials import ssl_context
from libs.runtime.trust.exposure import check_reach
from services.console.config import ConsoleConfig
from services.console.web.app import Console
from services.console.web.login import check_login

HEAD_BYTES_MAX = 16 << 10
HEAD_TIMEOUT_S = 10.0
"""Longest time in which the head of a request arrives, or a connection stays without a request."""
BACKLOG = 128


class BoundedProtocol(H11Protocol):
    """HTTP/1.1 whose callers must send the head of a request in time: a connection that sends nothing is closed.

    When there are too many connections, the connection that waits longest for a request makes room for the next.
    """

    waiting: asyncio.TimerHandle | None = None
    """The end of its time for a head; None while a request is answered."""

    def connection_made(self, transport: Any) -> None:
        """See asyncio.Protocol."""
        super().connection_made(transport)
        self._make_room()
        self._wait_for_head()

    def connection_lost(self, exc: Exception | None) -> None:
        """See asyncio.Protocol."""
        self._stop_waiting()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """See asyncio.Protocol. The time runs from the first byte to the end of the head."""
        super().data_received(data)
        if self._has_request():
            self._stop_waiting()
        elif self.waiting is None:
            self._wait_for_head()

    def on_response_complete(self) -> None:
        """See uvicorn: the answer has left, and the connection waits for its next request."""
        super().on_response_complete()
        if self.waiting is None and not self._has_request():
            self._wait_for_head()

    def _has_request(self) -> bool:
        return self.cycle is not None and not self.cycle.response_complete

    def _make_room(self) -> None:
        if self.limit_concurrency is None or len(self.connections) < self.limit_concurrency:
            return
        known = [one for one in self.connections if isinstance(one, BoundedProtocol)]
        waiting = [(one.waiting.when(), one) for one in known if one.waiting is not None]
        if waiting:
            min(waiting, key=lambda found: found[0])[1].give_up()

    def _wait_for_head(self) -> None:
        self.waiting = self.loop.call_later(HEAD_TIMEOUT_S, self.give_up)

    def _stop_waiting(self) -> None:
        if self.waiting is not None:
            self.waiting.cancel()
            self.waiting = None

    def give_up(self) -> None:
        """Close the connection, unless it has a request."""
        self._stop_waiting()
        if not self._has_request() and not self.transport.is_closing():
            self.transport.close()
            self.connections.discard(self)  # its place is free at once


class _Uvicorn(uvicorn.Server):
    """uvicorn whose signals are the process's own, and that never wakes by itself."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Leave the signals to `libs.runtime.process`."""
        yield

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self._ended = asyncio.Event()

    def end(self) -> None:
        """End `serve`."""
        self.should_exit = True
        self._ended.set()

    async def main_loop(self) -> None:
        """Wait for the end: uvicorn's own loop wakes ten times a second, for the date of answers (see `web.gate`)."""
        await self._ended.wait()


class WebServer:
    """The server of the console. Raises ConfigError for an address that others reach without TLS or a login."""

    def __init__(self, console: Console, config: ConsoleConfig, listen: ListenConfig) -> None:
        check_reach(listen)
        check_login(config, listen)
        self.port = 0
        self.is_healthy = False
        self._console, self._listen = console, listen
        self._serving: asyncio.Task[None] | None = None
        for name in ("uvicorn", "uvicorn.error", "uvicorn.access", "reput_client"):
            logging.getLogger(name).setLevel(logging.ERROR)  # each wrong request of a reader would be a line
        web = uvicorn.Config(
            console.application,
            http=BoundedProtocol,
            ws="none",
            lifespan="off",
            log_config=None,
            access_log=False,
            proxy_headers=False,
            server_header=False,
            date_header=False,
            limit_concurrency=config.connection_count_max,
            timeout_keep_alive=round(HEAD_TIMEOUT_S),
            h11_max_incomplete_event_size=HEAD_BYTES_MAX,
        )
        web.load()
        web.ssl = ssl_context(listen, protocol="http/1.1")
        self._web = _Uvicorn(web)

    async def start(self) -> None:
        """Listen and answer. Pages get status 503 until `admit`. Raises PortInUse or ListenFailed."""
        listener = self._bound()
        self.port = listener.getsockname()[1]
        self._serving = asyncio.create_task(self._web.serve(sockets=[listener]), name="web")
        while not self._web.started and not self._serving.done():  # noqa: ASYNC110 - uvicorn has no event for it
            await asyncio.sleep(0.01)
        if self._serving.done():
            self._serving.result()

    def admit(self) -> None:
        """Serve pages."""
        self._console.is_ready = True

    async def set_healthy(self) -> None:
        """Let /healthz say that it serves."""
        self.is_healthy = True

    async def drain(self) -> None:
        """Refuse new pages. Running requests continue."""
        self.is_healthy = False
        self._console.is_ready = False

    async def stop(self, grace_s: float) -> None:
        """Stop listening. Requests that still run after the grace are cancelled."""
        self._console.end_tails()
        if self._serving is not None:
            self._web.config.timeout_graceful_shutdown = max(round(grace_s), 1)
            self._web.end()
            await asyncio.wait([self._serving])

    def _bound(self) -> socket.socket:
        """Return a socket that listens on the address. Raises PortInUse or ListenFailed."""
        host, port = self._listen.listen_host, self._listen.port
        address = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
        try:
            family, kind, protocol, _, place = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
            listener = socket.socket(family, kind, protocol)
        except OSError as error:
            raise ListenFailed(address, reason=error.strerror or str(error)) from error
        try:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listener.bind(place)
            listener.listen(BACKLOG)
        except OSError as error:
            listener.close()
            if error.errno == errno.EADDRINUSE:
                raise PortInUse(address, setting="port") from error
            raise ListenFailed(address, reason=error.strerror or str(error)) from error
        listener.setblocking(False)
        return listener
