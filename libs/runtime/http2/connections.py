# SPDX-License-Identifier: Apache-2.0
"""Connections: all open connections of a server. It displaces, pings and closes them.

Invariants: at most the limit of connections stay. No more connections are displaced while as many are leaving. A
connection with a call, or with an answer that was not sent yet, is never displaced. A connection that is closed for its
age, its idleness or a newer connection was asked to leave before.
Callers: a single event loop.
"""

import asyncio
import resource
import weakref
from collections.abc import Iterator
from typing import Final, Protocol

from msgspec import Struct

from libs.runtime.http2.limits import ConnectionLimits

KEPT_FILE_COUNT: Final = 256
"""Open files that connections leave to the store and to the metrics port."""

SILENCE_S: Final = 60.0
"""A connection that received nothing for this time is pinged."""

ANSWER_S: Final = 20.0
"""Time for the caller to answer the ping."""

LOOKS: Final = 4
"""Number of checks within the shortest of the configured times."""

LOOK_S_MIN: Final = 0.01
CLOSE_S: Final = 1.0
"""Time from the request to leave until an idle connection is closed. A connection is displaced only after it has been
idle for the same time. Otherwise callers that reconnect at once would displace each other for ever."""

AGE_SPREAD: Final = 0.2
"""Part of the age that connections differ by: connections that opened together do not end together."""

GOLDEN_RATIO: Final = 0.618034
"""Its multiples spread evenly over an interval."""


class Connection(Protocol):
    """The connection as this module uses it."""

    received_at_s: float
    number: int

    @property
    def is_idle(self) -> bool:
        """Whether it has no call, and all answers have been sent."""
        ...

    def ping(self) -> None:
        """Ask the caller for a sign of life."""
        ...

    def shut(self) -> None:
        """Ask its caller to begin no more calls on it."""
        ...

    def cancel(self) -> "list[asyncio.Task[None]]":
        """Cancel all handlers. Returns their tasks."""
        ...

    def close(self) -> None:
        """Close it after all pending output has been sent."""
        ...

    def abort(self) -> None:
        """Close it at once."""
        ...


