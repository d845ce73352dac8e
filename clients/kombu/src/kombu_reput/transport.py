# SPDX-License-Identifier: Apache-2.0
"""Transport: Kombu's transport `reput`."""

from __future__ import annotations

import socket
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

from kombu.transport import virtual

from kombu_reput.arrivals import Arrivals
from kombu_reput.bindings import Bindings
from kombu_reput.channel import Channel
from kombu_reput.errors import CHANNEL_ERRORS, CONNECTION_ERRORS
from kombu_reput.settings import PORT, settings_of
from kombu_reput.store import Interrupted, Store

if TYPE_CHECKING:
    from kombu_reput.owned import OwnedQueue

CONNECT_TIMEOUT_S = 5.0


class Transport(virtual.Transport):  # type: ignore[misc]
    """The transport of a connection: its store, its bindings, and the messages that wait."""

    Channel = Channel
    can_parse_url = True
    default_port = PORT
    driver_type = "reput"
    driver_name = "reput"
    connection_errors = (*virtual.Transport.connection_errors, *CONNECTION_ERRORS, Interrupted)
    channel_errors = (*virtual.Transport.channel_errors, *CHANNEL_ERRORS)
    implements = virtual.Transport.implements.extend(
        asynchronous=True, exchange_type=frozenset(["direct", "topic", "fanout"]), heartbeats=False
    )

    def __init__(self, client: Any, **kwargs: Any) -> None:
        super().__init__(client, **kwargs)
        self.store = Store(settings_of(_url_of(client), client.transport_options, client.password))
        self.bindings, self.arrivals = Bindings(self.store), Arrivals()
        self.owned: dict[str, OwnedQueue] = {}
        self.priorities: dict[str, tuple[int, int]] = {}
        """The largest priority and the number of levels of queues with priorities."""
        self._loop: Any = None

    def driver_version(self) -> str:
        """Return the version of the client."""
        return version("reput-client")

    def establish_connection(self) -> Any:
        """Return the connection when the services answer. Raises an error of `connection_errors`."""
        self.store.check(self.client.connect_timeout or CONNECT_TIMEOUT_S)
        return super().establish_connection()

    def callback_of(self, queue: str) -> Any:
        """Return the function that Kombu calls with the messages of a queue."""
        return self._callbacks[queue]

    def verify_connection(self, connection: Any) -> bool:
        """Return whether the connection is open."""
        return connection is self

    def drain_events(self, _connection: Any, timeout: float | None = None) -> None:
        """Deliver the next message. Raises TimeoutError without one."""
        arrival = self.arrivals.take(timeout)
        if arrival is None:
            raise socket.timeout  # noqa: UP041 - the name that Kombu documents
        arrival.channel.deliver(arrival)

    def register_with_event_loop(self, _connection: Any, loop: Any) -> None:
        """Let an event loop deliver messages as they come."""
        loop.add_reader(self.arrivals.fileno(), self.on_readable)
        self._loop = loop

    def on_readable(self) -> None:
        """Deliver all messages that wait."""
        self.arrivals.silence()
        while (arrival := self.arrivals.take(0.0)) is not None:
            arrival.channel.deliver(arrival)

    def close_connection(self, connection: Any) -> None:
        """Close all channels and the connections to the store."""
        for channel in list(self.channels):
            channel.stop_receiving()
        if self._loop is not None:
            self._loop.remove(self.arrivals.fileno())
            self._loop = None
        super().close_connection(connection)
        self.store.close()
        self.arrivals.close()


def _url_of(client: Any) -> str:
    """Return the URL of a connection, also of one that was made from a host name and a port."""
    hostname = client.hostname or ""
    if "://" in hostname:
        return str(hostname)
    port = f":{client.port}" if client.port and hostname else ""
    host = "" if client.virtual_host in (None, "/") else str(client.virtual_host)
    return f"reput://{hostname}{port}/{host.lstrip('/')}"
