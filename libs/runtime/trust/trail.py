# SPDX-License-Identifier: Apache-2.0
"""Trail: the audit of a server: a line for each call that changes shared state, and for each refused call.

A line has the subject, the address, the names of the resources, the result, and the values before and after a change.
Calls that append or acknowledge messages have no line: they are many, and the store records them. Calls that change
nothing (`dry_run`) have no line either. Lines of refusals, and of subjects other than operators, are bounded, so that a
greedy caller can't fill the disk; a line has the number of calls that were left out. The last lines stay in memory.
Callers: a single event loop.
"""

import asyncio
import logging
import time
from collections import deque
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from typing import Any, Protocol
from urllib.parse import unquote

import grpc
from google.rpc.error_details_pb2 import ErrorInfo
from google.rpc.status_pb2 import Status
from msgspec import Struct

from libs.machine.clock import SystemClock
from libs.runtime.trust.audit.audit_file import AuditFile
from libs.runtime.trust.audit.change import Change
from libs.runtime.trust.audit.limits import AuditConfig
from libs.runtime.trust.audit.line import CALL, REFUSAL, Line, cut, resources_of, value_of
from libs.runtime.trust.audit.repeats import Repeats
from libs.runtime.trust.rights.rights_file import OPERATOR
from libs.runtime.trust.rights.rules import ANONYMOUS
from libs.runtime.trust.roles import ROLES, RULES, Role

LIST_LINES = "/reput.common.v1.AuditService/ListLines"
"""The call that reads the trail: it changes nothing."""
LISTS = frozenset({LIST_LINES, "/reput.common.v1.ConnectionService/ListConnections"})
"""Lists that operators, and open pages of the console, repeat: of these only refusals have lines."""
TOLD = frozenset(path for path, rule in RULES.items() if rule.is_logged or ROLES[path] is Role.OPERATOR) - LISTS
"""Calls with a line: of operators, and of clients so that other clients of the topic or group can look them up."""
REASONS_OF_REFUSALS = frozenset({"UNAUTHENTICATED", "NOT_PERMITTED", "QUOTA_EXCEEDED"})
"""Reasons of errors for callers without the right to call, and for callers that call too much."""


ON_BEHALF_OF, PERSON_CHARACTERS_MAX = "reput-on-behalf-of", 100
"""The metadata in which a program names the person for whom it calls, with `%` escapes, and its length in a line."""
KEPT_COUNT_MAX = 1_000
"""Number of lines that stay in memory for the call that lists them."""
LINE_COUNT_MAX, LINE_AGAIN_S = 100, 1.0
"""Maximum number of lines of a subject at once, and the time after which another line is permitted."""
SUBJECT_COUNT_MAX = 1_000
"""Maximum number of subjects with a limit of their own; further subjects share a limit."""

_log = logging.getLogger(__name__)


class Context(Protocol):
    """The part of a call that shows its caller."""

    def peer(self) -> str:
        """Return the address of the caller."""
        ...

    def invocation_metadata(self) -> Any:
        """Return the metadata of the call."""
        ...


class TrailStatistics(Struct, frozen=True, kw_only=True):
    """The counts of the audit, for telemetry."""

    written_lines_total: int
    """Audit lines that were written to the audit file; 0 without an audit file."""
    lost_lines_total: int
    """Audit lines that could not be written to the audit file: the disk is full, fails, or is too slow."""
    counted_lines_total: int
    """Audit lines of repeated calls that are only counted in another line."""


class _Room:
    """The room for lines of a subject."""

    def __init__(self, now_s: float) -> None:
        self._room, self._seen_s = float(LINE_COUNT_MAX), now_s

    def takes(self, now_s: float) -> bool:
        """Return whether there is room for a line, and use it."""
        self._room = min(LINE_COUNT_MAX, self._room + (now_s - self._seen_s) / LINE_AGAIN_S)
        self._seen_s = now_s
        if self._room < 1:
            return False
        self._room -= 1
        return True


def _later(delay_s: float, function: Callable[[], None]) -> None:
    asyncio.get_running_loop().call_later(delay_s, function)


