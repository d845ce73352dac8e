# SPDX-License-Identifier: Apache-2.0
"""An S3 server (moto) behind a proxy that answers errors, is slow, loses answers and cuts connections."""

import enum
import http.client
import logging
import socket
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any
from urllib.parse import urlencode

BUCKET = "bucket"
CREDENTIALS = {
    "AWS_ACCESS_KEY_ID": "key",
    "AWS_SECRET_ACCESS_KEY": "secret",
    "AWS_REGION": "us-east-1",
}
SLOW_S = 1.0
HOP_BY_HOP = ("connection", "transfer-encoding", "content-length")


class Fault(enum.Enum):
    """The treatment of a request."""

    NONE = enum.auto()
    ERROR_500 = enum.auto()
    ERROR_503 = enum.auto()
    SLOW = enum.auto()
    """The request is done at once, and answered after SLOW_S."""
    CUT = enum.auto()
    """The connection is closed before the request is done."""
    LOST = enum.auto()
    """The request is done, and the connection closed without an answer."""
    HALF = enum.auto()
    """The request is done, and the connection closed in the middle of the answer's body."""
    REFUSED = enum.auto()
    """403."""


STATUSES = {Fault.ERROR_500: 500, Fault.ERROR_503: 503, Fault.REFUSED: 403}
PASSING = (Fault.ERROR_500, Fault.ERROR_503, Fault.SLOW, Fault.CUT, Fault.LOST, Fault.HALF)


@dataclass
class FaultyS3:
    """A server. `choose` is asked for the treatment of each request, by the number of the request."""

    port: int
    choose: Callable[[int], Fault] = lambda _number: Fault.NONE
    requests: list[tuple[str, str, Fault]] = field(default_factory=list)

    def treat(self, choose: Callable[[int], Fault]) -> None:
        """Begin to count anew, with another treatment."""
        self.requests.clear()
        self.choose = choose

    @staticmethod
    def put_at_once(prefix: str, names: list[str]) -> None:
        """Put small objects without a request for each."""
        from moto.core import DEFAULT_ACCOUNT_ID
        from moto.s3.models import s3_backends

        for name in names:
            s3_backends[DEFAULT_ACCOUNT_ID]["aws"].put_object(BUCKET, f"{prefix}/{name}", b"x")

    def url(self, prefix: str, *, retry_s: float = 120.0, timeout_s: float = 60.0, bucket: str = BUCKET) -> str:
        """Return the place of backups under a prefix."""
        options = {"endpoint": f"http://127.0.0.1:{self.port}", "retry_s": retry_s, "timeout_s": timeout_s}
        return f"s3://{bucket}/{prefix}?{urlencode(options)}"


@contextmanager
def faulty_s3() -> Iterator[FaultyS3]:
    """A server with an empty bucket."""
    from moto.server import ThreadedMotoServer

    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    behind = ThreadedMotoServer("127.0.0.1", 0, verbose=False)
    behind.start()
    port = behind.get_host_and_port()[1]
    create = urllib.request.Request(f"http://127.0.0.1:{port}/{BUCKET}", method="PUT")
    urllib.request.urlopen(create).close()
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Handler)
    server.daemon_threads = True
    server.behind_port, server.faulty = port, FaultyS3(server.server_port)  # type: ignore[attr-defined]
    thread = Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield server.faulty  # type: ignore[attr-defined]
    finally:
        server.shutdown()
        server.server_close()
        behind.stop()


class _Handler(BaseHTTPRequestHandler):
    """Passes requests on."""

    protocol_version = "HTTP/1.1"
    server: Any

    def log_message(self, *_arguments: Any) -> None:
        """Say nothing."""

    def _treat(self) -> None:
        faulty = self.server.faulty
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        fault = faulty.choose(len(faulty.requests))
        faulty.requests.append((self.command, self.path, fault))
        if fault in STATUSES:
            self._answer(STATUSES[fault], [], b"")
        elif fault is Fault.CUT:
            self._cut()
        else:
            self._pass_on(body, fault)

    def _pass_on(self, body: bytes, fault: Fault) -> None:
        behind = http.client.HTTPConnection("127.0.0.1", self.server.behind_port)
        behind.request(self.command, self.path, body, dict(self.headers))
        answer = behind.getresponse()
        data = answer.read()
        behind.close()
        if fault is Fault.SLOW:
            time.sleep(SLOW_S)
        if fault is Fault.LOST or (fault is Fault.HALF and not data):
            self._cut()
            return
        self._answer(answer.status, answer.getheaders(), data, is_half=fault is Fault.HALF)

    def _answer(self, status: int, headers: list[tuple[str, str]], data: bytes, *, is_half: bool = False) -> None:
        try:
            self.send_response(status)
            for name, value in headers:
                if name.lower() not in HOP_BY_HOP:
                    self.send_header(name, value)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data[: len(data) // 2] if is_half else data)
            self.wfile.flush()
        except ConnectionError:
            self.close_connection = True
        if is_half:
            self._cut()

    def _cut(self) -> None:
        self.close_connection = True
        try:
            self.connection.shutdown(socket.SHUT_RDWR)
        except OSError:
            return

    do_DELETE = do_GET = do_HEAD = do_POST = do_PUT = _treat  # noqa: N815 - names of http.server
