# SPDX-License-Identifier: Apache-2.0
"""The callers of the store: the lines of its audit, and its connections."""

import json
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, ClassVar

from msgspec import Struct
from reput.common.v1.connection_service_pb2 import Connection
from reput_client.core.answers import of_fields

from services.console.pages.page import Gap, Page, command

ROWS_OF_A_PAGE = 100
CHANGE_CHARACTERS_MAX = 300
RESOURCES = ("topics", "groups", "queues")
LINES_KEPT = 1_000
"""Audit lines that a service has in memory."""


class AuditQuestion(Struct, frozen=True):
    """The lines that were asked for. Empty texts select nothing."""

    service: str = ""
    subject: str = ""
    """A part of the subject, or of the name on whose behalf it called."""
    text: str = ""
    """A part of the method, of a resource or of the result."""
    has_failed: bool = False
    """Only calls that were refused or failed."""
    before: str = ""
    """The key of a line: only lines before it."""

    @property
    def is_selective(self) -> bool:
        """Whether it asks for some lines only, so that the newest are not enough."""
        return bool(self.subject or self.text or self.has_failed or self.before)


class AuditRow(Struct, frozen=True):
    """A line of the audit."""

    key: str
    """Orders lines: time, service, address and number."""
    time_ms: int | None
    service: str
    target: str
    event: str
    subject: str
    on_behalf_of: str
    """The name on whose behalf the caller said that it called: no proof."""
    address: str
    method: str
    resources: tuple[str, ...]
    code: str
    reason: str
    text: str
    count: int
    change: str
    """The values before and after, as JSON; the begin of them if they are long."""


class Source(Struct, frozen=True):
    """A service that keeps audit lines."""

    name: str
    start_time_ms: int
    line_count: int
    """Lines since its start; the last 1,000 are in its memory."""


class AuditPage(Page, frozen=True, kw_only=True):
    """The last administrative calls and refusals, the newest first."""

    template: ClassVar = "audit.html"

    question: AuditQuestion
    services: tuple[str, ...]
    """The services that can be chosen."""
    rows: tuple[AuditRow, ...] = ()
    sources: tuple[Source, ...] = ()
    next_before: str = ""
    """`before` of the next part; empty at the end."""


class ConnectionRow(Struct, frozen=True):
    """An open connection of a service."""

    service: str
    target: str
    number: int
    peer: str
    subject: str
    client: str
    groups: tuple[str, ...]
    running: tuple[str, ...]
    call_count: int
    received_bytes: int
    sent_bytes: int
    opened_time_ms: int
    received_time_ms: int


class Counted(Struct, frozen=True):
    """A service, and the number of its connections."""

    name: str
    connection_count: int


class ConnectionsPage(Page, frozen=True, kw_only=True):
    """The open connections of the services."""

    template: ClassVar = "connections.html"

    service: str
    group: str
    """Only connections that have named this group."""
    text: str
    """A part of the address, the subject or the client."""
    services: tuple[str, ...]
    rows: tuple[ConnectionRow, ...] = ()
    counts: tuple[Counted, ...] = ()
    next_after: str = ""
    """`after` of the next part; empty at the end."""


def audit_row(service: str, target: str, number: int, line: str) -> AuditRow:
    """Return a line of a service as a row. A line that is no JSON object is shown as a text."""
    try:
        found = json.loads(line)
    except ValueError:
        found = None
    if not isinstance(found, dict):
        found = {"text": line}
    of = ("time", "event", "subject", "on_behalf_of", "address", "code", "reason", "text")
    names = {name: str(found.get(name, "")) for name in of}
    time_ms = _time_ms(names["time"])
    change = {name: found[name] for name in ("before", "after") if found.get(name)}
    return AuditRow(
        key=f"{time_ms or 0:015d}|{service}|{target}|{number:012d}",
        time_ms=time_ms,
        service=service,
        target=target,
        event=names["event"],
        subject=names["subject"],
        on_behalf_of=names["on_behalf_of"],
        address=names["address"],
        method=str(found.get("method", "")).rpartition(".")[2],
        resources=tuple(str(name) for kind in RESOURCES for name in _listed(found.get(kind))),
        code=names["code"],
        reason=names["reason"],
        text=names["text"][:CHANGE_CHARACTERS_MAX],
        count=found["count"] if isinstance(found.get("count"), int) else 1,
        change=_change_text(change, is_cut=bool(found.get("is_cut"))),
    )


