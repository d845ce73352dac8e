# SPDX-License-Identifier: Apache-2.0
"""Logins of the console: by a token, or by a name from a proxy; wrong tokens wait."""

import re
from pathlib import Path

import pytest

from tests.support.console import Answer, RunningConsole, console_of

pytestmark = pytest.mark.e2e

AWAY = dict.fromkeys(("commitlog", "indexer", "janitor", "delivery"), "127.0.0.1:1")
BEYOND = ("--listen-host", "0.0.0.0", "--allow-insecure", "true", "--store-timeout-ms", "500")
HEADER = "X-Auth-Request-Email"
FORM = {"Content-Type": "application/x-www-form-urlencoded"}


@pytest.fixture
def tokens(tmp_path: Path) -> Path:
    file = tmp_path / "tokens"
    file.write_text("right-token\n")
    file.chmod(0o600)
    return file


def log_in(console: RunningConsole, token: str, **headers: str) -> Answer:
    """Send the form of the login as a browser does, with the token of its page."""
    given = {name.replace("_", "-"): value for name, value in headers.items()}
    page = console.ask("GET", "/login", given)
    cookie, shown = page.headers["set-cookie"].partition(";")[0], re.search(r'form_token" value="([^"]+)"', page.text)
    assert shown is not None
    return console.ask("POST", "/login", {**FORM, **given, "Cookie": cookie}, f"token={token}&form_token={shown[1]}")


def test_anonymous_readers_beyond_loopback() -> None:
    """With `allow_anonymous` a console beyond loopback needs no login; foreign hosts stay refused."""
    with console_of(AWAY, *BEYOND, "--allow-anonymous", "true") as console:
        assert console.get("/").status == 200
        assert console.get("/", Host="console.example.com").status == 421


def test_a_reader_whom_a_proxy_names() -> None:
    """A name from the trusted proxy opens the console, an absent, empty or doubled name does not."""
    proxied = ("--login-header", HEADER, "--trusted-proxies", "127.0.0.1")
    with console_of(AWAY, *BEYOND, *proxied) as console:
        assert console.ask("GET", "/", {HEADER: "ann@example.com"}).status == 200
        for headers in ({}, {HEADER: ""}, {"X_Auth_Request_Email": "ann@example.com"}):
            for path in ("/", "/store.json", "/topics/orders/newer?cursor=0.0"):
                answer = console.ask("GET", path, headers)
                assert (answer.status, "log in at the proxy" in answer.text) == (401, True), (path, headers)
        assert console.ask("GET", "/", {"Authorization": "Bearer x"}).status == 401
        assert console.get("/healthz").status == 200


def test_a_forged_name_of_another_peer(tokens: Path) -> None:
    """The header from a peer that is not in `trusted_proxies` is nothing; a token opens the console for it."""
    proxied = ("--login-header", HEADER, "--trusted-proxies", "10.1.0.0/16", "--login-token-file", str(tokens))
    with console_of(AWAY, *proxied) as console:
        forged = {HEADER: "ann@example.com", "X-Forwarded-For": "10.1.0.1", "Forwarded": "for=10.1.0.1"}
        assert console.ask("GET", "/", forged).status == 303
        assert console.ask("GET", "/store.json", forged).status == 401
        assert console.ask("GET", "/", {**forged, "Authorization": "Bearer right-token"}).status == 200


def test_a_login_behind_a_proxy_with_tls(tokens: Path) -> None:
    """The browser's origin is the proxy's, with https; its session is then for https alone."""
    flags = ("--login-token-file", str(tokens), "--allowed-hosts", "reput.example.com")
    said = {"Host": "reput.example.com", "Origin": "https://reput.example.com", "X_Forwarded_Proto": "https"}
    with console_of(AWAY, *flags, "--trusted-proxies", "127.0.0.1") as console:
        answer = log_in(console, "right-token", **said)
        assert (answer.status, "; Secure" in answer.headers["set-cookie"]) == (303, True)
        foreign = log_in(console, "right-token", **{**said, "Origin": "https://evil.example"})
        assert foreign.status == 403
    with console_of(AWAY, *flags) as console:
        answer = log_in(console, "right-token", **said)
        assert (answer.status, "trusted_proxies" in answer.text) == (403, True)


def test_wrong_tokens_wait(tokens: Path) -> None:
    """After ten wrong tokens an address gets 429 with a time, for the form and for programs; its sessions stay."""
    flags = ("--login-token-file", str(tokens), "--trusted-proxies", "127.0.0.1")
    with console_of(AWAY, *flags) as console:
        session = log_in(console, "right-token").headers["set-cookie"].partition(";")[0]
        wrong = [log_in(console, f"wrong-{at}").status for at in range(5)]
        wrong += [console.get("/store.json", Authorization=f"Bearer wrong-{at}").status for at in range(5)]
        assert wrong == [401] * 10
        for answer in (log_in(console, "right-token"), console.get("/x.json", Authorization="Bearer right-token")):
            assert (answer.status, 0 < int(answer.headers["retry-after"]) <= 60) == (429, True)
        assert console.get("/", Cookie=session).status == 200
        assert console.get("/login").status == 200
        other = console.get("/x.json", Authorization="Bearer right-token", X_Forwarded_For="192.0.2.1")
        assert other.status == 404


def test_forged_cookies(tokens: Path) -> None:
    """No cookie opens the console that was not made with a token of the file."""
    with console_of(AWAY, "--login-token-file", str(tokens)) as console:
        good = log_in(console, "right-token").headers["set-cookie"].partition(";")[0]
        name, _, value = good.partition("=")
        end, _, signature = value.partition(".")
        forged = (
            f"{int(end) + 1}.{signature}", f"{end}.{signature[:-1]}", f"{end}.", f".{signature}", end, "", "." * 4_000,
            f"{end}.{signature}.x", f"9{end}.{signature}", f"-{end}.{signature}", f"{end}.{signature.upper()}x",
            f"٣{end}.{signature}".encode().decode("latin-1"), "\xff.\xff",
        )  # fmt: skip
        for text in forged:
            answer = console.ask("GET", "/", {"Cookie": f"{name}={text}"})
            assert answer.status == 303, text
        other = name.rpartition("_")[0]
        for text in (f"{other}_1={value}", f"{name}={value}; {name}=x", ";" * 2_000, "=" * 2_000, f"\t{name}"):
            assert console.ask("GET", "/", {"Cookie": text}).status == 303, text
        assert console.ask("GET", "/", {"Cookie": good}).status == 200


def test_forged_hosts(tokens: Path) -> None:
    """A name that is not the console's gets no page, no form and no redirect, also as a second or absolute name."""
    with console_of(AWAY, "--login-token-file", str(tokens), "--allowed-hosts", "reput.example.com") as console:
        for host in ("evil.example", "reput.example.com.evil.example", "reput.example.com@evil.example", "", "127.1"):
            answer = console.get("/", Host=host, X_Forwarded_Host="reput.example.com")
            assert (answer.status, answer.headers.get("location")) == (421, None), host
        assert console.get("/", Host="REPUT.example.com:443").headers["location"] == "/login?next=%2F"
