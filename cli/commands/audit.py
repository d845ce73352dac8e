# SPDX-License-Identifier: Apache-2.0
"""`reput audit …`: the last audit lines of the services."""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from cli.commands.typed.group import command_group
from cli.connection.addresses import BESIDE, SERVICES, beside_of, check_target, is_listening
from cli.connection.client import options_of
from cli.exit_codes import CommandFailed, ExitCode
from cli.output.lines import JsonOption, print_json, warning_line, write
from cli.output.tables import print_rows

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    import grpc
    from reput_client import Options

audit = command_group("Audit: administrative calls and refused calls, the latest of each service.")

COLUMNS = ("time", "service", "subject", "address", "method", "names", "code", "text")
POLL_INTERVAL_S = 1.0
TIMEOUT_S = 10.0
LINE_COUNT_MAX = 1_000
DENIED = ("PERMISSION_DENIED", "UNAUTHENTICATED")
KINDS = ("topics", "groups", "queues")


@audit.command("list")
def audit_list(
    context: typer.Context,
    service: Annotated[
        str | None, typer.Option(metavar="NAME", help="Only this service, as commitlog. [default: all that answer]")
    ] = None,
    target: Annotated[str | None, typer.Option(metavar="HOST:PORT", help="Only the service at this address.")] = None,
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
    tails = [Tail(options, address) for address in _targets(context, options, service, target)]
    found = sorted((line for tail in tails for line in tail.newest(limit)), key=_time)
    _print(found, as_json=as_json)
    while follow:
        time.sleep(POLL_INTERVAL_S)
        _print(sorted((line for tail in tails for line in tail.more()), key=_time), as_json=as_json, has_head=False)


class Place(NamedTuple):
    """The address of a service, and whether it was named, so that it must answer."""

    service: str
    target: str
    is_named: bool


def _targets(context: typer.Context, options: Options, service: str | None, target: str | None) -> list[Place]:
    """Return the addresses to ask. Raises BadParameter for a wrong name or address."""
    if target is not None:
        check_target(target, flag="--target", port=7101)
        return [Place("the service", target, is_named=True)]
    names = {**dict.fromkeys(SERVICES), **dict.fromkeys(BESIDE)}
    if service is not None and service not in names:
        raise typer.BadParameter(f"{service!r} is no service: {', '.join(names)}", param_hint="--service")
    places = [
        Place(name, one, is_named=name == service)
        for name in SERVICES
        if name not in BESIDE
        for one in options.targets(name)
    ]
    beside = beside_of(context.find_root().obj)
    places += [Place(name, one, is_named=is_named) for name, (found, is_named) in beside.items() for one in found]
    return [place for place in places if service in (None, place.service)]


class Tail:
    """The lines of the service at an address, from the newest on."""

    def __init__(self, options: Options, place: Place) -> None:
        self._options, self._place = options, place
        self._after = 0
        self._start: Any = None
        self._channel: grpc.Channel | None = None
        self._is_away = False

    def newest(self, count: int) -> list[dict[str, Any]]:
        """Return the newest lines. Raises CommandFailed if the service was named and does not answer."""
        return list(self._ask(count, 0))

    def more(self) -> list[dict[str, Any]]:
        """Return the lines since the last call. A service that has started again is read from its first line."""
        return list(self._ask(LINE_COUNT_MAX, self._after))

    def _ask(self, count: int, after: int) -> Iterator[dict[str, Any]]:
        import grpc
        from reput.common.v1 import audit_service_pb2, audit_service_pb2_grpc

        if not is_listening(self._place.target):
            self._away("no process listens there")
            return
        if self._channel is None:
            self._channel = self._options.channel(self._place.target, self._options.credentials())
        stub: Any = audit_service_pb2_grpc.AuditServiceStub(self._channel)
        request = audit_service_pb2.ListLinesRequest(page_size=count, after_number=after)
        try:
            answer = stub.ListLines(request, timeout=TIMEOUT_S, metadata=self._options.metadata())
        except grpc.RpcError as error:
            self._failed(error)
            return
        self._is_away = False
        if after and (answer.start_time != self._start or answer.last_number < after):
            self._after, self._start = 0, answer.start_time
            yield from self._ask(count, 0)
            return
        self._start = answer.start_time
        for line in answer.lines:
            self._after = line.number
            yield json.loads(line.json)

    def _failed(self, error: Any) -> None:
        code = str(error.code().name)
        if code in DENIED:
            text = f"{self._place.target}: the audit needs the token of an operator (docs/security.md)"
            raise CommandFailed("NOT_OPERATOR", text, code=ExitCode.REFUSED)
        self._away(f"{code}: {error.details()}")

    def _away(self, reason: str) -> None:
        text = f"no audit of {self._place.service} at {self._place.target}: {reason}"
        if self._place.is_named and self._start is None:
            raise CommandFailed("UNAVAILABLE", text, code=ExitCode.UNAVAILABLE)
        if not self._is_away:
            self._is_away = True
            warning_line(text)


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
    return {
        **{column: line.get(column, "") for column in COLUMNS},
        "method": f"{method} ({count} more)" if line.get("event") == "repeated" else method,
        "names": ", ".join(names),
    }