def connection_room(limits: ConnectionLimits) -> int:
    """Return the maximum number of connections: the setting, or fewer if the process may not open enough files.

    The same number of connections that were asked to leave may exist beside them.
    """
    most, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if most == resource.RLIM_INFINITY:
        return limits.connection_count_max
    return max(1, min(limits.connection_count_max, (most - min(KEPT_FILE_COUNT, most // 2)) // 2))


def shortages(limits: ConnectionLimits) -> list[str]:
    """Return a sentence for the log if the process may not open as many files as the setting needs."""
    room, wanted = connection_room(limits), limits.connection_count_max
    if room == wanted:
        return []
    most, needed = resource.getrlimit(resource.RLIMIT_NOFILE)[0], 2 * wanted + KEPT_FILE_COUNT
    fact = f"the process may open {most} files (RLIMIT_NOFILE), so {room} connections are taken at once"
    return [f"{fact}; connection_count_max = {wanted} needs {needed}: raise the hard limit (ulimit -n, LimitNOFILE=)"]


class Counts(Struct):
    """Counts of connections since the start."""

    opened: int = 0
    refused: int = 0
    """Refused, because the limit was reached and no connection could be displaced."""
    displaced: int = 0
    """Asked to leave to make room for a newer connection."""
    silent: int = 0
    """Closed because the caller did not answer a ping."""
    broken: int = 0
    """Violated HTTP/2 or the limits."""
    late_requests: int = 0
    """Requests that took too long to arrive."""


class Connections:
    """The connections of a server, within its limits."""

    def __init__(self, limits: ConnectionLimits) -> None:
        self.limits = limits
        self._count_max = connection_room(limits)
        self.counts = Counts()
        self._old_at_s: dict[Connection, float] = {}
        """Maps each connection to the time at which it becomes too old."""
        self._idle_since_s: dict[Connection, float] = {}
        """Connections without a call that may stay. The connection that is idle for longest is first."""
        self._greeting: weakref.WeakSet[Connection] = weakref.WeakSet()
        """Connections whose TLS handshake is in progress. A failed handshake is not reported."""
        self._leaving: dict[Connection, float] = {}
        """Maps each connection that was asked to leave to the earliest time of its close."""
        self._is_shut = False
        self._last_number = 0
        self._loop = asyncio.get_running_loop()

    def __len__(self) -> int:
        """Return the number of open connections."""
        return len(self._old_at_s)

    def __iter__(self) -> Iterator[Connection]:
        """Iterate over a copy of the connections that are open now."""
        return iter(list(self._old_at_s))

    @property
    def is_empty(self) -> bool:
        """Whether no connection is open, and no handshake is in progress."""
        return not self._old_at_s and not self._greeting

    @property
    def idle_count(self) -> int:
        """Number of idle connections that may stay."""
        return len(self._idle_since_s)

    def greeting(self, connection: Connection) -> None:
        """Record a connection that is not open yet."""
        self._greeting.add(connection)

    def opened(self, connection: Connection) -> bool:
        """Record an open connection. Returns False if there is no room for it, or after `shut`."""
        self._greeting.discard(connection)
        is_full = len(self) - len(self._leaving) >= self._count_max
        if self._is_shut or (is_full and not self._make_room()):
            self.counts.refused += 1
            return False
        self.counts.opened += 1
        connection.number = self.next_number()
        now_s, age_s = self._loop.time(), self.limits.connection_age_max_ms / 1000
        age_s *= 1 + AGE_SPREAD * (self.counts.opened * GOLDEN_RATIO % 1 - 0.5)
        self._old_at_s[connection] = now_s + age_s if age_s else float("inf")
        self._idle_since_s[connection] = now_s
        return True

    def next_number(self) -> int:
        """Return the number of a new connection, or of a new caller behind a door."""
        self._last_number += 1
        return self._last_number

    def shut(self) -> None:
        """Refuse new connections, and ask all open connections to leave."""
        self._is_shut = True
        for connection in self:
            connection.shut()

    def closed(self, connection: Connection) -> None:
        """Forget a closed connection."""
        self._old_at_s.pop(connection, None)
        self._idle_since_s.pop(connection, None)
        self._leaving.pop(connection, None)

    def busy(self, connection: Connection) -> None:
        """Record that a connection has a call."""
        self._idle_since_s.pop(connection, None)

    def idle(self, connection: Connection) -> None:
        """Record that a connection has no call any more."""
        if connection in self._old_at_s and connection not in self._leaving:
            self._idle_since_s[connection] = self._loop.time()

    async def look_after(self) -> None:
        """Check all connections periodically, until cancelled."""
        times_ms = (self.limits.connection_idle_timeout_ms, self.limits.connection_age_max_ms)
        interval_s = max(LOOK_S_MIN, min([ANSWER_S, *(time_ms / 1000 / LOOKS for time_ms in times_ms if time_ms)]))
        while True:
            await asyncio.sleep(interval_s)
            now_s = self._loop.time()
            for connection in self:
                self._look_at(connection, now_s)

    def _look_at(self, connection: Connection, now_s: float) -> None:
        silent_s = now_s - connection.received_at_s
        if silent_s > SILENCE_S + ANSWER_S:
            self.counts.silent += 1
            connection.abort()
        elif connection in self._leaving:
            self._see_off(connection)
        elif self._has_to_leave(connection, now_s):
            self._ask_to_leave(connection)
        elif silent_s > SILENCE_S:
            connection.ping()

    def _has_to_leave(self, connection: Connection, now_s: float) -> bool:
        timeout_s = self.limits.connection_idle_timeout_ms / 1000
        idle_s = now_s - self._idle_since_s.get(connection, now_s)
        return now_s >= self._old_at_s[connection] or 0 < timeout_s <= idle_s

    def _make_room(self) -> bool:
        if len(self._leaving) >= self._count_max:  # a leaving connection may stay because it began a call meanwhile
            return False
        longest, since_s = next(iter(self._idle_since_s.items()), (None, 0.0))
        if longest is None or not longest.is_idle or self._loop.time() - since_s < CLOSE_S:
            return False
        self.counts.displaced += 1
        self._ask_to_leave(longest)
        return True

    def _ask_to_leave(self, connection: Connection) -> None:
        self._leaving[connection] = self._loop.time() + CLOSE_S
        self._idle_since_s.pop(connection, None)
        connection.shut()
        self._loop.call_later(CLOSE_S, self._see_off, connection)

    def _see_off(self, connection: Connection) -> None:
        """Close a connection whose time to leave has passed. If it has a call, a later check closes it."""
        close_at_s = self._leaving.get(connection, float("inf"))
        if self._loop.time() >= close_at_s and connection.is_idle:
            connection.close()
