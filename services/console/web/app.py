# SPDX-License-Identifier: Apache-2.0
"""Console: the application: a route for each page and its twin as JSON, the login, the files, and the health."""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl

import msgspec
import structlog
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import HTMLResponse, PlainTextResponse, RedirectResponse, Response
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles
from starlette.types import Scope

from libs.runtime.settings import ListenConfig
from services.console.ask import find, groups, letters, message, service_states, topics
from services.console.ask.store import Store
from services.console.config import ConsoleConfig
from services.console.pages.page import Page
from services.console.web.counts import Counts
from services.console.web.gate import Gate, cookie_name, cookies_of, status_text, target_of
from services.console.web.login import SESSION_S, Login, is_same, new_form_token
from services.console.web.rendering import Renderer
from services.console.web.tails import Tails

_log = structlog.get_logger(__name__)

STATIC = Path(__file__).parent / "static"
CALLS_IN_A_ROW = 5
"""A page takes at most the time of so many calls of the store."""
TURN_TIMEOUT_S = 2.0
ARGUMENT_CHARACTERS_MAX = 2_000
FORM_FIELDS_MAX = 4

Make = Callable[[Store, Request], Awaitable[Page]]


async def _find(store: Store, request: Request) -> Page:
    return await find.find(store, argument(request, "q"), argument(request, "topic"), argument(request, "zone"))


async def _message(store: Store, request: Request) -> Page:
    name, topic, form = request.path_params["name"], argument(request, "topic"), argument(request, "form")
    return await message.message(store, name, topic, form)


async def _topics(store: Store, request: Request) -> Page:
    number = argument(request, "page")
    return await topics.topics(store, argument(request, "name"), int(number) if number[:9].isdecimal() else 1)


async def _topic(store: Store, request: Request) -> Page:
    return await topics.topic(store, request.path_params["name"])


async def _groups(store: Store, request: Request) -> Page:
    return await groups.groups(store, argument(request, "name"))


async def _group(store: Store, request: Request) -> Page:
    return await groups.group(store, request.path_params["name"])


async def _letters(store: Store, _request: Request) -> Page:
    return await letters.letters(store)


async def _group_letters(store: Store, request: Request) -> Page:
    return await letters.group_letters(store, request.path_params["name"], argument(request, "where"))


async def _service_states(store: Store, _request: Request) -> Page:
    return await service_states.service_states(store)


PAGES: Sequence[tuple[str, Make]] = (
    ("/find", _find),
    ("/messages/{name}", _message),
    ("/topics", _topics),
    ("/topics/{name}", _topic),
    ("/groups", _groups),
    ("/groups/{name}", _group),
    ("/dead-letters", _letters),
    ("/dead-letters/{name}", _group_letters),
    ("/store", _service_states),
)
"""The pages by path. The twin of a page as JSON has its path and `.json`."""


