# SPDX-License-Identifier: Apache-2.0
"""The metrics endpoint with TLS and with tokens."""

import http.client
import socket
import ssl
from pathlib import Path

import pytest

from libs.runtime.errors import ConfigError
from libs.runtime.settings import ServerConfig, TelemetryConfig
from libs.runtime.watch.metrics_server import CONNECTION_COUNT_MAX
from libs.runtime.watch.telemetry import Telemetry, set_up
from tests.support.certificates import self_signed
from tests.support.surroundings import free_port

TIMEOUT_S = 20.0


def _set_up(server: ServerConfig, port: int, **settings: object) -> Telemetry:
    config = TelemetryConfig(metrics_port=port, **settings)  # type: ignore[arg-type]
    return set_up("commitlog", config, server)


def _get(port: int, path: str, token: str = "", trusted: ssl.SSLContext | None = None) -> int:
    if trusted is None:
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=TIMEOUT_S)
    else:
        connection = http.client.HTTPSConnection("localhost", port, timeout=TIMEOUT_S, context=trusted)
    connection.request("GET", path, headers={"Authorization": f"Bearer {token}"} if token else {})
    return connection.getresponse().status


@pytest.mark.parametrize(
    ("path", "token", "status"),
    [
        ("/settings", "", 401),
        ("/settings", "wrong", 401),
        ("/metrics", "", 401),
        ("/metrics", "wrong", 401),
        ("/metrics", "first\x00", 401),
        ("/metrics", "first", 200),
        ("/metrics", "second", 200),
        ("/healthz", "", 503),
    ],
)
def test_a_scraper_needs_a_token(path: str, token: str, status: int, tmp_path: Path) -> None:
    """Each token of the file is good; the probe needs none."""
    file = tmp_path / "tokens"
    file.write_text("first\nsecond\n")
    port = free_port()
    telemetry = _set_up(ServerConfig(port=0), port, metrics_token_file=file)
    telemetry.is_serving = lambda: False
    try:
        assert _get(port, path, token) == status
    finally:
        telemetry.shutdown()


def test_tls_with_callers_that_begin_no_handshake(tmp_path: Path) -> None:
    """Scrapers with TLS are served beside connections that stay silent, and plain HTTP gets no answer."""
    files = self_signed(tmp_path, "localhost")
    server = ServerConfig(port=0, tls_certificate_file=files["localhost.pem"], tls_key_file=files["localhost.key"])
    port = free_port()
    telemetry = _set_up(server, port, metrics_tls=True)
    silent = [socket.create_connection(("127.0.0.1", port), TIMEOUT_S) for _ in range(CONNECTION_COUNT_MAX)]
    try:
        assert _get(port, "/metrics", trusted=ssl.create_default_context(cafile=str(files["localhost.pem"]))) == 200
        with pytest.raises((http.client.HTTPException, OSError)):
            _get(port, "/metrics")
        with pytest.raises(ssl.SSLError):
            _get(port, "/metrics", trusted=ssl.create_default_context())
    finally:
        for one in silent:
            one.close()
        telemetry.shutdown()


@pytest.mark.parametrize("setting", [{"metrics_tls": True}, {"metrics_token_file": Path("/no/file")}])
def test_unusable_settings_are_refused(setting: dict[str, object]) -> None:
    """TLS without a certificate, and a token file that is not there, end the start with the setting's name."""
    with pytest.raises(ConfigError, match=next(iter(setting))):
        _set_up(ServerConfig(port=0), free_port(), **setting)
