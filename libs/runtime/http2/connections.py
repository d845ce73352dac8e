# SPDX-License-Identifier: Apache-2.0
"""Connections: all that are open, who has to make room, and who is asked for a sign of life or closed.

Invariants: no more than the limit stay, and no more are displaced while as many are leaving; a connection with a call,
or with an answer that has not left, never makes room for another one; whoever is closed for its age, its idleness
or for another one was asked to leave before.
Callers: one event loop.
"""

import asyncio
import resource
import weakref
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, Protocol

from libs.runtime.http2.limits import ConnectionLimits

KEPT_FILE_COUNT: Final = 256
"""Open files that connections leave to the store and to the metrics port."""

SILENCE_S: Final = 60.0
"""A caller that has said nothing for so long is asked for a sign of life."""

ANSWER_S: Final = 20.0
"""So long it has for that."""

LOOKS: Final = 4
"""How often it is looked within the shortest of the times."""

LOOK_S_MIN: Final = 0.01
CLOSE_S: Final = 1.0
"""So long after it was asked to leave a connection without a call is closed; and so long one has been without before it
has to make room, or those who come again at once would push one another out for ever."""

AGE_SPREAD: Final = 0.2
"""Part of the age that connections differ by, so that those that were made together do not end together."""

GOLDEN_RATIO: Final = 0.618034
"""Its multiples spread evenly over an interval."""


class Connection(Protocol):
    """What is known here of one."""

    received_at_s: float

    @property
    def is_idle(self) -> bool:
        """Whether it has no call, and all that was answered has left."""
        ...

    def ping(self) -> None:
        """Ask for a sign of life."""
        ...

    def shut(self) -> None:
        """Ask its caller to begin no more calls on it."""
        ...

    def cancel(self) -> "list[asyncio.Task[None]]":
        """Let all handlers end. Returns them."""
        ...

    def close(self) -> None:
        """Close it, once what was said has left."""
        ...

    def abort(self) -> None:
        """Close it at once."""
        ...


def connection_room(limits: ConnectionLimits) -> int:
    """Return how many connections are taken at once: the setting, or fewer if so many files may not be open.

    As many more may be there that were asked to leave.
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


@dataclass(slots=True)
class Counts:
    """How connections came and went, since the start."""

    opened: int = 0
    refused: int = 0
    """There was no room, and all others had calls."""
    displaced: int = 0
    """They made room for others."""
    silent: int = 0
    """Gave no sign of life."""
    broken: int = 0
    """Did what HTTP/2 or the limits forbid."""
    late_requests: int = 0
    """Requests that took too long to arrive."""


class Connections:
    """See the module."""

    def __init__(self, limits: ConnectionLimits) -> None:
        self.limits = limits
        self._count_max = connection_room(limits)
        self.counts = Counts()
        self._old_at_s: dict[Connection, float] = {}
        """All of them, with the time from which on they are too old."""
        self._idle_since_s: dict[Connection, float] = {}
        """Those without a call that stay, the one that has had none for longest first."""
        self._greeting: weakref.WeakSet[Connection] = weakref.WeakSet()
        """Those whose handshake of TLS is under way. Nobody tells when one fails."""
        self._leaving: set[Connection] = set()
        """Were asked to leave."""
        self._is_shut = False
        self._loop = asyncio.get_running_loop()

    def __len__(self) -> int:
        """Return how many there are."""
        return len(self._old_at_s)

    def __iter__(self) -> Iterator[Connection]:
        """Go through those that are there now."""
        return iter(list(self._old_at_s))

    @property
    def is_empty(self) -> bool:
        """Whether there is none, and none on its way."""
        return not self._old_at_s and not self._greeting

    @property
    def idle_count(self) -> int:
        """How many have no call."""
        return len(self._idle_since_s)

    def greeting(self, connection: Connection) -> None:
        """Take note of one that is not open yet."""
        self._greeting.add(connection)

    def opened(self, connection: Connection) -> bool:
        """Take note that one is open. Returns False if there is no room for it."""
        self._greeting.discard(connection)
        is_full = len(self) - len(self._leaving) >= self._count_max
        if self._is_shut or (is_full and not self._make_room()):
            self.counts.refused += 1
            return False
        self.counts.opened += 1
        now_s, age_s = self._loop.time(), self.limits.connection_age_max_ms / 1000
        age_s *= 1 + AGE_SPREAD * (self.counts.opened * GOLDEN_RATIO % 1 - 0.5)
        self._old_at_s[connection] = now_s + age_s if age_s else float("inf")
        self._idle_since_s[connection] = now_s
        return True

    def shut(self) -> None:
        """Let no more come, and ask all to leave."""
        self._is_shut = True
        for connection in self:
            connection.shut()

    def closed(self, connection: Connection) -> None:
        """Forget one."""
        self._old_at_s.pop(connection, None)
        self._idle_since_s.pop(connection, None)
        self._leaving.discard(connection)

    def busy(self, connection: Connection) -> None:
        """Take note that it has a call."""
        self._idle_since_s.pop(connection, None)

    def idle(self, connection: Connection) -> None:
        """Take note that it has none any more."""
        if connection in self._old_at_s and connection not in self._leaving:
            self._idle_since_s[connection] = self._loop.time()

    async def look_after(self) -> None:
        """Look at all of them, again and again."""
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
        if len(self._leaving) >= self._count_max:  # some may stay by calls that they began since
            return False
        longest, since_s = next(iter(self._idle_since_s.items()), (None, 0.0))
        if longest is None or not longest.is_idle or self._loop.time() - since_s < CLOSE_S:
            return False
        self.counts.displaced += 1
        self._ask_to_leave(longest)
        return True

    def _ask_to_leave(self, connection: Connection) -> None:
        self._leaving.add(connection)
        self._idle_since_s.pop(connection, None)
        connection.shut()
        self._loop.call_later(CLOSE_S, self._see_off, connection)

    def _see_off(self, connection: Connection) -> None:
        """Close one that was asked to leave, unless it has a call: then it is looked at again."""
        if connection in self._leaving and connection.is_idle:
            connection.close()
