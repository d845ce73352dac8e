# SPDX-License-Identifier: Apache-2.0
"""`reput audit …`: the last audit lines of the services."""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cli.commands.callers.places import Place, PlaceCaller, ServiceOption, TargetOption, places_of
from cli.commands.typed.group import command_group
from cli.connection.client import options_of
from cli.output.lines import JsonOption, print_json, write
from cli.output.tables import print_rows

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from reput_client import Options

audit = command_group("Audit: administrative calls and refused calls, the latest of each service.")

COLUMNS = ("time", "service", "subject", "address", "method", "names", "code", "text")
POLL_INTERVAL_S = 1.0
LINE_COUNT_MAX = 1_000
KINDS = ("topics", "groups", "queues")


@audit.command("list")
def audit_list(
    context: typer.Context,
    service: ServiceOption = None,
    target: TargetOption = None,
    limit: Annotated[
        int, typer.Option("--limit", "-n", min=1, max=LINE_COUNT_MAX, help="Most lines of each service.")
    ] = 100,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Print new lines until Ctrl-C.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Print the last administrative calls and refused calls of the services, by time. It needs the operator's token.

    Each service has at most 1,000 lines in memory, since its start; older lines are in the audit file.

    Example: reput audit list --follow
    """
    options = options_of(context)
    tails = [Tail(options, place) for place in places_of(context, options, service, target)]
    found = sorted((line for tail in tails for line in tail.newest(limit)), key=_time)
    _print(found, as_json=as_json)
    while follow:
        time.sleep(POLL_INTERVAL_S)
        _print(sorted((line for tail in tails for line in tail.more()), key=_time), as_json=as_json, has_head=False)


class Tail:
    """The lines of the service at an address, from the newest on."""

    def __init__(self, options: Options, place: Place) -> None:
        self._caller = PlaceCaller(options, place, "audit")
        self._after = 0
        self._start: Any = None

    def newest(self, count: int) -> list[dict[str, Any]]:
        """Return the newest lines. Raises CommandFailed if the service was named and does not answer."""
        return list(self._ask(count, 0))

    def more(self) -> list[dict[str, Any]]:
        """Return the lines since the last call. A service that has started again is read from its first line."""
        return list(self._ask(LINE_COUNT_MAX, self._after))

    def _ask(self, count: int, after: int) -> Iterator[dict[str, Any]]:
        from reput.common.v1.audit_service_pb2 import ListLinesRequest
        from reput.common.v1.audit_service_pb2_grpc import AuditServiceStub

        request = ListLinesRequest(page_size=count, after_number=after)
        answer = self._caller.call(AuditServiceStub, "ListLines", request)
        if answer is None:
            return
        if after and (answer.start_time != self._start or answer.last_number < after):
            self._after, self._start = 0, answer.start_time
            yield from self._ask(count, 0)
            return
        self._start = answer.start_time
        for line in answer.lines:
            self._after = line.number
            yield json.loads(line.json)


def _time(line: Mapping[str, Any]) -> str:
    return str(line.get("time", ""))


def _print(lines: list[dict[str, Any]], *, as_json: bool, has_head: bool = True) -> None:
    if as_json:
        for line in lines:
            print_json(line)
    elif lines or has_head:
        print_rows(map(_row, lines), COLUMNS, as_json=False, prose="text", spare=("address",))
    write(b"")  # a reader of the output has each line at once


def _row(line: Mapping[str, Any]) -> dict[str, object]:
    """Return a line as a row of the table: short names of methods, and all resources in a column."""
    names = [str(name) for kind in KINDS for name in line.get(kind, ())]
    count = line.get("count", 1)
    method = str(line.get("method", "")).rpartition(".")[2]
    person = f" for {line['on_behalf_of']}" if line.get("on_behalf_of") else ""
    return {
        **{column: line.get(column, "") for column in COLUMNS},
        "subject": f"{line.get('subject', '')}{person}",
        "method": f"{method} ({count} more)" if line.get("event") == "repeated" else method,
        "names": ", ".join(names),
    }
