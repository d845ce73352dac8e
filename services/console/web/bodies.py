# SPDX-License-Identifier: Apache-2.0
"""Bodies: the whole body of a message as a file: a browser saves it, and never shows it as a page."""

import asyncio
from collections.abc import Callable

from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from services.console.ask import message
from services.console.ask.store import Store
from services.console.web.routes import argument
from services.console.web.shards import store_of

AT_ONCE = 4
"""Bodies that are read from the store or wait for their readers at once: each takes some megabytes."""
TURN_TIMEOUT_S = 2.0
HEADERS = {"Content-Disposition": 'attachment; filename="body.bin"'}


class Bodies:
    """An application (ASGI) for the path of a body. A body keeps its turn until its reader has taken it."""

    def __init__(self, store: Store, refuse: Callable[[Scope, int, str], Response], *, timeout_s: float) -> None:
        self._store, self._refuse, self._timeout_s = store, refuse, timeout_s
        self._turns = asyncio.Semaphore(AT_ONCE)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request. See ASGI."""
        try:
            async with asyncio.timeout(TURN_TIMEOUT_S):
                await self._turns.acquire()
        except TimeoutError:
            busy = self._refuse(scope, 503, f"{AT_ONCE} bodies are on their way to other readers")
            return await busy(scope, receive, send)
        try:
            answer = await self._answer(Request(scope, receive))
            await answer(scope, receive, send)
        finally:
            self._turns.release()

    async def _answer(self, request: Request) -> Response:
        try:
            async with asyncio.timeout(self._timeout_s):
                name, topic = request.path_params["name"], argument(request, "topic")
                data, is_known = await message.body(store_of(self._store, request), name, topic)
        except TimeoutError:
            data, is_known = None, False
        except ValueError as error:
            return self._refuse(request.scope, 400, str(error))
        if data is None:
            text = "there is no such body, or it is hidden" if is_known else "could not look: the store does not answer"
            return self._refuse(request.scope, 404 if is_known else 503, text)
        return Response(data, headers=HEADERS, media_type="application/octet-stream")
