# SPDX-License-Identifier: Apache-2.0
"""Changes: the routes of the changes: GET shows a preview, POST confirms it, and its receipt has an address of its own.

A change is refused if `allow_actions` is off, if its form does not come from a preview that this reader was shown, and
if the store has moved on since the preview.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from typing import NamedTuple
from urllib.parse import urlencode

from reput_client import ReputError
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route

from services.console.ask.store import READER, Asking, Store, why
from services.console.change.pause import prepare_pause, prepare_resume
from services.console.change.position import prepare_move
from services.console.change.prepared import Apply, Arguments, Prepared, Result, outcome_of
from services.console.change.replay import prepare_replay
from services.console.change.waiting import prepare_cancel, prepare_resolve
from services.console.pages.change import Preview, Receipt
from services.console.pages.page import Page
from services.console.web.counts import Counts
from services.console.web.forms import Signer, form_of
from services.console.web.gate import target_of

_log = logging.getLogger(__name__)

LOOK_TIMEOUT_S, CHANGE_TIMEOUT_S = 30.0, 60.0
"""Longest times of the look before a change, after which nothing was done, and of the change: a replay takes ten."""
AGAIN_CHARACTERS_MAX = 600
OFF = "this console only shows the store: allow_actions is false"
UNCONFIRMED = (
    "nothing was done: the confirmation does not come from a preview of this browser session; open the preview again"
)

Prepare = Callable[[Asking, str, Arguments], Awaitable[Prepared]]
ReaderOf = Callable[[Request], str]
"""Names the reader of a request for audit lines."""


class Change(NamedTuple):
    """A change: the path of its preview, its arguments, and the function that prepares it."""

    path: str
    names: Sequence[str]
    prepare: Prepare


CHANGES = (
    Change("/groups/{name}/reset", ("topic", "to", "at", "zone"), prepare_move),
    Change("/groups/{name}/pause", (), prepare_pause),
    Change("/groups/{name}/resume", (), prepare_resume),
    Change("/dead-letters/{name}/replay", ("place", "where", "rate", "end"), prepare_replay),
    Change("/delayed/cancel", ("topic", "id"), prepare_cancel),
    Change("/transactions/resolve", ("id", "how"), prepare_resolve),
)


class Answering(NamedTuple):
    """The steps of the application for each page: make it in turn, show it, or show a refusal."""

    made: Callable[..., Awaitable[Response]]
    html: Callable[..., Response]
    json: Callable[[Request, Page], Response]
    refusal: Callable[..., Response]


class Changes:
    """The routes of the changes."""

    def __init__(self, counts: Counts, answering: Answering, reader_of: ReaderOf) -> None:
        self.are_allowed = False
        self._counts, self._answering, self._reader_of = counts, answering, reader_of

    def routes(self) -> list[Route]:
        """Return the routes: for each change its preview, the twin, and the confirmation; and the receipts."""
        routes = [Route("/receipt.json", self._receipt), Route("/receipt", self._receipt)]
        for change in CHANGES:
            routes += [
                Route(f"{change.path}.json", self._preview(change)),
                Route(change.path, self._preview(change)),
                Route(change.path, self._confirmation(change), methods=["POST"]),
            ]
        return routes

    def _preview(self, change: Change) -> Callable[[Request], Awaitable[Response]]:
        async def answer(request: Request) -> Response:
            if not self.are_allowed:
                return self._answering.refusal(request.scope, 403, OFF)

            async def make(store: Store, request: Request) -> Page:
                asking, arguments = Asking(store, is_bounded=False), _arguments(request, change.names)
                return (await change.prepare(asking, _name(request), arguments)).page

            def shown(page: Page) -> Response:
                assert isinstance(page, Preview)
                if request.url.path.endswith(".json"):
                    return self._answering.json(request, page)
                signer = Signer(request)
                signer.begin()
                token = signer.token(target_of(request.scope)[0], page.carried, page.state)
                found = self._answering.html(request, page, form_token=token)
                signer.set_cookie(found)
                return found

            return await self._answering.made(request, make, shown)

        return answer

    def _confirmation(self, change: Change) -> Callable[[Request], Awaitable[Response]]:
        async def answer(request: Request) -> Response:
            if not self.are_allowed:
                return self._answering.refusal(request.scope, 403, OFF)
            form, signer = await form_of(request), Signer(request)
            if not signer.is_confirmed(target_of(request.scope)[0], form, change.names):
                return self._answering.refusal(request.scope, 403, UNCONFIRMED)

            async def make(store: Store, request: Request) -> Page:
                return await self._confirmed(change, store, request, form)

            def shown(page: Page) -> Response:
                assert isinstance(page, Receipt)
                below = request.scope.get("root_path", "")
                return RedirectResponse(f"{below}/receipt?of={signer.receipt_text(page)}", 303)

            return await self._answering.made(request, make, shown, timeout_s=LOOK_TIMEOUT_S + 2 * CHANGE_TIMEOUT_S)

        return answer

    async def _confirmed(self, change: Change, store: Store, request: Request, form: Arguments) -> Receipt:
        """Prepare a change again, make it if the preview still holds, and return the receipt."""
        asking, arguments = Asking(store, is_bounded=False), {name: form[name] for name in change.names if name in form}
        async with asyncio.timeout(LOOK_TIMEOUT_S):
            page, apply = await change.prepare(asking, _name(request), arguments)
        if page.gaps:
            result = Result(f"{page.gaps[0].subject}: {page.gaps[0].reason}", "not_done")
        elif apply is None:
            result = Result(page.refusal or "there is nothing to change any more", "not_done")
        elif page.state != form.get("state"):
            result = Result(f"{page.stale}; or this confirmation was sent twice", "not_done")
        else:
            self._counts.changes_total += 1
            result = await self._applied(apply, page.title, store, self._reader_of(request))
        path, query = target_of(request.scope)[0], urlencode([pair for pair in arguments.items() if pair[0] != "end"])
        again = path if len(query) > AGAIN_CHARACTERS_MAX else f"{path}?{query}"
        return Receipt(
            commands=page.commands,
            title=page.title,
            outcome=result.outcome,
            text=result.text,
            back=page.back,
            again=again,
        )

    async def _applied(self, apply: Apply, title: str, store: Store, reader: str) -> Result:
        """Make a change. The answer has its outcome, also after a failure."""
        READER.set(reader)  # of this request alone: each has a context of its own
        try:
            async with asyncio.timeout(CHANGE_TIMEOUT_S):
                result = await apply(store.changing_client)
        except TimeoutError:
            result = Result(f"the store has not answered for {CHANGE_TIMEOUT_S:.0f} s", "unknown")
        except ReputError as error:
            result = Result(why(error, store), outcome_of(error))
        except Exception as error:  # noqa: BLE001 - a bug: the log gets the traceback, the reader learns what is known
            self._counts.failed_pages_total += 1
            _log.exception("the change %r failed: %s", title, error)
            result = Result("the console failed: its log has the reason", "unknown")
        _log.info("the change %r of %s: %s, %s", title, reader, result.outcome, result.text)
        return result

    async def _receipt(self, request: Request) -> Response:
        receipt = Signer(request).receipt_of(request.query_params.get("of", ""))
        if receipt is None:
            text = "this receipt is not of this browser session; the pages show the present state"
            return self._answering.refusal(request.scope, 404, text)
        is_twin = request.url.path.endswith(".json")
        return self._answering.json(request, receipt) if is_twin else self._answering.html(request, receipt)


def _name(request: Request) -> str:
    return str(request.path_params.get("name", ""))


def _arguments(request: Request, names: Sequence[str]) -> dict[str, str]:
    """Return the arguments of an address. An argument that comes several times is a list with commas."""
    found = {name: ",".join(request.query_params.getlist(name)) for name in names if name in request.query_params}
    return {name: value.encode("utf-8", "replace").decode() for name, value in found.items()}
