# SPDX-License-Identifier: Apache-2.0
"""MetricsServer: the Prometheus endpoint /metrics, the probe /healthz and /settings, with few threads.

With `context` it speaks TLS, and with `tokens` a caller of /metrics and /settings needs a token. Without tokens the
settings in force are for callers of this machine only: a scraper elsewhere needs no paths and addresses.
Invariants: at most CONNECTION_COUNT_MAX connections are open, each with a thread; a further connection ends the oldest,
so that callers with unfinished requests keep no scraper out. A handshake happens in the connection's thread.
Callers: any thread; the server runs in its own thread.
"""

import contextlib
import ipaddress
import json
import socket
import ssl
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterable
from socketserver import ThreadingMixIn
from typing import Any
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer

from prometheus_client import CollectorRegistry, make_wsgi_app

from libs.runtime.trust.tokens import TokenFile

Start = Callable[[str, list[tuple[str, str]]], object]
"""WSGI's start_response."""

CONNECTION_COUNT_MAX = 16

REQUEST_TIMEOUT_S = 5.0
"""Maximum time for which a connection may send nothing, or read nothing of its answer."""

_CLOSE_LOOK_S = 5.0
"""Interval at which the thread checks whether it must end, on systems that do not wake it."""


class Handler(WSGIRequestHandler):
    """The handler of a connection: it answers a single request."""

    timeout = REQUEST_TIMEOUT_S

    def log_message(self, format: str, *arguments: Any) -> None:  # noqa: A002 - the name is the library's
        """Drop the message: scrapes are not worth a line."""


class MetricsServer(ThreadingMixIn, WSGIServer):
    """The HTTP server. It serves from construction to `close`. Raises OSError if it can't listen on the address."""

    daemon_threads = True
    request_queue_size = 128

    def __init__(
        self,
        host: str,
        port: int,
        registry: CollectorRegistry,
        is_serving: Callable[[], bool] = lambda: True,
        *,
        context: ssl.SSLContext | None = None,
        tokens: TokenFile | None = None,
        settings: Callable[[], object] = lambda: None,
    ) -> None:
        self.address_family, _, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        self._open: OrderedDict[Any, None] = OrderedDict()
        self._lock = threading.Lock()
        super().__init__((str(address[0]), int(address[1])), Handler)
        self._metrics: Callable[[dict[str, Any], Start], Iterable[bytes]] = make_wsgi_app(registry)
        self._is_serving, self._context, self._tokens, self._settings = is_serving, context, tokens, settings
        self.set_app(self._answer)
        self._thread = threading.Thread(target=self.serve_forever, args=(_CLOSE_LOOK_S,), name="metrics", daemon=True)
        self._thread.start()

    def get_request(self) -> tuple[Any, Any]:
        """Return the next connection. Its handshake happens with its first read."""
        connection, address = super().get_request()
        if self._context is not None:
            connection = self._context.wrap_socket(connection, server_side=True, do_handshake_on_connect=False)
        return connection, address

    def process_request(self, request: Any, client_address: Any) -> None:
        """Start a thread for a connection, and end the oldest connection if there are too many."""
        with self._lock:
            if len(self._open) >= CONNECTION_COUNT_MAX:
                oldest, _ = self._open.popitem(last=False)
                _end(oldest)
            self._open[request] = None
        super().process_request(request, client_address)

    def shutdown_request(self, request: Any) -> None:
        """Close a finished connection, and forget it."""
        with self._lock:
            self._open.pop(request, None)
        super().shutdown_request(request)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Ignore the error: the caller has left, or its connection was ended. This is no failure of the server."""

    def _answer(self, environment: dict[str, Any], start: Start) -> Iterable[bytes]:
        """Answer /metrics and /settings, and /healthz with 200 while the gRPC health is SERVING and 503 otherwise."""
        path = environment.get("PATH_INFO", "")
        if path in ("/metrics", "/settings"):
            if self._tokens is not None and not self._tokens.has(_bearer_token(environment)):
                text = "a scraper needs a token of metrics_token_file as bearer token"
                return _say(start, "401 Unauthorized", text, ("WWW-Authenticate", "Bearer"))
            return self._metrics(environment, start) if path == "/metrics" else self._tell_settings(environment, start)
        if path == "/healthz":
            return (
                _say(start, "200 OK", "SERVING")
                if self._is_serving()
                else _say(start, "503 Service Unavailable", "NOT_SERVING")
            )
        return _say(start, "404 Not Found", "here are /metrics, /healthz and /settings")

    def _tell_settings(self, environment: dict[str, Any], start: Start) -> Iterable[bytes]:
        """Answer /settings as JSON."""
        if self._tokens is None and not is_here(str(environment.get("REMOTE_ADDR", ""))):
            return _say(start, "403 Forbidden", "from another machine the settings need metrics_token_file")
        found = self._settings()
        if found is None:
            return _say(start, "503 Service Unavailable", "the service starts")
        start("200 OK", [("Content-Type", "application/json")])
        return [json.dumps(found, ensure_ascii=False).encode() + b"\n"]

    def close(self) -> None:
        """Stop serving at once: the shutdown of the socket wakes the thread."""
        with contextlib.suppress(OSError):
            self.socket.shutdown(socket.SHUT_RDWR)
        self.shutdown()
        self.server_close()
        self._thread.join()


def is_here(address: str) -> bool:
    """Return whether an address of a caller is of this machine's loopback."""
    try:
        found = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return False
    return (getattr(found, "ipv4_mapped", None) or found).is_loopback


def _bearer_token(environment: dict[str, Any]) -> bytes:
    scheme, _, token = str(environment.get("HTTP_AUTHORIZATION", "")).partition(" ")
    return token.strip().encode("latin-1", "replace") if scheme.lower() == "bearer" else b""


def _say(start: Start, status: str, text: str, *headers: tuple[str, str]) -> list[bytes]:
    start(status, [("Content-Type", "text/plain; charset=utf-8"), *headers])
    return [f"{text}\n".encode()]


def _end(connection: Any) -> None:
    """Shut a connection down, so that its thread ends."""
    try:
        connection.shutdown(socket.SHUT_RDWR)
    except OSError:
        return  # its caller has closed it first
