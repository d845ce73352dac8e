# SPDX-License-Identifier: Apache-2.0
"""Console: the application: each page and its twin as JSON, the login, the files, and the health."""

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import msgspec
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import HTMLResponse, PlainTextResponse, RedirectResponse, Response
from starlette.routing import BaseRoute, Mount, Route
from starlette.staticfiles import StaticFiles
from starlette.types import Scope

from libs.runtime.settings import ListenConfig
from services.console.ask.store import Store
from services.console.config import ConsoleConfig
from services.console.pages.page import SHARD_OPTIONS, Page
from services.console.web.bodies import Bodies
from services.console.web.changes import Answering, Changes
from services.console.web.counts import Counts
from services.console.web.forms import form_of
from services.console.web.gate import Gate, cookie_name, cookies_of, status_text
from services.console.web.login import SESSION_S, Login, is_same, new_form_token
from services.console.web.proxies import caller_of
from services.console.web.rendering import Renderer
from services.console.web.routes import OF_ALL_SHARDS, PAGES, START, Make, argument
from services.console.web.shards import links_of, named, options_of, place_of, routes_of_shards, store_of
from services.console.web.tails import Tails

_log = logging.getLogger(__name__)

STATIC = Path(__file__).parent / "static"
CALLS_IN_A_ROW = 4
"""A page asks for at most the time of so many calls of the store. A question that was not asked by then is a gap."""
TURN_TIMEOUT_S = 2.0
PAGE_TIMEOUT_S = 3.0
"""Time for making a page beside its questions."""


