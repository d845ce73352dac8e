# SPDX-License-Identifier: Apache-2.0
"""Tails: new messages of a topic for an open page, as server-sent events, or by polling where these do not arrive."""

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator

from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse

from services.console.ask.store import Asking, Store
from services.console.ask.tail import Following, Step, cursor_of, newer
from services.console.pages.mask import Mask
from services.console.web.counts import Counts
from services.console.web.rendering import Renderer
from services.console.web.shards import store_of

WAIT_S = 5.0
"""Longest time without an event: a browser that gets none polls instead."""
PAUSE_S = 0.5
PAUSE_AFTER_FAILURE_S = 2.0
WHERE_CHARACTERS_MAX = 2_000
HEADERS = {"X-Accel-Buffering": "no"}


class Tails:
    """The live tails. Callers: the event loop."""

    def __init__(self, store: Store, renderer: Renderer, counts: Counts, *, count_max: int) -> None:
        self._store, self._renderer, self._counts = store, renderer, counts
        self._count_max = count_max
        self._ended = asyncio.Event()
        self._endings: set[asyncio.Task[None]] = set()

    def end(self) -> None:
        """End all tails, and accept no more."""
        self._ended.set()

    async def events(self, request: Request) -> Response:
        """Answer new messages as server-sent events. 503 if there are too many tails: the browser polls."""
        store = store_of(self._store, request)
        try:
            topic, cursor, tags, where = _arguments(request, store.mask)
        except ValueError as error:
            return JSONResponse({"error": str(error)}, 400)
        if self._counts.tail_count >= self._count_max or self._ended.is_set():
            return JSONResponse({"error": f"{self._count_max} live tails run already"}, 503)
        events = self._events(store, topic, cursor, tags, where)
        return StreamingResponse(events, headers=HEADERS, media_type="text/event-stream")

    async def newer(self, request: Request) -> Response:
        """Answer the new messages since a cursor, at once."""
        store = store_of(self._store, request)
        try:
            topic, cursor, tags, where = _arguments(request, store.mask)
        except ValueError as error:
            return JSONResponse({"error": str(error)}, 400)
        asking = Asking(store, is_bounded=False)
        return JSONResponse(self._told(store, await newer(asking, topic, cursor, tags=tags, where=where)))

    async def _events(self, store: Store, topic: str, cursor: str, tags: str, where: str) -> AsyncIterator[str]:
        if self._counts.tail_count >= self._count_max:  # another tail has begun since the answer began
            return
        self._counts.tail_count += 1
        following = Following(store, topic, cursor, tags=tags, where=where)
        try:
            yield _event("hello", {}, cursor)
            while not self._ended.is_set():
                begin_s = store.clock.monotonic_s()
                asking = Asking(store, is_bounded=False)
                taken = await following.step(asking, wait_s=WAIT_S)
                yield _event("step", self._told(store, taken), taken.cursor)
                pause_s = PAUSE_AFTER_FAILURE_S if taken.gaps else PAUSE_S - (store.clock.monotonic_s() - begin_s)
                if pause_s > 0:
                    with contextlib.suppress(TimeoutError):
                        async with asyncio.timeout(pause_s):
                            await self._ended.wait()
        finally:
            ending = asyncio.create_task(self._until_over(following))
            self._endings.add(ending)
            ending.add_done_callback(self._endings.discard)

    async def _until_over(self, following: Following) -> None:
        """Free the place of a tail without a reader when its last call has ended."""
        await following.until_over()
        self._counts.tail_count -= 1

    def _told(self, store: Store, taken: Step) -> dict[str, object]:
        return {
            "rows": self._renderer.html("rows.html", store.shard, rows=taken.rows[::-1], hides_topic=True),
            "count": len(taken.rows),
            "cursor": taken.cursor,
            "skipped_count": taken.skipped_count,
            "gaps": [f"{gap.subject}: {gap.reason}" for gap in taken.gaps],
        }


def _arguments(request: Request, mask: Mask) -> tuple[str, str, str, str]:
    """Return topic, cursor, tags and condition. A browser that connects again names its last cursor in a header."""
    cursor = request.headers.get("last-event-id", "") or request.query_params.get("cursor", "")
    cursor_of(cursor)
    tags, where = (request.query_params.get(name, "") for name in ("tags", "where"))
    for name, value in (("tags", tags), ("where", where)):
        if len(value) > WHERE_CHARACTERS_MAX:
            raise ValueError(f"{name} has {len(value)} characters: {WHERE_CHARACTERS_MAX} are allowed")
    if refusal := mask.refusal(where=where, tags=tags.strip()):
        raise ValueError(refusal)
    return request.path_params["name"], cursor, tags.strip(), where.strip()


def _event(name: str, data: object, cursor: str) -> str:
    """Return an event. JSON has no line ends, so the data are a single line."""
    return f"retry: 2000\nid: {cursor}\nevent: {name}\ndata: {json.dumps(data)}\n\n"
