# SPDX-License-Identifier: Apache-2.0
"""`reput health`: the standard gRPC health service of each server."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from cli.connection.addresses import beside_of, check_target, is_listening
from cli.connection.client import options_of
from cli.exit_codes import CommandFailed, ExitCode
from cli.output.lines import JsonOption
from cli.output.tables import print_rows
from libs.service_names import OF_EVERY_STORE, PORTS, meant_for

if TYPE_CHECKING:
    import grpc
    from reput_client import Options

POLL_INTERVAL_S = 0.2
ONE_CHECK_TIMEOUT_S = 3.0
SERVING, UNREACHABLE = "SERVING", "UNREACHABLE"


def health(
    context: typer.Context,
    target: Annotated[str | None, typer.Option(metavar="HOST:PORT", help="Only this server. [default: all]")] = None,
    wait: Annotated[float, typer.Option(metavar="SECONDS", min=0, help="Wait so long for SERVING.")] = 0,
    as_json: JsonOption = False,
) -> None:
    """Ask servers whether they serve (the standard gRPC health service). Exit code 4 unless all are SERVING.

    A server that serves may refuse appends, on a full disk for example: `reput status` reports that, with exit code 7.

    Delivery and the gateway are asked if a variable or the context names them.

    Example: reput health --wait 60
    """
    options = options_of(context)
    if target is not None:
        check_target(target, flag="--target", port=PORTS["commitlog"])
    servers = [("", target)] if target else [(one, at) for one in OF_EVERY_STORE for at in options.targets(one)]
    if not target:
        beside = beside_of(context.find_root().obj).items()
        servers += [(service, one) for service, (named, is_named) in beside if is_named for one in named]
    end_s = time.monotonic() + wait
    answers = {server: health_of(options, server[1], end_s, server[0]) for server in servers}
    rows = [
        {"service": service, "target": at, "health": answer.health, "reason": answer.reason}
        for (service, at), answer in answers.items()
    ]
    columns = ("service", "target", "health", "reason")[
        target is not None : 4 if any(row["reason"] for row in rows) else 3
    ]
    print_rows(rows, columns, as_json=as_json)
    bad = dict.fromkeys(at for (_, at), answer in answers.items() if answer.health != SERVING)
    if bad:
        raise CommandFailed("NOT_SERVING", f"not serving: {', '.join(bad)}", code=ExitCode.UNAVAILABLE)


class Answer(NamedTuple):
    """A server's health, and the reason why there is no answer if it is UNREACHABLE."""

    health: str
    reason: str = ""


def health_of(options: Options, target: str, end_s: float, service: str = "") -> Answer:
    """Return a server's health once it is SERVING or the time is over, UNREACHABLE if there is no answer.

    A gateway answers for the service with this name, which is behind it.
    """
    while not is_listening(target):
        if time.monotonic() >= end_s:
            return Answer(UNREACHABLE, "no process listens there")
        time.sleep(POLL_INTERVAL_S)
    with options.channel(target, options.credentials()) as channel:
        return _wait_serving(channel, end_s, service)


def _wait_serving(channel: grpc.Channel, end_s: float, service: str) -> Answer:
    import grpc
    from grpc_health.v1 import health_pb2, health_pb2_grpc

    stub: Any = health_pb2_grpc.HealthStub(channel)
    while True:
        try:
            request = health_pb2.HealthCheckRequest()
            answer = stub.Check(request, timeout=ONE_CHECK_TIMEOUT_S, metadata=meant_for(service))
            found = Answer(str(health_pb2.HealthCheckResponse.ServingStatus.Name(answer.status)))
        except grpc.RpcError as error:
            found = Answer(UNREACHABLE, reason_of(error))
        if found.health == SERVING or time.monotonic() >= end_s:
            return found
        time.sleep(POLL_INTERVAL_S)


def reason_of(error: Any) -> str:
    """Return the reason of a failed call, in a single line: the code, and gRPC's details."""
    details = " ".join(str(error.details() or "").split())
    return f"{error.code().name}: {details}" if details else str(error.code().name)
