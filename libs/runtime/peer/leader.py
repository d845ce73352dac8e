# SPDX-License-Identifier: Apache-2.0
"""LeaderClient: calls a service that is a single process, or several members with a leader.

A member that does not lead has not executed the call, so another member gets the same call. A member that did not
answer may have executed the call: the caller gets an error, and later calls go elsewhere.
"""

from collections.abc import Callable, Sequence
from typing import Any

from libs.requests.durable import PASSING
from libs.requests.errors import PeerError
from libs.runtime.peer.calls import PeerClient
from libs.runtime.peer.connection import Connection

ELSEWHERE = frozenset({"NOT_LEADER", "RECOVERING", "STOPPING"})
"""Reasons of a member that does not lead: not at all, not yet, or not any more."""
SILENT = frozenset({"", "DEPENDENCY_UNAVAILABLE"})
"""Reasons of a member that can't be reached, or that can't reach its own log."""


class LeaderClient:
    """The members of a service. `service` is its name in errors. Calls raise the last asked member's PeerError.

    A call goes to the member that answered last. After it the members are asked in turn. With `connect`, which opens a
    connection to an address, the named leader is asked instead, and after its failure the first member.
    """

    def __init__(
        self, service: str, members: Sequence[Connection], connect: Callable[[str], Connection] | None = None
    ) -> None:
        self._service, self._connect = service, connect
        self._members = [_Member(service, connection) for connection in members]
        self._at = 0
        self._leader: _Member | None = None
        self._leader_target = ""

    @property
    def timeout_s(self) -> float:
        """How long a call may take, in seconds."""
        return self._current.client.connection.timeout_s

    async def call(self, stub: Any, method: str, request: object, *, wait_s: float = 0.0) -> Any:
        """Call a method of a stub's class. See `PeerClient`."""
        left = len(self._members) + (self._connect is not None)
        while True:
            member, left = self._current, left - 1
            try:
                return await member.client.call(member.method(stub, method), request, wait_s=wait_s)
            except PeerError as error:
                if not await self._leave(member, error) or not left:
                    raise

    async def close(self) -> None:
        """Close the channel to a named leader."""
        await self._follow("")

    @property
    def _current(self) -> "_Member":
        return self._leader or self._members[self._at]

    async def _leave(self, member: "_Member", error: PeerError) -> bool:
        """Choose the member of later calls. Returns whether the failed call may be sent to it, too."""
        if error.reason in PASSING:  # it stays leader
            return False
        if self._connect is not None:
            await self._follow(error.metadata["leader"])
            return self._leader is not None
        if error.reason in ELSEWHERE | SILENT and self._current is member:  # else another call has moved on already
            self._at = (self._at + 1) % len(self._members)
        return error.reason in ELSEWHERE

    async def _follow(self, target: str) -> None:
        """Send to the leader at this address from now on, or to the members if it is empty."""
        if target != self._leader_target:
            leader = _Member(self._service, self._connect(target)) if target and self._connect is not None else None
            former, self._leader, self._leader_target = self._leader, leader, target
            if former is not None:
                await former.client.connection.channel.close()


class _Member:
    def __init__(self, service: str, connection: Connection) -> None:
        self.client = PeerClient(service, connection)
        self._stubs: dict[Any, Any] = {}

    def method(self, stub: Any, name: str) -> Any:
        if stub not in self._stubs:
            self._stubs[stub] = stub(self.client.connection.channel)
        return getattr(self._stubs[stub], name)
