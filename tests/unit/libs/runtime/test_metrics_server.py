# SPDX-License-Identifier: Apache-2.0
"""The metrics endpoint with callers that never finish."""

import contextlib
import http.client
import socket
import threading
import urllib.request
from collections.abc import Iterator

import pytest
from prometheus_client import CollectorRegistry, Counter

from libs.runtime.watch import metrics_server
from libs.runtime.watch.metrics_server import CONNECTION_COUNT_MAX, MetricsServer, is_here
from tests.support.patience import LIMIT_S

TIMEOUT_S = 20.0


@contextlib.contextmanager
def serving() -> Iterator[MetricsServer]:
    """An endpoint with a counter."""
    registry = CollectorRegistry()
    Counter("seen", "how often", registry=registry).inc()
    server = MetricsServer("127.0.0.1", 0, registry)
    try:
        yield server
    finally:
        server.close()


def scraped(server: MetricsServer) -> str:
    """The page."""
    with urllib.request.urlopen(f"http://127.0.0.1:{server.server_port}/metrics", timeout=TIMEOUT_S) as page:
        text: str = page.read().decode()
        return text


def half_request(server: MetricsServer) -> socket.socket:
    """A caller that does not finish its request."""
    connection = socket.create_connection(("127.0.0.1", server.server_port), TIMEOUT_S)
    connection.sendall(b"GET /metrics HTTP/1.1\r\n")
    return connection


def test_half_requests_keep_no_scraper_out(capfd: pytest.CaptureFixture[str]) -> None:
    """Half requests take few threads; the oldest is ended for the next, without a line on standard error."""
    with serving() as server, contextlib.ExitStack() as stack:
        before = threading.active_count()
        halves = [stack.enter_context(half_request(server)) for _ in range(4 * CONNECTION_COUNT_MAX)]
        for half in halves[: 3 * CONNECTION_COUNT_MAX]:
            assert half.recv(1) == b""
        assert "seen_total 1.0" in scraped(server)
        # the thread of a request that was ended may need a moment
        assert threading.active_count() <= before + 2 * CONNECTION_COUNT_MAX
    assert capfd.readouterr().err == ""


def test_a_silent_connection_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    """A silent connection ends without another caller."""
    monkeypatch.setattr(metrics_server.Handler, "timeout", 0.1)
    with serving() as server, half_request(server) as half:
        assert half.recv(1) == b""


def test_an_end_wakes_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """A close wakes the server, which does not poll for its end."""
    monkeypatch.setattr(metrics_server, "_CLOSE_LOOK_S", 100 * LIMIT_S)
    with serving() as server:
        assert "seen_total 1.0" in scraped(server)
        ending = threading.Thread(target=server.close, daemon=True)
        ending.start()
        ending.join(LIMIT_S)
        assert not ending.is_alive()


def test_it_serves_ipv6() -> None:
    """An IPv6 address is accepted as well."""
    registry = CollectorRegistry()
    try:
        server = MetricsServer("::1", 0, registry)
    except OSError:
        pytest.skip("this machine has no IPv6")
    server.close()


@pytest.mark.parametrize(
    ("path", "is_serving", "status"),
    [
        ("/healthz", True, 200),
        ("/healthz", False, 503),
        ("/", True, 404),
        ("/status", True, 404),
        ("/metrics", False, 200),
    ],
)
def test_each_path_has_its_own_answer(path: str, is_serving: bool, status: int) -> None:
    """A request for another path fails, and /healthz tells whether the service serves."""
    server = MetricsServer("127.0.0.1", 0, CollectorRegistry(), lambda: is_serving)
    try:
        connection = http.client.HTTPConnection("127.0.0.1", server.server_port, timeout=TIMEOUT_S)
        connection.request("GET", path)
        assert connection.getresponse().status == status
    finally:
        server.close()


def test_settings_are_for_callers_of_this_machine() -> None:
    """Without tokens the settings are told on loopback only, however its address is written."""
    here, elsewhere = ("127.0.0.1", "127.8.8.8", "::1", "::ffff:127.0.0.1"), ("", "10.0.0.1", "::", "fe80::1%eth0", "x")
    assert all(map(is_here, here))
    assert not any(map(is_here, elsewhere))
