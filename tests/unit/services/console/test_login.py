# SPDX-License-Identifier: Apache-2.0
"""The identity of a caller: headers of proxies that count, and how often an address may send a wrong token."""

import hashlib
from dataclasses import replace
from pathlib import Path

import pytest
from starlette.datastructures import Headers

from libs.machine.clock import SystemClock
from services.console.config import ConsoleConfig
from services.console.web.attempts import ADDRESSES_MAX, AT_ONCE, INTERVAL_S, Attempts
from services.console.web.counts import Counts
from services.console.web.login import Login
from services.console.web.proxies import Caller, Proxies

HEADER = "X-Auth-Request-Email"
PROXIED = ConsoleConfig(trusted_proxies="127.0.0.1, 10.1.0.0/16, fd00::/8", login_header=HEADER)


class HandClock:
    """A clock that a test moves."""

    now_s = 1_000.0

    def now_ms(self) -> int:
        """See `Clock.now_ms`."""
        return round(self.now_s * 1000)

    def monotonic_s(self) -> float:
        """See `Clock.monotonic_s`."""
        return self.now_s


def caller(peer: str, *headers: tuple[str, str], config: ConsoleConfig = PROXIED) -> Caller:
    """Return the caller of a request with these headers."""
    raw = [(name.lower().encode(), value.encode("latin-1")) for name, value in headers]
    return Proxies(config).caller({"type": "http", "client": (peer, 1), "scheme": "http"}, Headers(raw=raw))


@pytest.mark.parametrize("peer", ["127.0.0.1", "10.1.200.3", "fd00::7", "::ffff:10.1.2.3"])
def test_a_trusted_proxy_is_believed(peer: str) -> None:
    """A proxy names the reader, the reader's address, and the scheme; of several addresses the last is its own word."""
    said = ((HEADER, "ann@example.com"), ("X-Forwarded-For", "6.6.6.6, 192.0.2.9"), ("X-Forwarded-Proto", "https"))
    assert caller(peer, *said) == Caller("192.0.2.9", "https", "ann@example.com")
    assert caller(peer) == Caller(peer, "http", "")


@pytest.mark.parametrize("peer", ["127.0.0.2", "10.2.0.1", "fe80::1", "::ffff:10.2.0.1", "", "unix"])
def test_another_peer_is_not_believed(peer: str) -> None:
    """The same headers from another peer say nothing."""
    said = ((HEADER, "ann@example.com"), ("X-Forwarded-For", "192.0.2.9"), ("X-Forwarded-Proto", "https"))
    assert caller(peer, *said) == Caller(peer, "http", "")
    plain = ConsoleConfig()
    assert caller("127.0.0.1", *said, config=plain) == Caller("127.0.0.1", "http", "")
    assert caller("127.0.0.1", *said, config=ConsoleConfig(trusted_proxies="127.0.0.1")).name == ""


@pytest.mark.parametrize(
    "headers",
    [
        ((HEADER, ""),),
        ((HEADER, "  "),),
        ((HEADER, "a\x07b"),),
        ((HEADER, "a" * 257),),
        ((HEADER, "ann"), (HEADER, "bob")),
        (("X_Auth_Request_Email", "ann"),),
        (("X-Auth-Request-Email2", "ann"),),
    ],
)
def test_a_doubtful_name_is_none(headers: tuple[tuple[str, str], ...]) -> None:
    """An empty, unprintable, long or repeated name is no login."""
    assert caller("127.0.0.1", *headers).name == ""


def test_audit_lines_name_the_reader(tmp_path: Path) -> None:
    """The reader of a change has the name that the proxy gives, in any script, else the digest of the token."""
    file = tmp_path / "tokens"
    file.write_text("right-token\n")
    login = Login(replace(PROXIED, login_token_file=file), SystemClock(), Counts())
    named = caller("127.0.0.1", (HEADER, "Дуня".encode().decode("latin-1")))
    assert login.reader_of(named, "", "") == "Дуня"
    digits = hashlib.sha256(b"right-token").hexdigest()[:8]
    assert login.reader_of(caller("127.0.0.1"), "", "Bearer right-token").endswith(digits)
    forged = caller("192.0.2.1", (HEADER, "ann"))
    assert login.reader_of(forged, "", "") == "a reader of the console"


def test_a_doubtful_address_is_the_proxys() -> None:
    """A text that is no address counts as the proxy itself."""
    for text in ("unknown", "", "1.2.3.4,", "999.1.1.1", "1.2.3.4:80"):
        assert caller("127.0.0.1", ("X-Forwarded-For", text)).address == "127.0.0.1"


@pytest.mark.parametrize(
    ("settings", "text"),
    [
        ({"login_header": HEADER}, "login_header needs trusted_proxies"),
        ({"login_header": "X Auth", "trusted_proxies": "::1"}, "letters, digits and hyphens"),
        ({"trusted_proxies": "proxy.example.com"}, "'proxy.example.com' must be an address or a network"),
        ({"trusted_proxies": "10.1.2.3/24"}, "must be an address or a network"),
        ({"trusted_proxies": "::1, 0.0.0.0/0"}, "'0.0.0.0/0' is every address"),
    ],
)
def test_wrong_settings_are_refused(settings: dict[str, str], text: str) -> None:
    """A header without proxies, and a network of all addresses as proxies, are refused by name."""
    with pytest.raises(ValueError, match=text):
        ConsoleConfig(**settings)  # type: ignore[arg-type]


def test_wrong_tokens_wait() -> None:
    """Ten wrong tokens are free, then an address waits, and others do not."""
    clock = HandClock()
    attempts = Attempts(clock)
    for _ in range(AT_ONCE):
        assert attempts.wait_s("192.0.2.1") == 0
        attempts.failed("192.0.2.1")
    assert attempts.wait_s("192.0.2.1") == INTERVAL_S
    assert attempts.wait_s("192.0.2.2") == 0
    clock.now_s += INTERVAL_S - 0.5
    assert attempts.wait_s("192.0.2.1") == 1
    clock.now_s += 0.5
    assert attempts.wait_s("192.0.2.1") == 0
    attempts.failed("192.0.2.1")
    assert attempts.wait_s("192.0.2.1") == INTERVAL_S
    clock.now_s += AT_ONCE * INTERVAL_S
    assert attempts.wait_s("192.0.2.1") == 0


def test_a_network_of_ipv6_is_one_caller() -> None:
    """A caller does not get more attempts by other addresses of its network."""
    attempts = Attempts(HandClock())
    for at in range(AT_ONCE):
        attempts.failed(f"2001:db8:1:2::{at}")
    assert attempts.wait_s("2001:db8:1:2:ffff::1") > 0
    assert attempts.wait_s("2001:db8:1:3::1") == 0


def test_memory_is_bounded() -> None:
    """Any number of addresses takes the room of `ADDRESSES_MAX`, and forgiven addresses go first."""
    clock = HandClock()
    attempts = Attempts(clock)
    for _ in range(AT_ONCE):
        attempts.failed("192.0.2.1")
    for at in range(2 * ADDRESSES_MAX):
        attempts.failed(f"10.{at >> 16}.{at >> 8 & 255}.{at & 255}")
        assert attempts.address_count <= ADDRESSES_MAX
    clock.now_s += INTERVAL_S
    attempts.failed("192.0.2.3")
    assert attempts.address_count == 1
