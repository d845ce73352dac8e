# SPDX-License-Identifier: Apache-2.0
"""Renewals: extends the invisible time of messages that push consumers work on, as long as the consumers live.

A message is delivered with an invisible time of a minute. It is renewed in time while its client has a stream or has
called lately. Its handle stays the same, so the crash of a gateway ends only the renewals: the message is redelivered
after this minute, unless the consumer settles it before, at any gateway.
Callers: the event loop's thread. Memory: `count_max` messages, and a time for each of CLIENT_COUNT_MAX clients.
"""

import asyncio
import heapq
from collections.abc import Collection, Mapping, Sequence
from typing import Protocol

from libs.machine.clock import Clock
from libs.machine.trouble import Trouble
from libs.requests.errors import ServiceError

INVISIBLE_S = 60.0
RENEW_BEFORE_S = 25.0
"""A message is renewed when so much of its invisible time is left."""
HELD_S_MAX = 3 * 3_600.0
"""The longest time over which a message is renewed, from its delivery on."""
SILENCE_S_MAX = 75.0
"""A client without a stream is taken for dead after so long without a call. Libraries send a heartbeat every 10 s, the
library for Rust every 30 s.
"""
CALL_COUNT_MAX = 500
STALE_COUNT_MAX = 1_000
"""Entries of dropped messages that the heap may have, besides as many as there are messages."""
CLIENT_COUNT_MAX = 50_000
"""So many clients are known at once. Further clients' messages are renewed only while the client has a stream. Names
have up to a kilobyte."""


class Renewer(Protocol):
    """The call that extends the invisible time of messages."""

    async def renew(self, handles: Sequence[str], invisible_s: float) -> Mapping[str, bool]:
        """Return for each handle whether its message is invisible for `invisible_s` from now on."""
        ...


class Renewals:
    """The messages that a gateway renews. Call `run_maintenance` about once a second."""

    def __init__(self, renewer: Renewer, clock: Clock, *, count_max: int) -> None:
        self._renewer, self._clock, self.count_max = renewer, clock, count_max
        self._trouble = Trouble("the renewal of messages", now_s=clock.monotonic_s)
        self._clients: dict[str, float] = {}
        """By client: the time of its last call."""
        self._streams: dict[str, int] = {}
        self._held: dict[str, tuple[str, float]] = {}
        """By handle: the client that has the message, and since when."""
        self._due: list[tuple[float, str]] = []
        """A heap of times and handles. Entries of dropped messages stay until their time, or until there are many."""

    @property
    def count(self) -> int:
        """Messages that are renewed."""
        return len(self._held)

    @property
    def clients(self) -> Collection[str]:
        """The known clients."""
        return self._clients.keys()

    def hear(self, client: str) -> None:
        """Record that a client lives, if there is room."""
        if client in self._clients or len(self._clients) < CLIENT_COUNT_MAX:
            self._clients[client] = self._clock.monotonic_s()

    def connected(self, client: str) -> None:
        """Record that a client has a further stream."""
        self.hear(client)
        self._streams[client] = self._streams.get(client, 0) + 1

    def disconnected(self, client: str) -> None:
        """Record that a stream of a client has ended."""
        count = self._streams.pop(client, 0) - 1
        if count >= 0:  # else the client has announced its termination
            self.hear(client)
        if count > 0:
            self._streams[client] = count

    def leave(self, client: str) -> None:
        """Record that a client terminates. Its messages are redelivered when their invisible time is over."""
        self._clients.pop(client, None)
        self._streams.pop(client, None)

    def add(self, client: str, handle: str) -> None:
        """Renew a message from now on, if there is room."""
        self.hear(client)
        if len(self._held) < self.count_max:
            now_s = self._clock.monotonic_s()
            self._held[handle] = client, now_s
            self._schedule(handle, now_s)

    def drop(self, handle: str) -> None:
        """Stop renewing a message: it is settled, or its consumer sets the invisible time itself."""
        self._held.pop(handle, None)
        if len(self._due) > 2 * len(self._held) + STALE_COUNT_MAX:
            self._due = [entry for entry in self._due if entry[1] in self._held]
            heapq.heapify(self._due)

    async def run_maintenance(self) -> None:
        """Renew the due messages, and forget silent clients."""
        now_s = self._clock.monotonic_s()
        due: list[str] = []
        while self._due and self._due[0][0] <= now_s:
            _, handle = heapq.heappop(self._due)
            found = self._held.get(handle)
            if found is None:
                continue
            if self._is_alive(found[0], now_s) and now_s - found[1] < HELD_S_MAX:
                due.append(handle)
            else:
                self.drop(handle)
        for start in range(0, len(due), CALL_COUNT_MAX):
            await self._renew(due[start : start + CALL_COUNT_MAX])
        for client, heard_s in list(self._clients.items()):
            if client not in self._streams and now_s - heard_s > SILENCE_S_MAX:
                del self._clients[client]

    async def _renew(self, handles: list[str]) -> None:
        try:
            renewed = await self._renewer.renew(handles, INVISIBLE_S)
        except ServiceError as error:
            self._trouble.failed("messages could not be renewed, and are tried again", error)
            renewed = dict.fromkeys(handles, True)
            retry_s = 1.0
        else:
            self._trouble.ended()
            retry_s = INVISIBLE_S - RENEW_BEFORE_S
        now_s = self._clock.monotonic_s()
        for handle, is_renewed in renewed.items():
            if not is_renewed:
                self.drop(handle)
            elif handle in self._held:
                heapq.heappush(self._due, (now_s + retry_s, handle))
        await asyncio.sleep(0)

    def _schedule(self, handle: str, now_s: float) -> None:
        heapq.heappush(self._due, (now_s + INVISIBLE_S - RENEW_BEFORE_S, handle))

    def _is_alive(self, client: str, now_s: float) -> bool:
        heard_s = self._clients.get(client)
        return client in self._streams or (heard_s is not None and now_s - heard_s <= SILENCE_S_MAX)