class Trail:
    """The trail of a server. Raises ConfigError for an audit file that can't be used.

    `name_of` returns the name of a call's subject: the server sets it, the single place that names subjects.
    """

    def __init__(
        self,
        service: str = "",
        config: AuditConfig | None = None,
        now_s: Callable[[], float] = time.monotonic,
        later: Callable[[float, Callable[[], None]], None] = _later,
    ) -> None:
        self.name_of: Callable[[Any], str] = lambda _: ANONYMOUS
        self._service, self._now_s, self._clock = service, now_s, SystemClock()
        has_file = config is not None and config.audit_file is not None
        self._file = AuditFile(config) if has_file and config is not None else None
        self._repeats = Repeats(self._write, now_s, later)
        self._rooms: dict[str, _Room] = {}
        self.last_number = 0
        """The number of the newest line."""
        self._kept: deque[tuple[int, str]] = deque(maxlen=KEPT_COUNT_MAX)
        self.start_time_ms = self._clock.now_ms()

    def statistics(self) -> TrailStatistics:
        """Return the counts. From any thread."""
        file = self._file
        return TrailStatistics(
            written_lines_total=0 if file is None else file.written_total,
            lost_lines_total=0 if file is None else file.lost_total,
            counted_lines_total=self._repeats.counted_total,
        )

    def lines(self, after_number: int) -> Iterator[tuple[int, str]]:
        """Yield the lines in memory after a number, with their numbers, oldest first."""
        return ((number, text) for number, text in self._kept if number > after_number)

    def ended(
        self, path: str, request: object, context: Context, *, change: Change, code: str, status: Status | None = None
    ) -> None:
        """Write the line of a call that ended. `code` is the name of its code, `status` the status of a failed call."""
        if status is not None and reason_of(status) in REASONS_OF_REFUSALS:
            self.refused(path, request, context, status)
            return
        if path not in TOLD or getattr(request, "dry_run", False):
            return
        line = self._line(CALL, path, request, context, code, status)
        line = line._replace(before=value_of(change.before), after=value_of(change.after))
        if ROLES[path] is Role.OPERATOR or line.subject == OPERATOR or self._has_room(line.subject):
            self._write(line)
        else:
            self._repeats.take(line, is_shown=False)

    def refused(self, path: str, request: object, context: Context, status: Status) -> None:
        """Write or count the line of a call whose caller lacks a right. `request` is None if it was not read."""
        code = next(code.name for code in grpc.StatusCode if code.value[0] == status.code)
        self._repeats.take(self._line(REFUSAL, path, request, context, code, status))

    def told(
        self, path: str, request: object, context: Context, *, subject: str, code: str, reason: str, text: str
    ) -> None:
        """Write or count the line of a refusal of a protocol with subjects and codes of its own."""
        line = self._line(REFUSAL, path, request, context, code, None)
        self._repeats.take(line._replace(subject=subject, reason=reason, text=text))

    def close(self) -> None:
        """Write the counts and the lines that wait. May be repeated."""
        self._repeats.flush()
        if self._file is not None:
            self._file.close()

    def _line(self, event: str, path: str, request: object, context: Context, code: str, status: Status | None) -> Line:
        method = path.removeprefix("/")
        return Line(
            time=datetime.fromtimestamp(self._clock.now_ms() / 1000, UTC)
            .isoformat(timespec="milliseconds")
            .replace("+00:00", "Z"),
            service=self._service,
            event=event,
            subject=self.name_of(context),
            address=context.peer(),
            on_behalf_of=_person_of(context),
            method=method,
            code=code,
            reason="" if status is None else reason_of(status),
            text="" if status is None else status.message,
            resources=resources_of(request, method.partition("/")[0]) or _resource_in(status),
        )

    def _has_room(self, subject: str) -> bool:
        now_s = self._now_s()
        if subject not in self._rooms and len(self._rooms) >= SUBJECT_COUNT_MAX:
            subject = ""
        return self._rooms.setdefault(subject, _Room(now_s)).takes(now_s)

    def _write(self, line: Line) -> None:
        text = line.encode()
        self.last_number += 1
        self._kept.append((self.last_number, text))
        if self._file is not None:
            self._file.write(text)
        level = logging.INFO if line.event == CALL else logging.WARNING
        _log.log(level, "%s", line.sentence, extra={"audit": line.fields()})


def reason_of(status: Status) -> str:
    """Return the reason of an error's status."""
    return str(_info(status).reason)


def _person_of(context: Context) -> str:
    """Return for whom the caller says that it calls, "" if it does not say. It is no proof, and gives no right."""
    for key, value in context.invocation_metadata() or ():
        if key == ON_BEHALF_OF:
            return unquote(value if isinstance(value, str) else value.decode("latin-1"))[:PERSON_CHARACTERS_MAX]
    return ""


def _resource_in(status: Status | None) -> dict[str, list[str | int]]:
    """Return the resource that an error for lack of a right names, for a call whose request was not kept."""
    kind, _, name = ("" if status is None else _info(status).metadata.get("resource", "")).partition(" ")
    return {f"{kind}s": [cut(name)]} if kind in ("topic", "group") and name else {}


def _info(status: Status) -> ErrorInfo:
    info = ErrorInfo()
    return info if any(detail.Unpack(info) for detail in status.details) else ErrorInfo()
