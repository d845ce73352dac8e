# SPDX-License-Identifier: Apache-2.0
"""Gate: the checks of each request before a page is made: bounds, host, origin, login; and the headers of each answer.

A browser runs no script but the console's own files, sends its cookies from no other site, shows the console in no
frame, and keeps no page.
"""

import asyncio
import contextlib
from collections.abc import Callable, Mapping
from email.utils import formatdate
from http import HTTPStatus
from urllib.parse import quote, urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import cookie_parser
from starlette.responses import RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from libs.runtime.settings import ListenConfig
from services.console.config import ConsoleConfig
from services.console.web.login import Login
from services.console.web.proxies import CALLER, Caller, Proxies

TARGET_CHARACTERS_MAX = 4_096
FORM_BYTES_MAX = 8 << 10
UNREAD_TIMEOUT_S = 30.0
"""Longest time for which an answer waits for its reader."""
LOGIN = "/login"
OPEN_PATHS = frozenset({LOGIN, "/healthz"})
STATIC = "/static/"
HEADERS = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
        "form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "same-origin",  # with no-referrer browsers send forms with "Origin: null"
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=()",
}
NO_STORE = "no-store"
LOCAL_NAMES = ("localhost", "127.0.0.1", "::1")


class Gate:
    """The application behind its checks. `refuse` makes the page of a refusal from a status and a sentence."""

    def __init__(
        self,
        behind: ASGIApp,
        config: ConsoleConfig,
        listen: ListenConfig,
        login: Login,
        refuse: Callable[[Scope, int, str], Response],
    ) -> None:
        self._behind, self._login, self._refuse = behind, login, refuse
        names = [name.strip().lower() for name in config.allowed_hosts.split(",") if name.strip()]
        self._hosts = frozenset((*names, listen.listen_host.lower(), *LOCAL_NAMES))
        self._proxies = Proxies(config)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request: by a refusal, or by the application. See ASGI."""
        assert scope["type"] == "http"
        answer = _Answer(send, is_static=scope["path"].startswith(STATIC))
        headers = Headers(scope=scope)
        caller = self._proxies.caller(scope, headers)
        scope = {**scope, "client": (caller.address, 0), "scheme": caller.scheme, CALLER: caller}
        refusal = self._refusal(scope, headers, caller)
        try:
            if refusal is not None:
                await refusal(scope, receive, answer.send)
            else:
                await self._behind(scope, receive, answer.send)
        except TimeoutError:
            if not answer.has_begun:
                raise

    def _refusal(self, scope: Scope, headers: Headers, caller: Caller) -> Response | None:
        """Return the refusal of a request, None for a request to serve."""
        if len(scope["raw_path"]) + len(scope["query_string"]) > TARGET_CHARACTERS_MAX:
            return self._refuse(scope, 414, f"the address has more than {TARGET_CHARACTERS_MAX} characters")
        host = host_of(headers.get("host", ""))
        if host not in self._hosts or len(headers.getlist("host")) != 1:
            name = "no host" if not host else f"the host {host[:80]!r}"
            return self._refuse(scope, 421, f"{name} is not a name of this console: see allowed_hosts")
        if scope["method"] not in ("GET", "HEAD", "POST"):
            return self._refuse(scope, 405, "pages are read with GET, and forms are sent with POST")
        if scope["method"] == "POST" and not is_same_origin(headers, scope["scheme"]):
            return self._refuse(
                scope, 403, "the form comes from another site, or through a proxy that is not in trusted_proxies"
            )
        length = headers.get("content-length", "0")
        if "transfer-encoding" in headers or not length[:9].isdecimal() or int(length[:9]) > FORM_BYTES_MAX:
            return self._refuse(scope, 413, f"a form has its length, and {FORM_BYTES_MAX} bytes at most")
        return self._login_refusal(scope, headers, caller)

    def _login_refusal(self, scope: Scope, headers: Headers, caller: Caller) -> Response | None:
        path, authorization = scope["path"], headers.get("authorization", "")
        if not self._login.is_needed or path.startswith(STATIC):
            return None
        sends_token = bool(authorization) or (path == LOGIN and scope["method"] == "POST")
        if sends_token and not caller.name and (wait_s := self._login.wait_s(caller.address)):
            answer = self._refuse(scope, 429, f"too many wrong tokens from {caller.address}: wait {wait_s} s")
            answer.headers["Retry-After"] = str(wait_s)
            return answer
        session = cookies_of(headers).get(cookie_name(scope, "session"), "")
        if path in OPEN_PATHS or self._login.is_open(caller, session, authorization):
            return None
        if not self._login.has_tokens:
            return self._refuse(scope, 401, "log in at the proxy that stands before this console")
        if path.endswith(".json") or scope["method"] == "POST" or "authorization" in headers:
            return self._refuse(scope, 401, "log in first: /login, or a bearer token of login_token_file")
        return RedirectResponse("/login?next=" + quote("".join(target_of(scope)), safe=""), 303)


class _Answer:
    """An answer on its way: adds the headers, and gives a reader that does not read a limited time."""

    def __init__(self, send: Send, *, is_static: bool) -> None:
        self._send = send
        self._is_static = is_static
        self.has_begun = False

    async def send(self, message: Message) -> None:
        """Send a part of the answer. Raises TimeoutError if it is not read."""
        if message["type"] == "http.response.start":
            self.has_begun = True
            headers = MutableHeaders(scope=message)
            for name, value in HEADERS.items():
                headers[name] = value
            headers["Date"] = formatdate(usegmt=True)
            if not self._is_static:
                headers["Cache-Control"] = NO_STORE
        async with asyncio.timeout(UNREAD_TIMEOUT_S):
            await self._send(message)


def target_of(scope: Scope) -> tuple[str, str]:
    """Return the path and the arguments (with `?`) of a request, as they were sent: names may have a `%`."""
    query = scope["query_string"].decode("latin-1")
    return scope["raw_path"].decode("latin-1"), f"?{query}" if query else ""


def host_of(header: str) -> str:
    """Return the name of a header Host, without its port, in lower case; "" for a header that is none."""
    with contextlib.suppress(ValueError):
        if not set(header) & set("/?#@\\ "):
            return urlsplit(f"//{header}").hostname or ""
    return ""


def is_same_origin(headers: Mapping[str, str], scheme: str) -> bool:
    """Return whether a form was sent by a page of the console itself, as far as the browser says."""
    site, origin = headers.get("sec-fetch-site", ""), headers.get("origin", "")
    if site and site not in ("same-origin", "none"):
        return False
    return not origin or origin == f"{scheme}://{headers.get('host', '')}"


def cookies_of(headers: Headers) -> dict[str, str]:
    """Return the cookies of a request."""
    return cookie_parser(headers.get("cookie", ""))


def cookie_name(scope: Scope, kind: str) -> str:
    """Return the name of a cookie. Browsers share cookies among the ports of a host, so it has the port."""
    port = (scope.get("server") or ("", 0))[1]
    return f"reput_{kind}_{port}"


def status_text(status: int) -> str:
    """Return the title of a status."""
    return HTTPStatus(status).phrase
