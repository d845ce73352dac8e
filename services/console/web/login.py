# SPDX-License-Identifier: Apache-2.0
"""Login: the check that a reader may see the pages.

A session is a signed end of time in a cookie: the console keeps no list of sessions.

The key of the signature comes from a token of `login_token_file`: a token that is taken out of the file ends its
sessions.
"""

import hashlib
import hmac
import secrets

from libs.machine.clock import Clock
from libs.runtime.errors import ConfigError
from libs.runtime.settings import ListenConfig
from libs.runtime.trust.tokens import TokenFile, is_loopback
from services.console.config import ConsoleConfig

SESSION_S = 12 * 3600
BEARER = "Bearer "


def check_login(config: ConsoleConfig, listen: ListenConfig) -> None:
    """Raise ConfigError for an address that other machines reach without a login."""
    has_login = config.login_token_file is not None or listen.tls_client_ca_file is not None
    if not has_login and not is_loopback(listen.listen_host):
        raise ConfigError(
            f"listen_host {listen.listen_host} can be reached from other machines: set login_token_file, "
            "or tls_client_ca_file"
        )


class Login:
    """The login of a console. Without `login_token_file` each caller that reaches the port may see the pages."""

    def __init__(self, config: ConsoleConfig, clock: Clock) -> None:
        self._clock = clock
        file = config.login_token_file
        self._tokens = TokenFile("login_token_file", file) if file is not None else None

    @property
    def is_needed(self) -> bool:
        """Whether callers must log in."""
        return self._tokens is not None

    def session_for(self, token: str) -> str | None:
        """Return a new session for the holder of a token, None for a wrong token."""
        given = token.strip().encode()
        if self._tokens is None or not self._tokens.has(given):
            return None
        end = str(self._clock.now_ms() // 1000 + SESSION_S)
        return f"{end}.{_signed(given, end)}"

    def is_open(self, session: str, authorization: str) -> bool:
        """Return whether a caller with this cookie, or this header Authorization, may see the pages."""
        if self._tokens is None:
            return True
        if authorization.startswith(BEARER):
            return self._tokens.has(authorization.removeprefix(BEARER).strip().encode())
        end, _, signature = session.partition(".")
        if not end.isdecimal() or len(end) > 12 or int(end) < self._clock.now_ms() // 1000:
            return False
        given = signature.encode()
        return any(hmac.compare_digest(_signed(token, end).encode(), given) for token in self._tokens.all_tokens)


def new_form_token() -> str:
    """Return a new token that a form and a cookie must have in common (a double-submit token)."""
    return secrets.token_urlsafe(24)


def is_same(given: str, expected: str) -> bool:
    """Return whether two tokens of a form are the same, and not empty."""
    return bool(given) and hmac.compare_digest(given.encode(), expected.encode())


def _signed(token: bytes, end: str) -> str:
    key = hashlib.sha256(b"reput console session\0" + token).digest()
    return hmac.new(key, end.encode(), hashlib.sha256).hexdigest()
