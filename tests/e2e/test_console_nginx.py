# SPDX-License-Identifier: Apache-2.0
"""The console behind nginx with the configuration of docs/console.md: logins, forms, live tails, and polling."""

import http.client
import json
import re
import socket
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import reput_client

from tests.console.filling import fill
from tests.support.certificates import OPENSSL
from tests.support.console import RunningConsole, console_of
from tests.support.nginx import BUFFERED, COOKIE, NGINX, login_proxy, nginx, trusting
from tests.support.patience import LIMIT_S
from tests.support.reput_up import Store, store

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.skipif(NGINX is None, reason="there is no nginx: apt-get install nginx"),
    pytest.mark.skipif(OPENSSL is None, reason="needs openssl"),
]

PROXIED = ("--trusted-proxies", "127.0.0.1", "--allowed-hosts", "reput.example.com", "--store-timeout-ms", "60000")
HOST = "reput.example.com"


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Store]:
    with store(tmp_path_factory.mktemp("nginx"), "--delivery", "--delivery-port", "0") as running:
        with reput_client.connect(**running.targets) as client:
            fill(client, count=20)
        yield running


@pytest.fixture(scope="module")
def console(filled: Store) -> Iterator[RunningConsole]:
    with console_of(filled.targets, *PROXIED) as running:
        yield running


def ask(port: int, method: str, path: str, body: str = "", **headers: str) -> tuple[int, dict[str, str], str]:
    """Status, headers and text of an answer through nginx."""
    connection = http.client.HTTPSConnection("127.0.0.1", port, timeout=LIMIT_S, context=trusting())
    try:
        given = {"Host": HOST} | {name.replace("_", "-"): value for name, value in headers.items()}
        connection.request(method, path, body or None, given)
        answer = connection.getresponse()
        return answer.status, {name.lower(): text for name, text in answer.getheaders()}, answer.read().decode()
    finally:
        connection.close()


def test_the_proxys_login_opens_the_console(filled: Store, tmp_path: Path) -> None:
    """A reader with a login sees pages; a forged header of another reader is replaced, and opens nothing."""
    header = ("--login-header", "X-Auth-Request-Email")
    with (
        console_of(filled.targets, *PROXIED, *header) as console,
        login_proxy() as login_port,
        nginx(tmp_path, console.port, login_port=login_port) as port,
    ):
        assert ask(port, "GET", "/topics.json", Cookie=COOKIE)[0] == 200
        for forged in ({}, {"X_Auth_Request_Email": "ann@example.com"}, {"Cookie": "_oauth2_proxy=x"}):
            status, _, text = ask(port, "GET", "/topics.json", **forged)
            assert (status, text) == (403, "sign in"), forged
        assert console.get("/topics.json").status == 401


def test_a_form_of_a_page_with_tls(filled: Store, tmp_path: Path) -> None:
    """The login by a token works through the proxy, and its session is for https alone."""
    tokens = tmp_path / "tokens"
    tokens.write_text("right-token\n")
    tokens.chmod(0o600)
    with (
        console_of(filled.targets, *PROXIED, "--login-token-file", str(tokens)) as console,
        nginx(tmp_path, console.port) as port,
    ):
        _, headers, text = ask(port, "GET", "/login")
        shown = re.search(r'form_token" value="([^"]+)"', text)
        assert shown is not None
        sent = {"Content_Type": "application/x-www-form-urlencoded", "Cookie": headers["set-cookie"].partition(";")[0]}
        body = f"token=right-token&form_token={shown[1]}"
        status, headers, _ = ask(port, "POST", "/login", body, Origin=f"https://{HOST}", **sent)
        assert (status, "; Secure" in headers["set-cookie"]) == (303, True)
        assert ask(port, "GET", "/topics.json", Cookie=headers["set-cookie"].partition(";")[0])[0] == 200


def followed(port: int, cursor: str) -> socket.socket:
    """A connection to nginx that follows a topic."""
    tail = trusting().wrap_socket(socket.create_connection(("127.0.0.1", port), LIMIT_S))
    head = f"GET /topics/payments/tail?cursor={cursor} HTTP/1.1\r\nHost: {HOST}\r\n\r\n"
    tail.sendall(head.encode())
    return tail


def send(filled: Store, body: bytes) -> None:
    """Append a message to the topic that is followed."""
    with reput_client.connect(**filled.targets) as client, client.producer() as producer:
        producer.send("payments", body).result()


def test_a_live_tail_is_not_held_back(console: RunningConsole, filled: Store, tmp_path: Path) -> None:
    """A message arrives through nginx while the answer is open, without any line for it in the configuration."""
    with nginx(tmp_path, console.port) as port:
        cursor = console.json("/topics/payments.json")["cursor"]
        with followed(port, cursor) as tail:
            reader = tail.makefile("rb")
            assert any(b"event: hello" in line for line in reader)
            send(filled, b"through nginx")
            assert any(b"through nginx" in line for line in reader)


def test_polling_passes_a_proxy_that_holds_back(console: RunningConsole, filled: Store, tmp_path: Path) -> None:
    """Where a proxy holds events back, the call that browsers then make brings the message."""
    with nginx(tmp_path, console.port, more=BUFFERED) as port:
        cursor = console.json("/topics/payments.json")["cursor"]
        with followed(port, cursor) as tail:
            send(filled, b"by polling")
            end_s, step = time.monotonic() + LIMIT_S, {"count": 0, "cursor": cursor, "rows": ""}
            while not step["count"]:
                assert time.monotonic() < end_s
                status, _, text = ask(port, "GET", f"/topics/payments/newer?cursor={step['cursor']}")
                assert status == 200
                step = json.loads(text)
            assert "by polling" in step["rows"]
            tail.setblocking(False)
            with pytest.raises((BlockingIOError, OSError)):
                tail.recv(1)
