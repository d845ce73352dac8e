# SPDX-License-Identifier: Apache-2.0
"""An S3 server (moto), and a proxy in front of it that fails at random: 500, 503, slow answers, cut connections."""

from __future__ import annotations

import contextlib
import http.client
import random
import socket
import threading
import time
from collections import Counter
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from moto.server import ThreadedMotoServer

FAULTS = {"500": 0.08, "503": 0.08, "slow": 0.05, "cut request": 0.05, "cut answer": 0.05}
"""The share of requests that meet each fault."""
SLOW_S = 0.5


class FaultyS3(ThreadingHTTPServer):
    """The proxy. It forwards requests to the server at `port`."""

    daemon_threads = True

    def __init__(self, port: int, seed: int) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.behind_port = port
        self.counts: Counter[str] = Counter()
        """How many requests met each fault, and `good` requests."""
        self._chance = random.Random(seed)
        self._lock = threading.Lock()

    @property
    def url(self) -> str:
        """The address for clients."""
        return f"http://127.0.0.1:{self.server_port}"

    def fault(self) -> str:
        """Choose the fault of the next request."""
        with self._lock:
            name = self._chance.choices([*FAULTS, "good"], [*FAULTS.values(), 1 - sum(FAULTS.values())])[0]
            self.counts[name] += 1
            return name

    def handle_error(self, request: object, client_address: object) -> None:
        """Ignore the error: a connection was cut."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: FaultyS3

    def _serve(self) -> None:
        fault = self.server.fault()
        size = int(self.headers.get("Content-Length", 0))
        if fault == "cut request":
            self.rfile.read(size // 2)
            return self._cut()
        body = self.rfile.read(size)
        if fault in ("500", "503"):
            return self._answer(int(fault), b"<Error><Code>SlowDown</Code><Message>again</Message></Error>", {})
        if fault == "slow":
            time.sleep(SLOW_S)
        connection = http.client.HTTPConnection("127.0.0.1", self.server.behind_port, timeout=30)
        with contextlib.closing(connection):
            connection.request(self.command, self.path, body, dict(self.headers))
            answer = connection.getresponse()
            content = answer.read()
        if fault == "cut answer":
            return self._cut()
        return self._answer(answer.status, content, dict(answer.headers))

    do_GET = do_PUT = do_POST = do_DELETE = do_HEAD = _serve  # noqa: N815 - the names are the library's

    def _answer(self, status: int, content: bytes, headers: dict[str, str]) -> None:
        self.send_response(status)
        for name, value in headers.items():
            if name.lower() not in ("content-length", "connection", "transfer-encoding", "date", "server"):
                self.send_header(name, value)
        size = headers.get("Content-Length", str(len(content))) if self.command == "HEAD" else str(len(content))
        self.send_header("Content-Length", size)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(content)

    def _cut(self) -> None:
        self.close_connection = True
        with contextlib.suppress(OSError):
            self.connection.shutdown(socket.SHUT_RDWR)

    def log_message(self, format: str, *arguments: object) -> None:  # noqa: A002 - the name is the library's
        """Drop the message."""


@contextlib.contextmanager
def s3() -> Iterator[int]:
    """Run the S3 server for the time of a block. Its port."""
    server = ThreadedMotoServer("127.0.0.1", 0, verbose=False)
    server.start()
    try:
        _, port = server.get_host_and_port()
        yield port
    finally:
        server.stop()


@contextlib.contextmanager
def faulty(port: int, seed: int) -> Iterator[FaultyS3]:
    """Run the proxy for the time of a block."""
    with FaultyS3(port, seed) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()