class Console:
    """The application. Callers: the event loop; `counts` from any thread."""

    def __init__(self, store: Store, config: ConsoleConfig, listen: ListenConfig) -> None:
        self.is_ready = False
        self.counts = Counts()
        self._store = store
        self._page_timeout_s = CALLS_IN_A_ROW * config.store_timeout_ms / 1000
        self._login = Login(config, store.clock)
        self._renderer = Renderer()
        self._turns = asyncio.Semaphore(config.page_count_max)
        self._tails = Tails(store, self._renderer, self.counts, count_max=config.tail_count_max)
        routes = [route for path, make in PAGES for route in self._routes(path, make)]
        routes += [
            Route("/", self._html(_find)),
            Route("/messages/{name}/body", self._body),
            Route("/topics/{name}/tail", self._tails.events),
            Route("/topics/{name}/newer", self._tails.newer),
            Route("/login", self._show_login),
            Route("/login", self._log_in, methods=["POST"]),
            Route("/logout", self._log_out, methods=["POST"]),
            Route("/healthz", self._healthz),
        ]
        application = Starlette(
            routes=[*routes, Mount("/static", StaticFiles(directory=STATIC))],
            exception_handlers={HTTPException: self._on_http_error},
        )
        self.application = Gate(application, config, listen, self._login, self.refusal)

    def end_tails(self) -> None:
        """End the live tails. Browsers connect again."""
        self._tails.end()

    def _routes(self, path: str, make: Make) -> list[Route]:
        return [Route(f"{path}.json", self._json(make)), Route(path, self._html(make))]

    def _html(self, make: Make) -> Callable[[Request], Awaitable[Response]]:
        async def answer(request: Request) -> Response:
            def rendered(page: Page) -> Response:
                path, query = target_of(request.scope)
                twin = ("/find" if path == "/" else path) + ".json" + query
                html = self._renderer.page(page, path=path, twin=twin, can_log_out=self._login.is_needed)
                return HTMLResponse(html, page.status)

            return await self._made(request, make, rendered)

        return answer

    def _json(self, make: Make) -> Callable[[Request], Awaitable[Response]]:
        async def answer(request: Request) -> Response:
            def rendered(page: Page) -> Response:
                return Response(msgspec.json.encode(page), page.status, media_type="application/json")

            return await self._made(request, make, rendered)

        return answer

    async def _made(self, request: Request, make: Make, rendered: Callable[[Page], Response]) -> Response:
        """Return a page, or the reason why it was not made."""
        if not self.is_ready:
            return self.refusal(request.scope, 503, "the console is starting or stopping")
        try:
            async with self._turn(), asyncio.timeout(self._page_timeout_s):
                self.counts.pages_total += 1
                return rendered(await make(self._store, request))
        except TimeoutError:
            return self.refusal(request.scope, 503, "the console is busy: too many pages are made at once")
        except ValueError as error:
            return self.refusal(request.scope, 400, str(error))
        except Exception as error:  # noqa: BLE001 - a bug: the log gets the traceback, the reader gets a page
            self.counts.failed_pages_total += 1
            _log.exception("a page failed", path=request.url.path, error=str(error))
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

    async def _body(self, request: Request) -> Response:
        """Answer the body of a message as a file: a browser saves it, and never shows it as a page."""
        try:
            async with self._turn(), asyncio.timeout(self._page_timeout_s):
                name, topic = request.path_params["name"], argument(request, "topic")
                data, is_known = await message.body(self._store, name, topic)
        except TimeoutError:
            return self.refusal(request.scope, 503, "the console is busy: too many pages are made at once")
        if data is None:
            text = "there is no such body, or it is hidden" if is_known else "could not look: the store does not answer"
            return self.refusal(request.scope, 404 if is_known else 503, text)
        headers = {"Content-Disposition": 'attachment; filename="body.bin"'}
        return Response(data, headers=headers, media_type="application/octet-stream")

    async def _show_login(self, request: Request) -> Response:
        return self._login_page(request, 200, "")

    async def _log_in(self, request: Request) -> Response:
        form = await form_of(request)
        expected = cookies_of(request.headers).get(cookie_name(request.scope, "form"), "")
        if not is_same(form.get("form_token", ""), expected):
            return self._login_page(request, 403, "The form was too old, or came from another page: try again.")
        session = self._login.session_for(form.get("token", ""))
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

    def _set_cookie(self, answer: Response, request: Request, kind: str, value: str, *, max_age: int) -> None:
        is_secure = request.scope["scheme"] == "https"
        name = cookie_name(request.scope, kind)
        answer.set_cookie(name, value, max_age=max_age, httponly=True, secure=is_secure, samesite="strict")

    async def _healthz(self, _request: Request) -> Response:
        return PlainTextResponse("serving\n" if self.is_ready else "not serving\n", 200 if self.is_ready else 503)


def argument(request: Request, name: str) -> str:
    """Return an argument of the address, "" without it. Raises ValueError if it is too long."""
    value = request.query_params.get(name, "")
    if len(value) > ARGUMENT_CHARACTERS_MAX:
        raise ValueError(f"{name} has {len(value)} characters: {ARGUMENT_CHARACTERS_MAX} are allowed")
    return value.encode("utf-8", "replace").decode()


async def form_of(request: Request) -> dict[str, str]:
    """Return the fields of a form, none if it has more than `FORM_FIELDS_MAX`. The gate bounds its size."""
    text = (await request.body()).decode("utf-8", "replace")
    try:
        return dict(parse_qsl(text, keep_blank_values=True, max_num_fields=FORM_FIELDS_MAX))
    except ValueError:
        return {}


def local_target(target: str) -> str:
    """Return a path of the console itself, `/` for any other address."""
    is_local = target.startswith("/") and not target.startswith(("//", "/\\")) and target.isprintable()
    return target if is_local else "/"
