# SPDX-License-Identifier: Apache-2.0
"""The questions of the pages of callers: each service has its own audit lines and connections, for operators."""

import asyncio

from reput.common.v1.audit_service_pb2 import ListLinesRequest
from reput.common.v1.connection_service_pb2 import ListConnectionsRequest
from reput_client import ReputError

from services.console.ask.places import Place
from services.console.ask.store import Asking, Store
from services.console.pages.operate.callers import (
    LINES_KEPT,
    ROWS_OF_A_PAGE,
    AuditPage,
    AuditQuestion,
    AuditRow,
    ConnectionRow,
    ConnectionsPage,
    Counted,
    Source,
    answers,
    audit_page,
    audit_row,
    connection_row,
    connections_page,
    is_wanted,
)
from services.console.pages.page import Gap

CONNECTIONS_OF_A_CALL = 200
CONNECTIONS_SCANNED_MAX = 2_000
"""Connections of a service that a search reads."""
MEMBERS_SHOWN_MAX = 50
SERVICE_CLIENT = "reput-service/"
MEMBERS_OF = ("delivery", "gateway", "indexer")
"""Services whose calls name groups."""


async def audit(store: Store, question: AuditQuestion) -> AuditPage:
    """Return the page of the audit: the newest lines, or all lines in memory that match the question."""
    asking = Asking(store)
    rows: list[AuditRow] = []
    sources: list[Source] = []
    async with store.audit_turn:
        for place in _chosen(store, question.service):
            found, source = await _lines(asking, place, question)
            rows += found
            sources += [source] if source is not None else []
    return audit_page(question, _services(store), rows, sources, asking.gaps)


async def _lines(asking: Asking, place: Place, question: AuditQuestion) -> tuple[list[AuditRow], Source | None]:
    """Return the rows of a service, at most as many as a page shows and one more, and the service if it answers."""
    request = ListLinesRequest(page_size=LINES_KEPT if question.is_selective else ROWS_OF_A_PAGE + 1)
    try:
        answer = await asking.store.places.call(place, request)
    except ReputError as error:
        asking.tell(f"the audit of {place.name}", error)
        return [], None
    rows = (audit_row(place.service, place.target, line.number, line.json) for line in answer.lines)
    found = [row for row in rows if answers(row, question)][-ROWS_OF_A_PAGE - 1 :]
    return found, Source(place.name, answer.start_time.ToMilliseconds(), answer.last_number)


async def connections(store: Store, service: str, group: str, text: str, after: str) -> ConnectionsPage:
    """Return a part of the connections. `after` names the place and the number where the list goes on."""
    asking, places = Asking(store), _chosen(store, service)
    first, number = place_and_number(after, len(places))
    rows: list[ConnectionRow] = []
    counts: list[Counted] = []
    next_after = ""
    for at, place in enumerate(places):
        listed = await _listed(asking, place, number if at == first else 0)
        if listed is None:
            continue
        found, count = listed
        counts.append(Counted(place.name, count))
        if at < first or next_after:
            continue
        for row in found:
            if len(rows) == ROWS_OF_A_PAGE:
                next_after = f"{places.index(Place(rows[-1].service, rows[-1].target))}.{rows[-1].number}"
                break
            if is_wanted(row, group, text):
                rows.append(row)
    return connections_page(
        service=service, group=group, text=text, services=_services(store), gaps=asking.gaps,
        rows=rows, counts=counts, next_after=next_after,
    )  # fmt: skip


async def members(asking: Asking, group: str) -> tuple[tuple[ConnectionRow, ...], tuple[Gap, ...]]:
    """Return connections that have named a group, and why some are not known. Delivery pulls for groups: no member."""
    own = Asking(asking.store)
    places = [place for place in asking.store.places.all if place.service in MEMBERS_OF]
    listed = await asyncio.gather(*(_listed(own, place, 0) for place in places))
    rows = [
        row
        for one in listed
        if one is not None
        for row in one[0]
        if is_wanted(row, group, "") and not (row.service == "indexer" and row.client.startswith(SERVICE_CLIENT))
    ]
    return tuple(rows[:MEMBERS_SHOWN_MAX]), own.gaps


async def connections_of(asking: Asking, service: str) -> list[ConnectionRow]:
    """Return the connections of the processes of a service."""
    found = await asyncio.gather(*(_listed(asking, place, 0) for place in _chosen(asking.store, service)))
    return [row for one in found if one is not None for row in one[0]]


async def _listed(asking: Asking, place: Place, after: int) -> tuple[list[ConnectionRow], int] | None:
    """Return the connections of a service behind a number, and how many it has. None with a gap without an answer."""
    what, rows = f"the connections of {place.name}", list[ConnectionRow]()
    request = ListConnectionsRequest(page_size=CONNECTIONS_OF_A_CALL, after_number=after)
    try:
        while True:
            answer = await asking.store.places.call(place, request)
            rows += [connection_row(place.service, place.target, one) for one in answer.connections]
            if not answer.has_more:
                return rows, answer.connection_count
            if len(rows) >= CONNECTIONS_SCANNED_MAX:
                asking.left_out(f"further connections of {place.name}", f"{CONNECTIONS_SCANNED_MAX:,} are read at once")
                return rows, answer.connection_count
            request.after_number = answer.connections[-1].number
    except ReputError as error:
        asking.tell(what, error)
        return None


def place_and_number(text: str, place_count: int) -> tuple[int, int]:
    """Return the place and the number of a cursor, the begin for all other texts."""
    at, _, number = text.partition(".")
    if not all(part.isascii() and part.isdecimal() and len(part) < 19 for part in (at, number)):
        return 0, 0
    return (int(at), int(number)) if int(at) < place_count else (0, 0)


def _services(store: Store) -> list[str]:
    return list(dict.fromkeys(place.service for place in store.places.all))


def _chosen(store: Store, service: str) -> list[Place]:
    return [place for place in store.places.all if service in ("", place.service)]
