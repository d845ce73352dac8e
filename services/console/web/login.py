# SPDX-License-Identifier: Apache-2.0
"""Login: the check that a reader may see the pages.

A session is a signed end of time in a cookie: the console keeps no list of sessions.

The key of the signature comes from a token of `login_token_file`: a token that is taken out of the file ends its
sessions.
"""

import hashlib
import hmac
import logging
import secrets

from libs.machine.clock import Clock
from libs.runtime.errors import ConfigError
from libs.runtime.settings import ListenConfig
from libs.runtime.trust.tokens import TokenFile, is_loopback
from services.console.config import ConsoleConfig
from services.console.web.attempts import Attempts
from services.console.web.counts import Counts
from services.console.web.proxies import Caller

_log = logging.getLogger(__name__)

SESSION_S = 12 * 3600
BEARER = "Bearer "


def check_login(config: ConsoleConfig, listen: ListenConfig) -> None:
    """Raise ConfigError for an address that other machines reach without a login."""
    has_token = config.login_token_file is not None
    has_login = has_token or bool(config.login_header) or listen.tls_client_ca_file is not None
    if not has_login and not config.allow_anonymous and not is_loopback(listen.listen_host):
        raise ConfigError(
            f"listen_host {listen.listen_host} can be reached from other machines: set login_token_file, "
            "login_header or tls_client_ca_file, or allow_anonymous = true"
        )
    if not has_login and config.allow_actions and not is_loopback(listen.listen_host):
        raise ConfigError(
            f"allow_actions needs a login at listen_host {listen.listen_host}, which other machines reach: set "
            "login_token_file, login_header or tls_client_ca_file"
        )


class Login:
    """The login of a console. Without a login in the settings each caller that reaches the port may see the pages."""

    def __init__(self, config: ConsoleConfig, clock: Clock, counts: Counts) -> None:
        self._clock, self._counts = clock, counts
        file = config.login_token_file
        self._tokens = TokenFile("login_token_file", file) if file is not None else None
        self._attempts = Attempts(clock)
        self.is_needed = file is not None or bool(config.login_header)
        """Whether callers must log in."""

    @property
    def has_tokens(self) -> bool:
        """Whether a token opens the console."""
        return self._tokens is not None

    def wait_s(self, address: str) -> int:
        """Return how many seconds an address must wait after wrong tokens before it may send another token."""
        return self._attempts.wait_s(address)

    def session_for(self, token: str, address: str) -> str | None:
        """Return a new session for the holder of a token, None for a wrong token."""
        given = token.strip().encode()
        if self._tokens is None or not self._has(given, address):
            return None
        end = str(self._clock.now_ms() // 1000 + SESSION_S)
        return f"{end}.{_signed(given, end)}"

    def is_open(self, caller: Caller, session: str, authorization: str) -> bool:
        """Return whether a caller with this cookie, or this header Authorization, may see the pages."""
        if caller.name or not self.is_needed:
            return True
        if self._tokens is None:
            return False
        if authorization.startswith(BEARER):
            return self._has(authorization.removeprefix(BEARER).strip().encode(), caller.address)
        end, _, signature = session.partition(".")
        if not end.isdecimal() or len(end) > 12 or int(end) < self._clock.now_ms() // 1000:
            return False
        given = signature.encode()
        return any(hmac.compare_digest(_signed(token, end).encode(), given) for token in self._tokens.all_tokens)

    def reader_of(self, caller: Caller, session: str, authorization: str) -> str:
        """Return a name of the reader for audit lines: of the proxy's login, or the begin of the token's digest."""
        if caller.name:
            return caller.name
        if self._tokens is None:
            return "a reader of the console"
        shown = authorization.removeprefix(BEARER).strip().encode()
        end, _, signature = (part.encode() for part in session.partition("."))
        for token in self._tokens.all_tokens:
            signed = _signed(token, end.decode()).encode()
            if hmac.compare_digest(token, shown) or hmac.compare_digest(signed, signature):
                return f"a reader of the console with the token {hashlib.sha256(token).hexdigest()[:8]}"
        return "a reader of the console"

    def _has(self, token: bytes, address: str) -> bool:
        """Return whether a token opens the console, and count a wrong token."""
        assert self._tokens is not None
        if self._tokens.has(token):
            return True
        self._attempts.failed(address)
        self._counts.wrong_tokens_total += 1
        _log.warning("a wrong token for the console from %s", address)
        return False


def new_form_token() -> str:
    """Return a new token that a form and a cookie must have in common (a double-submit token)."""
    return secrets.token_urlsafe(24)


def is_same(given: str, expected: str) -> bool:
    """Return whether two tokens of a form are the same, and not empty."""
    return bool(given) and hmac.compare_digest(given.encode(), expected.encode())


def _signed(token: bytes, end: str) -> str:
    key = hashlib.sha256(b"reput console session\0" + token).digest()
    return hmac.new(key, end.encode(), hashlib.sha256).hexdigest()
