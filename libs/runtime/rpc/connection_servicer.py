# SPDX-License-Identifier: Apache-2.0
"""ConnectionService: the open connections of this service, with their callers.

Servicers call `note_group` with each group of a request, so that an operator sees the members of a group.
Callers: the event loop's thread.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Any

from reput.common.v1 import connection_service_pb2 as pb

from libs.machine.clock import SystemClock
from libs.requests.checks import check_range, size_of_page
from libs.runtime.http2.behind import CallerBehind
from libs.runtime.rpc.timestamps import timestamp

if TYPE_CHECKING:
    from google.protobuf.timestamp_pb2 import Timestamp

    from libs.runtime.http2.connection import Connection
    from libs.runtime.http2.heads import Head, Metadata
    from libs.runtime.trust.rights.access import Context

PAGE_SIZE_DEFAULT, PAGE_SIZE_MAX = 100, 200
TEXT_SIZE_MAX = 200
"""Characters of a text that the caller chose."""
GROUP_COUNT_MAX = METHOD_COUNT_MAX = 16


class ConnectionServicer:
    """The servicer of reput.common.v1.ConnectionService. `name_of` returns the name of a call's subject."""

    def __init__(self, connections: Callable[[], Iterator[Connection]], name_of: Callable[[Context], str]) -> None:
        self._connections, self._name_of = connections, name_of
        self._clock = SystemClock()

    async def ListConnections(self, request: pb.ListConnectionsRequest, _: object) -> pb.ListConnectionsResponse:  # noqa: N802
        """Return a page of the open connections."""
        size = size_of_page(request, "page_size", default=PAGE_SIZE_DEFAULT, most=PAGE_SIZE_MAX)
        after_number = check_range(request.after_number, "after_number")
        found: list[Connection | CallerBehind] = list(self._connections())
        found += [caller for connection in self._connections() if connection.behind for caller in connection.behind]
        found.sort(key=lambda one: one.number)
        later = (connection for connection in found if connection.number > after_number)
        page = list(islice(later, size))
        return pb.ListConnectionsResponse(
            connections=map(self._shown, page),
            connection_count=len(found),
            has_more=next(later, None) is not None,
        )

    def _shown(self, connection: Connection | CallerBehind) -> pb.Connection:
        if isinstance(connection, CallerBehind):
            running, received_bytes, sent_bytes, door = connection.running, 0, 0, connection.door
        else:
            running, door = Counter(call.head.method for call in connection.calls), ""
            received_bytes, sent_bytes = connection.received_bytes, connection.sent_bytes
        shown = pb.Connection(
            number=connection.number,
            peer=connection.peer,
            opened_time=self._time_of(connection.opened_at_s),
            received_time=self._time_of(connection.received_at_s),
            groups=connection.groups,
            call_count=connection.begun_count,
            received_bytes=received_bytes,
            sent_bytes=sent_bytes,
            door=door,
        )
        for method, count in running.most_common(METHOD_COUNT_MAX):
            shown.running.add(method=method[:TEXT_SIZE_MAX], call_count=count)
        if connection.last_head is not None:
            self._show_caller(shown, LastCall(connection, connection.last_head))
        return shown

    def _time_of(self, loop_time_s: float) -> Timestamp | None:
        """Return the time of day of a time of the event loop."""
        ago_s = asyncio.get_running_loop().time() - loop_time_s
        return timestamp(self._clock.now_ms() - round(ago_s * 1000))

    def _show_caller(self, shown: pb.Connection, call: LastCall) -> None:
        said = {key: value for key, value in call.invocation_metadata() if isinstance(value, str)}
        versions = (said.get("x-mq-language", ""), said.get("x-mq-client-version", ""))
        shown.subject = self._name_of(call)
        shown.user_agent = said.get("user-agent", "")[:TEXT_SIZE_MAX]
        shown.client_id = said.get("x-mq-client-id", "")[:TEXT_SIZE_MAX]
        shown.client_version = " ".join(filter(None, versions))[:TEXT_SIZE_MAX]


class LastCall:
    """The call that has begun last on a connection, as the rights see it."""

    def __init__(self, connection: Connection | CallerBehind, head: Head) -> None:
        self._connection, self._head = connection, head

    def invocation_metadata(self) -> Metadata:
        """Return the metadata that the caller sent."""
        return self._head.invocation_metadata

    def auth_context(self) -> Mapping[str, Sequence[bytes]]:
        """Return the names of the caller's certificate by gRPC's properties."""
        return self._connection.auth_context()


def note_group(context: Any, group: str) -> None:
    """Record that a call on this connection names a group. The last `GROUP_COUNT_MAX` groups are kept."""
    connection = getattr(context, "connection", None)  # gRPC's own server does not show it
    if connection is None or group in connection.groups:
        return
    connection.groups[group] = None
    if len(connection.groups) > GROUP_COUNT_MAX:
        del connection.groups[next(iter(connection.groups))]


def number_of(context: Any) -> int:
    """Return the number of a call's connection in the list of connections, 0 if it is not known."""
    connection = getattr(context, "connection", None)  # gRPC's own server does not show it
    return 0 if connection is None else int(connection.number)