class Console:
    """The application. Callers: the event loop; `counts` from any thread."""

    def __init__(self, store: Store, config: ConsoleConfig, listen: ListenConfig) -> None:
        self.is_ready = False
        self.counts = Counts()
        self._store = store
        answer_timeout_s = CALLS_IN_A_ROW * config.store_timeout_ms / 1000
        for one in (store, *store.shards.values()):
            one.answer_timeout_s = answer_timeout_s
        self._page_timeout_s = answer_timeout_s + PAGE_TIMEOUT_S
        self._login = Login(config, store.clock, self.counts)
        self._renderer = Renderer()
        self._turns = asyncio.Semaphore(config.page_count_max)
        self._tails = Tails(store, self._renderer, self.counts, count_max=config.tail_count_max)
        answering = Answering(self._made, self._shown, self._shown_json, self.refusal)
        self._changes = Changes(self.counts, answering, self._reader_of)
        self.allow_actions(config.allow_actions)
        routes: list[BaseRoute] = [route for path, make in PAGES for route in self._routes(path, make)]
        bodies = Bodies(store, self.refusal, timeout_s=self._page_timeout_s)
        routes += [
            Route("/", self._html(START)),
            Route("/messages/{name}/body", bodies, methods=["GET"]),
            Route("/topics/{name}/tail", self._tails.events),
            Route("/topics/{name}/newer", self._tails.newer),
        ]
        routes = [*self._changes.routes(), *routes]
        if store.shards:
            routes = [*self._routes(*OF_ALL_SHARDS), *routes_of_shards(store.shards, routes)]
        own = [
            Route("/login", self._show_login),
            Route("/login", self._log_in, methods=["POST"]),
            Route("/logout", self._log_out, methods=["POST"]),
            Route("/healthz", self._healthz),
            Mount("/static", StaticFiles(directory=STATIC)),
        ]
        application = Starlette(
            routes=[*own, *routes],
            exception_handlers={HTTPException: self._on_http_error},
        )
        self.application = Gate(application, config, listen, self._login, self.refusal)

    def allow_actions(self, are_allowed: bool) -> None:
        """Let readers change the store, or only look at it."""
        self._changes.are_allowed = are_allowed

    def end_tails(self) -> None:
        """End the live tails. Browsers connect again."""
        self._tails.end()

    def _routes(self, path: str, make: Make) -> list[Route]:
        return [Route(f"{path}.json", self._json(make)), Route(path, self._html(make))]

    def _html(self, make: Make) -> Callable[[Request], Awaitable[Response]]:
        async def answer(request: Request) -> Response:
            return await self._made(request, make, lambda page: self._shown(request, page))

        return answer

    def _shown(self, request: Request, page: Page, *, form_token: str = "") -> Response:
        """Return a page as HTML. `form_token` is for the confirmation on a preview."""
        store, (path, query) = store_of(self._store, request), place_of(request.scope)
        twin = request.scope.get("root_path", "") + ("/find" if path == "/" else path) + ".json" + query
        html = self._renderer.page(
            named(page, request), path=path, twin=twin, can_log_out=self._login.has_tokens, form_token=form_token,
            has_changes=self._changes.are_allowed, shards=links_of(store, path, query),
        )  # fmt: skip
        return HTMLResponse(html, page.status)

    def _shown_json(self, request: Request, page: Page) -> Response:
        """Return a page as JSON."""
        document = msgspec.json.encode(named(page, request))
        return Response(document, page.status, media_type="application/json")

    def _json(self, make: Make) -> Callable[[Request], Awaitable[Response]]:
        async def answer(request: Request) -> Response:
            return await self._made(request, make, lambda page: self._shown_json(request, page))

        return answer

    async def _made(
        self, request: Request, make: Make, rendered: Callable[[Page], Response], *, timeout_s: float = 0.0
    ) -> Response:
        """Return a page, or the reason why it was not made. A time-out of 0 is that of pages."""
        store = store_of(self._store, request)
        SHARD_OPTIONS.set(options_of(store))  # of this request alone: each has a context of its own
        if not self.is_ready:
            return self.refusal(request.scope, 503, "the console is starting or stopping")
        try:
            async with self._turn(), asyncio.timeout(timeout_s or self._page_timeout_s):
                self.counts.pages_total += 1
                return rendered(await make(store, request))
        except TimeoutError:
            return self.refusal(request.scope, 503, "the console is busy: too many pages are made at once")
        except ValueError as error:
            return self.refusal(request.scope, 400, str(error))
        except Exception as error:  # noqa: BLE001 - a bug: the log gets the traceback, the reader gets a page
            self.counts.failed_pages_total += 1
            _log.exception("the page %r failed: %s", request.url.path, error)
            return self.refusal(request.scope, 500, "the console failed: its log has the reason")

    @contextlib.asynccontextmanager
    async def _turn(self) -> Any:
        """Wait for a turn. Raises TimeoutError if there is none in time."""
        async with asyncio.timeout(TURN_TIMEOUT_S):
            await self._turns.acquire()
        try:
            yield
        finally:
            self._turns.release()

    def refusal(self, scope: Scope, status: int, text: str) -> Response:
        """Return the page of a refusal, as JSON for a twin."""
        self.counts.refused_total += 1
        headers = {"Retry-After": "2"} if status == 503 else {}
        if scope["path"].endswith(".json"):
            document = msgspec.json.encode({"status": status, "error": text})
            return Response(document, status, headers, media_type="application/json")
        html = self._renderer.html("error.html", status=status, title=status_text(status), text=text)
        return HTMLResponse(html, status, headers)

    async def _on_http_error(self, request: Request, error: Exception) -> Response:
        status = error.status_code if isinstance(error, HTTPException) else 500
        text = "there is no such page" if status == 404 else status_text(status)
        return self.refusal(request.scope, status, text)

    async def _show_login(self, request: Request) -> Response:
        return self._login_page(request, 200, "")

    async def _log_in(self, request: Request) -> Response:
        form = await form_of(request)
        expected = cookies_of(request.headers).get(cookie_name(request.scope, "form"), "")
        if not is_same(form.get("form_token", ""), expected):
            return self._login_page(request, 403, "The form was too old, or came from another page: try again.")
        session = self._login.session_for(form.get("token", ""), caller_of(request.scope).address)
        if session is None:
            return self._login_page(request, 401, "This token does not open the console.")
        answer = RedirectResponse(local_target(argument(request, "next")), 303)
        self._set_cookie(answer, request, "session", session, max_age=SESSION_S)
        return answer

    async def _log_out(self, request: Request) -> Response:
        answer = RedirectResponse("/login", 303)
        answer.delete_cookie(cookie_name(request.scope, "session"))
        return answer

    def _login_page(self, request: Request, status: int, problem: str) -> Response:
        token, target = new_form_token(), local_target(argument(request, "next"))
        html = self._renderer.html("login.html", problem=problem, form_token=token, target=target)
        answer = HTMLResponse(html, status)
        self._set_cookie(answer, request, "form", token, max_age=3600)
        return answer

    def _reader_of(self, request: Request) -> str:
        session = cookies_of(request.headers).get(cookie_name(request.scope, "session"), "")
        return self._login.reader_of(caller_of(request.scope), session, request.headers.get("authorization", ""))

    def _set_cookie(self, answer: Response, request: Request, kind: str, value: str, *, max_age: int) -> None:
        is_secure = request.scope["scheme"] == "https"
        name = cookie_name(request.scope, kind)
        answer.set_cookie(name, value, max_age=max_age, httponly=True, secure=is_secure, samesite="strict")

    async def _healthz(self, _request: Request) -> Response:
        return PlainTextResponse("serving\n" if self.is_ready else "not serving\n", 200 if self.is_ready else 503)


def local_target(target: str) -> str:
    """Return a path of the console itself, `/` for any other address."""
    is_local = target.startswith("/") and not target.startswith(("//", "/\\")) and target.isprintable()
    return target if is_local else "/"
