# SPDX-License-Identifier: Apache-2.0
"""Leading: one service behind the gateway, or several of which one leads.

A call goes to the one that answered last. One that does not lead has done nothing, so the next one gets the same call.
Of one that did not answer nobody knows what it did: its caller hears so, and the next call goes to the next one.
"""

from collections.abc import Sequence
from typing import Any

from libs.runtime.rpc.peer import Connection
from services.gateway.errors import PeerRefused
from services.gateway.rpc.store.errors import errors_of

ELSEWHERE = frozenset({"NOT_LEADER", "RECOVERING", "STOPPING"})
"""Refusals of a service that does not lead, or not yet, or not any more."""
SILENT = frozenset({"", "DEPENDENCY_UNAVAILABLE"})
"""Reasons of a service that can't be reached, or that can't reach its own log."""


class Leading:
    """`service` is what errors call it. All calls raise PeerRefused, of the last one that was asked."""

    def __init__(self, service: str, connections: Sequence[Connection]) -> None:
        self._service = service
        self._connections = connections
        self._at = 0
        self._stubs: dict[tuple[int, Any], Any] = {}

    @property
    def timeout_s(self) -> float:
        """How long one call may take."""
        return self._connections[self._at].timeout_s

    async def call(self, stub: Any, method: str, request: Any, *, more_s: float = 0.0) -> Any:
        """Call a method of a stub's class, within the deadline of the settings and `more_s`."""
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
                if self._at == at:  # else another call has gone on already
                    self._at = (at + 1) % len(self._connections)
                if error.reason in SILENT or not left:
                    raise

    def _stub(self, at: int, stub: Any) -> Any:
        found = self._stubs.get((at, stub))
        if found is None:
            found = self._stubs[at, stub] = stub(self._connections[at].channel)
        return found
