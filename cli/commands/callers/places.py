# SPDX-License-Identifier: Apache-2.0
"""Places: the services that answer for themselves, each at its address, and calls to them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from cli.connection.addresses import beside_of, check_target, is_listening
from cli.exit_codes import CommandFailed, ExitCode
from cli.output.lines import warning_line
from libs.service_names import BESIDE, SERVICES, meant_for

if TYPE_CHECKING:
    from collections.abc import Callable

    import grpc
    from reput_client import Options

TIMEOUT_S = 10.0
DENIED = ("PERMISSION_DENIED", "UNAUTHENTICATED")

ServiceOption = Annotated[
    str | None, typer.Option(metavar="NAME", help="Only this service, as commitlog. [default: all that answer]")
]
TargetOption = Annotated[str | None, typer.Option(metavar="HOST:PORT", help="Only the service at this address.")]


class Place(NamedTuple):
    """The address of a service, and whether it was named, so that it must answer."""

    service: str
    target: str
    is_named: bool


def places_of(context: typer.Context, options: Options, service: str | None, target: str | None) -> list[Place]:
    """Return the addresses to ask. Raises BadParameter for a wrong name or address."""
    if target is not None:
        check_target(target, flag="--target", port=7101)
        return [Place("the service", target, is_named=True)]
    names = {**dict.fromkeys(SERVICES), **dict.fromkeys(BESIDE)}
    if service is not None and service not in names:
        raise typer.BadParameter(f"{service!r} is no service: {', '.join(names)}", param_hint="--service")
    places = [
        Place(name, found, is_named=name == service)
        for name in SERVICES
        if name not in BESIDE
        for found in options.targets(name)
    ]
    beside = beside_of(context.find_root().obj)
    places += [Place(name, target, is_named=is_named) for name, (found, is_named) in beside.items() for target in found]
    return [place for place in places if service in (None, place.service)]


class PlaceCaller:
    """Calls a service at its address. `subject` is what it is asked for, as "audit".

    A service that does not answer is reported once; a service that was named, and has never answered, ends the command.
    """

    def __init__(self, options: Options, place: Place, subject: str) -> None:
        self.place = place
        self._options, self._subject = options, subject
        self._channel: grpc.Channel | None = None
        self._has_answered = self._is_away = False

    def call(self, stub_type: Callable[[grpc.Channel], Any], method: str, request: Any) -> Any:
        """Return the answer to an operator's call. None if the service does not answer. Raises CommandFailed."""
        import grpc

        if not is_listening(self.place.target):
            return self._report_away("no process listens there")
        if self._channel is None:
            self._channel = self._options.channel(self.place.target, self._options.credentials())
        call = getattr(stub_type(self._channel), method)
        try:
            answer = call(
                request, timeout=TIMEOUT_S, metadata=(*self._options.metadata(), *meant_for(self.place.service))
            )
        except grpc.RpcError as error:
            return self._report_failed(error)
        self._has_answered, self._is_away = True, False
        return answer

    def _report_failed(self, error: Any) -> None:
        code = str(error.code().name)
        if code in DENIED:
            text = f"{self.place.target}: the {self._subject} needs the token of an operator (docs/security.md)"
            raise CommandFailed("NOT_OPERATOR", text, code=ExitCode.REFUSED)
        self._report_away(f"{code}: {error.details()}")

    def _report_away(self, reason: str) -> None:
        text = f"no {self._subject} of {self.place.service} at {self.place.target}: {reason}"
        if self.place.is_named and not self._has_answered:
            raise CommandFailed("UNAVAILABLE", text, code=ExitCode.UNAVAILABLE)
        if not self._is_away:
            self._is_away = True
            warning_line(text)
