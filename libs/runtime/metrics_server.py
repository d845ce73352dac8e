# SPDX-License-Identifier: Apache-2.0
"""MetricsServer: the Prometheus endpoint /metrics and the probe /healthz, with few threads and little patience.

Invariants: at most CONNECTION_COUNT_MAX connections are open, each with a thread; one more ends the oldest, so that
callers who never finish their request keep no scraper out. Callers: any thread; the server runs in one of its own.
"""

import contextlib
import socket
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterable
from socketserver import ThreadingMixIn
from typing import Any
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer

from prometheus_client import CollectorRegistry, make_wsgi_app

Start = Callable[[str, list[tuple[str, str]]], object]
"""WSGI's start_response."""

CONNECTION_COUNT_MAX = 16

REQUEST_TIMEOUT_S = 5.0
"""How long a connection may say nothing, or take nothing of its answer."""

_CLOSE_LOOK_S = 5.0
"""So often the thread looks whether it is to end where the system does not wake it."""


class Handler(WSGIRequestHandler):
    """Answers one connection: a scrape, and the end."""

    timeout = REQUEST_TIMEOUT_S

    def log_message(self, format: str, *arguments: Any) -> None:  # noqa: A002 - the name is the library's
        """Drop the message: scrapes are not worth a line."""


class MetricsServer(ThreadingMixIn, WSGIServer):
    """Serves from construction to `close`. Raises OSError for an address that can't be had."""

    daemon_threads = True
    request_queue_size = 128

    def __init__(
        self, host: str, port: int, registry: CollectorRegistry, is_serving: Callable[[], bool] = lambda: True
    ) -> None:
        self.address_family, _, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        self._open: OrderedDict[Any, None] = OrderedDict()
        self._lock = threading.Lock()
        super().__init__((str(address[0]), int(address[1])), Handler)
        self._metrics: Callable[[dict[str, Any], Start], Iterable[bytes]] = make_wsgi_app(registry)
        self._is_serving = is_serving
        self.set_app(self._answer)
        self._thread = threading.Thread(target=self.serve_forever, args=(_CLOSE_LOOK_S,), name="metrics", daemon=True)
        self._thread.start()

    def process_request(self, request: Any, client_address: Any) -> None:
        """Begin a thread for a connection, and end the oldest one if there are too many."""
        with self._lock:
            if len(self._open) >= CONNECTION_COUNT_MAX:
                oldest, _ = self._open.popitem(last=False)
                _end(oldest)
            self._open[request] = None
        super().process_request(request, client_address)

    def shutdown_request(self, request: Any) -> None:
        """Close a connection that is finished, and forget it."""
        with self._lock:
            self._open.pop(request, None)
        super().shutdown_request(request)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Ignore the error: a caller that went away, or was ended, is nobody's error."""

    def _answer(self, environment: dict[str, Any], start: Start) -> Iterable[bytes]:
        """Answer /metrics, and /healthz with 200 while the gRPC health is SERVING and 503 otherwise."""
        path = environment.get("PATH_INFO", "")
        if path == "/metrics":
            return self._metrics(environment, start)
        if path == "/healthz":
            return (
                _say(start, "200 OK", "SERVING")
                if self._is_serving()
                else _say(start, "503 Service Unavailable", "NOT_SERVING")
            )
        return _say(start, "404 Not Found", "here are /metrics and /healthz")

    def close(self) -> None:
        """Stop serving, at once: the thread wakes when nothing more can arrive."""
        with contextlib.suppress(OSError):
            self.socket.shutdown(socket.SHUT_RDWR)
        self.shutdown()
        self.server_close()
        self._thread.join()


def _say(start: Start, status: str, text: str) -> list[bytes]:
    start(status, [("Content-Type", "text/plain; charset=utf-8")])
    return [f"{text}\n".encode()]


def _end(connection: Any) -> None:
    """Let the thread of a connection see its end."""
    try:
        connection.shutdown(socket.SHUT_RDWR)
    except OSError:
        return  # its caller was quicker
