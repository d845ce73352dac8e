# SPDX-License-Identifier: Apache-2.0
"""Callers behind a door: many callers whose calls come on one connection, each as if it had a connection of its own.

Invariants: at most `BEHIND_COUNT_MAX` callers of a connection are known. A caller without a running call is forgotten
after `BEHIND_IDLE_S`, and sooner if its place is needed. A caller is lost at the latest with the door's connection.
"""

import asyncio
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final, Protocol

from libs.runtime.http2.heads import Head, Origin

BEHIND_COUNT_MAX: Final = 1_024
BEHIND_IDLE_S: Final = 300.0
QUIET_S: Final = 1.0
"""A caller without a call for so long is lost for quotas: the door does not tell whether its connection is closed."""


class Connection(Protocol):
    """The connection of a door."""

    loop: asyncio.AbstractEventLoop
    peer: str

    @property
    def is_pressed(self) -> bool:
        """Whether so many bytes are held that callers should wait."""
        ...


class CallerBehind:
    """A caller behind a door. Quotas and lists take it for a connection."""

    def __init__(self, connection: Connection, origin: Origin, number: int) -> None:
        self._connection = connection
        self._origin = origin
        self.number = number
        self.peer = origin.peer
        self.when_lost: dict[object, Callable[[], None]] = {}
        self.groups: dict[str, None] = {}
        self.begun_count = 0
        self.running: Counter[str] = Counter()
        """Running calls by method."""
        self.last_head: Head | None = None
        self.opened_at_s = self.received_at_s = connection.loop.time()
        self._look: asyncio.TimerHandle | None = None

    @property
    def door(self) -> str:
        """The address of the door."""
        return self._connection.peer

    @property
    def is_pressed(self) -> bool:
        """Whether so many bytes are held that callers should wait."""
        return self._connection.is_pressed

    def auth_context(self) -> Mapping[str, Sequence[bytes]]:
        """Return the names of the caller's certificate by gRPC's properties."""
        return self._origin.names

    def begin(self, head: Head) -> None:
        """Record a call that begins."""
        self.begun_count += 1
        self.last_head = head
        self.received_at_s = self._connection.loop.time()
        if self._look is None:
            self._look = self._connection.loop.call_later(QUIET_S, self._look_for_calls)

    def end(self, head: Head) -> None:
        """Record a running call that ends."""
        self.running[head.method] -= 1
        if not self.running[head.method]:
            del self.running[head.method]

    def _look_for_calls(self) -> None:
        """Be lost if there is no call any more, else look again."""
        loop = self._connection.loop
        if not self.running and loop.time() - self.received_at_s >= QUIET_S:
            self.lose()
        else:
            self._look = loop.call_later(QUIET_S, self._look_for_calls)

    def lose(self) -> None:
        """Tell all who wait for its loss."""
        if self._look is not None:
            self._look.cancel()
            self._look = None
        for told in self.when_lost.values():
            told()
        self.when_lost.clear()


class CallersBehind:
    """The callers behind the door at the other end of a connection. `number` returns the number of a new caller."""

    def __init__(self, connection: Connection, number: Callable[[], int]) -> None:
        self._connection, self._number = connection, number
        self._callers: dict[bytes, CallerBehind] = {}

    def __iter__(self) -> Iterator[CallerBehind]:
        return iter(self._callers.values())

    def get(self, origin: Origin) -> CallerBehind | None:
        """Return a caller. None if there was no room for it."""
        return self._callers.get(origin.key)

    def begin(self, origin: Origin, head: Head) -> None:
        """Record a call that begins. A caller without a place shares the door's connection."""
        caller = self._callers.get(origin.key)
        if caller is None:
            self._forget_idle()
            if len(self._callers) >= BEHIND_COUNT_MAX:
                return
            caller = self._callers[origin.key] = CallerBehind(self._connection, origin, self._number())
        else:
            del self._callers[origin.key]
            self._callers[origin.key] = caller  # the caller that has called last is the last one
        caller.begin(head)

    def lose(self) -> None:
        """Lose all callers."""
        for caller in self._callers.values():
            caller.lose()
        self._callers.clear()

    def _forget_idle(self) -> None:
        """Forget callers that have been idle for long, and the longest idle one if all places are taken."""
        before_s = self._connection.loop.time() - BEHIND_IDLE_S
        is_full = len(self._callers) >= BEHIND_COUNT_MAX
        for key, caller in list(self._callers.items())[:16]:
            if not caller.running and (is_full or caller.received_at_s < before_s):
                is_full = False
                del self._callers[key]
                caller.lose()
