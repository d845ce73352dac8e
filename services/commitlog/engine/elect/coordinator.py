# SPDX-License-Identifier: Apache-2.0
"""Coordinator: an external store, such as etcd, with one leadership record and one leader lease for a replicated log.

Record and lease holder are replaced together, by compare-and-swap: the caller passes the state that it has read, and
the swap fails if the state has changed. Elections and in-sync sets depend on this alone. The expiry of the lease only
makes failover fast; no acknowledgement as REPLICATED depends on it.
"""

from collections.abc import AsyncGenerator
from typing import Protocol

from msgspec import Struct

from libs.formats.state.leadership import LeadershipRecord
from libs.requests.errors import DependencyUnavailable

COORDINATOR = "coordinator"


class CoordinatorUnavailable(DependencyUnavailable):
    """The coordinator did not answer. The change may be applied, also later: the caller reads the state and retries."""

    def __init__(self, reason: str) -> None:
        super().__init__(COORDINATOR, reason)


class Lost(Exception):
    """The compare-and-swap failed and changed nothing: another process changed the state, or the lease expired."""


class View(Struct, frozen=True):
    """The state of the coordinator at one moment."""

    record: LeadershipRecord | None
    """None if no record was created yet."""
    holder: str
    """Identity of the lease holder; empty if the lease is free or expired."""
    record_version: int = 0
    """Increases with each change of the record; 0 without a record."""
    holder_version: int = 0
    """Differs after each change of the holder; 0 without a holder."""


class Coordinator(Protocol):
    """Client of the coordinator for one process, under an identity that is unique to the process.

    Each call has a timeout and raises CoordinatorUnavailable after it.
    """

    async def read(self) -> View:
        """Return the current state (a linearizable read)."""
        ...

    def watch(self) -> AsyncGenerator[View, None]:
        """Yield the current state, then states after changes. Intermediate states may be skipped, never the last."""
        ...

    async def elect(self, seen: View, record: LeadershipRecord) -> View:
        """Take the lease and write the record if the state is still `seen`. Raises Lost.

        Creates the record if `seen` has none. Does not check who holds the lease: the caller decides whether taking it
        from another holder is allowed.
        """
        ...

    async def renew(self) -> None:
        """Extend the lease to its full duration from now. Raises Lost if it was deleted or taken.

        Where only an election removes a lease, an expired lease may still be renewed.
        """
        ...

    async def change(self, seen: View, record: LeadershipRecord) -> View:
        """Write the record under this process's lease if the state is still `seen`. Raises Lost."""
        ...

    async def release(self, seen: View, record: LeadershipRecord) -> None:
        """Write the record and release the lease if the state is still `seen`. Raises Lost."""
        ...

    async def close(self) -> None:
        """Close the connection. The lease expires by itself."""
        ...
