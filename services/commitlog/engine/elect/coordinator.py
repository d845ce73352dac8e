# SPDX-License-Identifier: Apache-2.0
"""Coordinator: keeps one record of a replicated log, and a lease for its leader, outside of all its members.

A record and its holder are replaced together, and only by somebody who has seen what is there: that is all that
elections and in-sync sets rest on. That the lease ends by time is for speed alone; no acknowledgement as replicated
rests on it.
"""

from collections.abc import AsyncGenerator
from dataclasses import dataclass
from typing import Protocol

from libs.formats.state.leadership import LeadershipRecord
from libs.requests.errors import DependencyUnavailable

COORDINATOR = "coordinator"


class CoordinatorUnavailable(DependencyUnavailable):
    """No answer. A change may have been made, or may still be: whoever asked for it reads, and asks for it again."""

    def __init__(self, reason: str) -> None:
        super().__init__(COORDINATOR, reason)


class Lost(Exception):
    """What was seen is not there any more: somebody else has changed it, or the lease is over. Nothing was changed."""


@dataclass(frozen=True, slots=True)
class View:
    """What is there, as it was seen at one moment."""

    record: LeadershipRecord | None
    """None: nobody has made one."""
    holder: str
    """Who holds the lease: the identity that it was taken under. Empty: nobody, or it is over."""
    record_version: int = 0
    """Grows with each change of the record; 0 if there is none."""
    holder_version: int = 0
    """Differs after each change of the holder; 0 if there is none."""


class Coordinator(Protocol):
    """One process' door to it, under an identity that no other process ever has.

    Calls have a time-out and raise CoordinatorUnavailable.
    """

    async def read(self) -> View:
        """Return what is there now. Never an old state."""
        ...

    def watch(self) -> AsyncGenerator[View, None]:
        """Yield what is there now, and again after each change. Some changes may be left out, never the last one."""
        ...

    async def elect(self, seen: View, record: LeadershipRecord) -> View:
        """Take the lease and put the record, if nothing has changed since. Raises Lost.

        The lease may be somebody else's: who may take it away is not known here. A record is made if none was seen.
        """
        ...

    async def renew(self) -> None:
        """Let the lease last for its whole time from now on. Raises Lost if it ended or was taken.

        One that is over by time, and that nothing but an election ends, may still be renewed.
        """
        ...

    async def change(self, seen: View, record: LeadershipRecord) -> View:
        """Put the record under one's lease, if nothing has changed since. Raises Lost."""
        ...

    async def release(self, seen: View, record: LeadershipRecord) -> None:
        """Put the record, and let go of the lease, if nothing has changed since. Raises Lost."""
        ...

    async def close(self) -> None:
        """Let go of the connection, and leave the lease to end by itself."""
        ...
