# SPDX-License-Identifier: Apache-2.0
"""`reput clients`: the connections that the services have now."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cli.commands.callers.places import Place, PlaceCaller, ServiceOption, TargetOption, places_of
from cli.connection.client import options_of
from cli.output.lines import JsonOption
from cli.output.moments import time_text
from cli.output.tables import print_rows

if TYPE_CHECKING:
    from collections.abc import Iterator

    from reput.common.v1.connection_service_pb2 import Connection
    from reput_client import Options

COLUMNS = (
    "service", "peer", "door", "subject", "client", "groups", "running", "call_count", "received_bytes", "sent_bytes",
    "open_s",
)  # fmt: skip
PAGE_SIZE = 200


def clients(
    context: typer.Context,
    service: ServiceOption = None,
    target: TargetOption = None,
    group: Annotated[
        str | None, typer.Option("--group", "-g", metavar="GROUP", help="Only connections that have named this group.")
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """List the connections of the services: address, subject, client, groups, running calls.

    It needs the token of an operator. Services have connections to each other, too, as the client reput-service. A
    caller behind a gateway is listed with the gateway's address as its door, for some minutes after its last call. A
    group is shown where calls have named it: receives in Delivery and in the gateway, commits in the Indexer.

    Example: reput clients --group billing
    """
    options = options_of(context)
    found = [row for place in places_of(context, options, service, target) for row in _rows(options, place)]
    print_rows(
        [row for row in found if group is None or group in row["groups"]],
        COLUMNS,
        as_json=as_json,
        spare=("sent_bytes", "received_bytes", "call_count", "door"),
    )


def _rows(options: Options, place: Place) -> Iterator[dict[str, Any]]:
    """Yield a row for each connection of a service."""
    from reput.common.v1.connection_service_pb2 import ListConnectionsRequest
    from reput.common.v1.connection_service_pb2_grpc import ConnectionServiceStub

    caller = PlaceCaller(options, place, "list of connections")
    request = ListConnectionsRequest(page_size=PAGE_SIZE)
    while (answer := caller.call(ConnectionServiceStub, "ListConnections", request)) is not None:
        for connection in answer.connections:
            yield _row(place.service, connection)
        if not answer.has_more:
            return
        request.after_number = answer.connections[-1].number


def _row(service: str, connection: Connection) -> dict[str, Any]:
    opened_ms = connection.opened_time.ToMilliseconds()
    running = {calls.method.rpartition("/")[2]: calls.call_count for calls in connection.running}
    version, library = connection.client_version, connection.user_agent.partition(" ")[0]
    return {
        "service": service,
        "number": connection.number,
        "peer": connection.peer,
        "door": connection.door,
        "subject": connection.subject,
        "client": f"{connection.client_id} ({version})" if connection.client_id else library,
        "user_agent": connection.user_agent,
        "client_id": connection.client_id,
        "client_version": version,
        "groups": list(connection.groups),
        "running": [f"{method} × {count}" if count > 1 else method for method, count in running.items()],
        "call_count": connection.call_count,
        "received_bytes": connection.received_bytes,
        "sent_bytes": connection.sent_bytes,
        "opened_time": time_text(opened_ms),
        "received_time": time_text(connection.received_time.ToMilliseconds()),
        "open_s": max(0.0, round(time.time() - opened_ms / 1000, 3)),
    }