def _listed(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _time_ms(text: str) -> int | None:
    try:
        return round(datetime.fromisoformat(text).timestamp() * 1000)
    except (ValueError, OverflowError):
        return None


def _change_text(change: Mapping[str, Any], *, is_cut: bool) -> str:
    if is_cut:
        return "too long for a line"
    text = json.dumps(change, ensure_ascii=False) if change else ""
    return text if len(text) <= CHANGE_CHARACTERS_MAX else f"{text[:CHANGE_CHARACTERS_MAX]}…"


def answers(row: AuditRow, question: AuditQuestion) -> bool:
    """Whether a row matches the question. Upper and lower case are the same."""
    if question.has_failed and row.code in ("", "OK"):
        return False
    if question.before and row.key >= question.before:
        return False
    if not any(question.subject.lower() in name.lower() for name in (row.subject, row.on_behalf_of)):
        return False
    texts = (row.method, row.code, row.reason, row.text, row.address, *row.resources)
    return any(question.text.lower() in text.lower() for text in texts)


def audit_page(
    question: AuditQuestion,
    services: Sequence[str],
    rows: Sequence[AuditRow],
    sources: Sequence[Source],
    gaps: tuple[Gap, ...],
) -> AuditPage:
    """Return the page of the audit, of the rows of all services."""
    ordered = sorted(rows, key=lambda row: row.key, reverse=True)
    shown = ordered[:ROWS_OF_A_PAGE]
    of_service = (f"--service={question.service}",) if question.service else ()
    return AuditPage(
        commands=(command("audit", "list", *of_service),),
        gaps=gaps,
        question=question,
        services=tuple(services),
        rows=tuple(shown),
        sources=tuple(sources),
        next_before=shown[-1].key if len(ordered) > len(shown) else "",
    )


def connection_row(service: str, target: str, one: Connection) -> ConnectionRow:
    """Return a connection as a row."""
    library = one.user_agent.partition(" ")[0]
    return of_fields(
        ConnectionRow,
        one,
        service=service,
        target=target,
        client=f"{one.client_id} ({one.client_version})" if one.client_id else library,
        groups=tuple(one.groups),
        running=tuple(
            f"{calls.method.rpartition('/')[2]} × {calls.call_count}"
            if calls.call_count > 1
            else calls.method.rpartition("/")[2]
            for calls in one.running
        ),
        opened_time_ms=one.opened_time.ToMilliseconds(),
        received_time_ms=one.received_time.ToMilliseconds(),
    )


def is_wanted(row: ConnectionRow, group: str, text: str) -> bool:
    """Whether a connection matches the question."""
    if group and group not in row.groups:
        return False
    return any(text.lower() in one.lower() for one in (row.peer, row.subject, row.client))


def connections_page(
    *, service: str, group: str, text: str, services: Sequence[str], gaps: tuple[Gap, ...],
    rows: Sequence[ConnectionRow], counts: Sequence[Counted], next_after: str,
) -> ConnectionsPage:  # fmt: skip
    """Return the page of connections."""
    options = [f"--service={service}"] if service else []
    options += [f"--group={group}"] if group else []
    return ConnectionsPage(
        commands=(command("clients", *options),),
        gaps=gaps,
        service=service,
        group=group,
        text=text,
        services=tuple(services),
        rows=tuple(rows),
        counts=tuple(counts),
        next_after=next_after,
    )
