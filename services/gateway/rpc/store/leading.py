# SPDX-License-Identifier: Apache-2.0
"""Leading: calls a service behind the gateway, which is a single process, or several members with a leader.

A call is sent to the member that answered last. A member that does not lead has not executed the call, so the next
member gets the same call. A member that did not answer may have executed the call: the caller gets an error, and later
calls are sent to the next member.
"""

from collections.abc import Sequence
from typing import Any

from libs.runtime.rpc.peer import Connection
from services.gateway.errors import PeerRefused
from services.gateway.rpc.store.errors import errors_of

ELSEWHERE = frozenset({"NOT_LEADER", "RECOVERING", "STOPPING"})
"""Reasons of a member that does not lead: not at all, not yet, or not any more."""
SILENT = frozenset({"", "DEPENDENCY_UNAVAILABLE"})
"""Reasons of a member that can't be reached, or that can't reach its own log."""


class Leading:
    """The members of a service. `service` is its name in errors. Calls raise the last asked member's PeerRefused."""

    def __init__(self, service: str, connections: Sequence[Connection]) -> None:
        self._service = service
        self._connections = connections
        self._at = 0
        self._stubs: dict[tuple[int, Any], Any] = {}

    @property
    def timeout_s(self) -> float:
        """How long a call may take, in seconds."""
        return self._connections[self._at].timeout_s

    async def call(self, stub: Any, method: str, request: Any, *, more_s: float = 0.0) -> Any:
        """Call a method of a stub's class. The deadline is the time of the settings plus `more_s`."""
        left = len(self._connections)
        while True:
            at, left = self._at, left - 1
            connection = self._connections[at]
            timeout_s = connection.timeout_s + more_s
            try:
                with errors_of(self._service):
                    return await getattr(self._stub(at, stub), method)(
                        request, timeout=timeout_s, metadata=connection.metadata()
                    )
            except PeerRefused as error:
                if error.reason not in ELSEWHERE | SILENT:
                    raise
                if self._at == at:  # else another call has moved on already
                    self._at = (at + 1) % len(self._connections)
                if error.reason in SILENT or not left:
                    raise

    def _stub(self, at: int, stub: Any) -> Any:
        found = self._stubs.get((at, stub))
        if found is None:
            found = self._stubs[at, stub] = stub(self._connections[at].channel)
        return found
