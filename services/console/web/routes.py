# SPDX-License-Identifier: Apache-2.0
"""The pages by path, and the arguments of their addresses."""

from collections.abc import Awaitable, Callable, Sequence

from starlette.requests import Request

from services.console.ask import find, groups, letters, message, topics, waiting
from services.console.ask import shards as all_shards
from services.console.ask.operate import callers, retention, service_states
from services.console.ask.store import Store
from services.console.pages.find import NOWHERE
from services.console.pages.operate.callers import AuditQuestion
from services.console.pages.operate.retention import Trial
from services.console.pages.page import Page
from services.console.pages.topics import Look, Sort
from services.console.pages.waiting import DelayedQuestion

ARGUMENT_CHARACTERS_MAX = 2_000
PLACE_DIGITS_MAX = 18

Make = Callable[[Store, Request], Awaitable[Page]]


async def _find(store: Store, request: Request) -> Page:
    text, topic, zone, after, older = (argument(request, name) for name in ("q", "topic", "zone", "after", "older"))
    behind = argument(request, "behind")
    place = int(behind) if behind.isascii() and behind.isdecimal() and len(behind) <= PLACE_DIGITS_MAX else NOWHERE
    return await find.find(store, text, topic.strip(), zone, after=after, older=older, behind=place)


async def _message(store: Store, request: Request) -> Page:
    name, topic, form = request.path_params["name"], argument(request, "topic"), argument(request, "form")
    return await message.message(store, name, topic, form)


async def _topics(store: Store, request: Request) -> Page:
    sort: Sort = "growth" if argument(request, "sort") == "growth" else ""
    name, has_system = argument(request, "name"), _has_system(request)
    return await topics.topics(store, name, _number(request), has_system=has_system, sort=sort)


async def _topic(store: Store, request: Request) -> Page:
    at, queue, offset, cursor = (argument(request, name).strip() for name in ("at", "queue", "offset", "cursor"))
    look, zone = Look(at, queue, offset, cursor), argument(request, "zone")
    return await topics.topic(store, request.path_params["name"], argument(request, "span"), look, zone)


async def _groups(store: Store, request: Request) -> Page:
    return await groups.groups(store, argument(request, "name"), has_system=_has_system(request))


async def _group(store: Store, request: Request) -> Page:
    return await groups.group(store, request.path_params["name"], argument(request, "span"))


async def _letters(store: Store, _request: Request) -> Page:
    return await letters.letters(store)


async def _group_letters(store: Store, request: Request) -> Page:
    return await letters.group_letters(
        store, request.path_params["name"], argument(request, "where"), argument(request, "age")
    )


async def _retention(store: Store, request: Request) -> Page:
    hours, size_bytes, topic = (argument(request, name).strip() for name in ("hours", "bytes", "topic"))
    return await retention.retention(store, Trial(hours, size_bytes, topic), _number(request))


async def _audit(store: Store, request: Request) -> Page:
    service, subject, text, failed, before = (
        argument(request, name).strip() for name in ("service", "subject", "text", "failed", "before")
    )
    return await callers.audit(store, AuditQuestion(service, subject, text, bool(failed), before))


async def _connections(store: Store, request: Request) -> Page:
    service, group, text = (argument(request, name).strip() for name in ("service", "group", "text"))
    return await callers.connections(store, service, group, text, argument(request, "after"))


async def _service_states(store: Store, _request: Request) -> Page:
    return await service_states.service_states(store)


async def _delayed(store: Store, request: Request) -> Page:
    topic, key, start, end, after = (argument(request, name) for name in ("topic", "key", "start", "end", "after"))
    question = DelayedQuestion(topic.strip(), key.strip(), start.strip(), end.strip(), after=after)
    return await waiting.delayed(store, question, argument(request, "zone"))


async def _transactions(store: Store, request: Request) -> Page:
    return await waiting.transactions(store, argument(request, "group").strip(), argument(request, "after"))


async def _shards(store: Store, _request: Request) -> Page:
    return await all_shards.shards(store)


START: Make = _find
OF_ALL_SHARDS: tuple[str, Make] = ("/shards", _shards)
"""The page of all shards, beside the pages of each shard."""
PAGES: Sequence[tuple[str, Make]] = (
    ("/find", _find),
    ("/messages/{name}", _message),
    ("/topics", _topics),
    ("/topics/{name}", _topic),
    ("/groups", _groups),
    ("/groups/{name}", _group),
    ("/dead-letters", _letters),
    ("/dead-letters/{name}", _group_letters),
    ("/delayed", _delayed),
    ("/transactions", _transactions),
    ("/retention", _retention),
    ("/store", _service_states),
    ("/connections", _connections),
    ("/audit", _audit),
)
"""The pages by path. The twin of a page as JSON has its path and `.json`."""


def _has_system(request: Request) -> bool:
    """Return whether names of the store itself are listed, too."""
    return argument(request, "system") == "1"


def _number(request: Request) -> int:
    """Return the part of a list that an address names, the first for all other texts."""
    number = argument(request, "page")
    return int(number) if number.isdecimal() and len(number) < 10 else 1


def argument(request: Request, name: str) -> str:
    """Return an argument of the address, "" without it. Raises ValueError if it is too long."""
    value = request.query_params.get(name, "")
    if len(value) > ARGUMENT_CHARACTERS_MAX:
        raise ValueError(f"{name} has {len(value)} characters: {ARGUMENT_CHARACTERS_MAX} are allowed")
    return value.encode("utf-8", "replace").decode()
