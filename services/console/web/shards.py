# SPDX-License-Identifier: Apache-2.0
"""Shards in addresses: the pages of a shard are below /shards/NAME, so that each link says which shard it shows.

Addresses without a shard lead to the first shard. A console of a store without shards has none of this.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple, TypeVar
from urllib.parse import parse_qsl, quote, urlencode

from msgspec.structs import replace
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import BaseRoute, Mount, Route
from starlette.types import Scope

from services.console.ask.store import Store
from services.console.pages.page import Page
from services.console.web.gate import target_of

P = TypeVar("P", bound=Page)

LINKS_MAX = 12
"""Shards that the head of each page links to. With more shards it links to the page of all shards."""
OF_ONE_SHARD = ("/messages/", "/receipt", "/delayed/", "/transactions/")
"""Pages about an object of a single shard."""
PLACES = frozenset({"after", "older", "behind", "page", "before", "cursor", "queue", "offset", "place", "end"})
"""Arguments that name a place in a list, which another shard has elsewhere."""


class ShardLink(NamedTuple):
    """A shard in the head of a page, and the address of the same page there."""

    name: str
    address: str


def prefix_of(shard: str) -> str:
    """Return the begin of the addresses of a shard's pages, nothing for a store without shards."""
    return f"/shards/{quote(shard)}" if shard else ""


def store_of(store: Store, request: Request) -> Store:
    """Return the store that an address names. Raises HTTPException if there is no such shard."""
    name = request.path_params.get("shard", "")
    if not name:
        return store
    if name not in store.shards:
        raise HTTPException(404)
    return store.shards[name]


def place_of(scope: Scope) -> tuple[str, str]:
    """Return the path of a request below its shard, and its arguments."""
    path, query = target_of(scope)
    return path.removeprefix(scope.get("root_path", "")), query


def links_of(store: Store, path: str, query: str) -> Sequence[ShardLink]:
    """Return the links to the same page at each shard. `path` is the path below the shard."""
    if len(store.shards) > LINKS_MAX:
        return [ShardLink(store.shard, f"{prefix_of(store.shard)}/")] if store.shard else []
    kept = [pair for pair in parse_qsl(query.removeprefix("?")) if pair[0] not in PLACES]
    is_own = path.startswith(OF_ONE_SHARD) or path == "/shards"
    target = "/" if is_own else path + (f"?{urlencode(kept)}" if kept else "")
    return [ShardLink(name, prefix_of(name) + target) for name in store.shards]


def named(page: P, request: Request) -> P:
    """Return a page with the shard of its address."""
    shard = request.path_params.get("shard", "")
    return replace(page, shard=shard) if shard else page


def options_of(store: Store) -> tuple[str, ...]:
    """Return the options with which a command reaches a shard: through the gateway, if its address is known here."""
    return ("--store", store.targets["gateway"] or "GATEWAY", "--shard", store.shard) if store.shard else ()


def routes_of_shards(shards: Mapping[str, Store], routes: Sequence[BaseRoute]) -> list[BaseRoute]:
    """Return the routes of all shards: those of a single shard below its name, and the ways from other addresses."""
    first = next(iter(shards))

    async def begin(request: Request) -> Response:
        return RedirectResponse(f"/shards/{request.path_params['name']}/")

    async def go_on(request: Request) -> Response:
        path, query = target_of(request.scope)
        return RedirectResponse(f"{prefix_of(first)}{path}{query}")

    return [
        Route("/shards/{name}", begin, methods=["GET"]),
        Mount("/shards/{shard}", routes=routes),
        Route("/{path:path}", go_on, methods=["GET"]),
    ]
