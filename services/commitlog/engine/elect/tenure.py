# SPDX-License-Identifier: Apache-2.0
"""Tenure: what a leader holds from its election on: the lease, and the record as it has won and changed it.

While the lease can't be renewed it holds promises instead: of each member that the record lets be elected, not to
stand for as long as a lease lasts. With one of them missing it holds nothing.
Invariants: it builds on nothing that others have put there; a change whose answer is lost is told from one that was
never made by who holds the lease, and asked for again until it is known.
Callers: the loop that owns the log; `load` from any thread.
"""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

import msgspec

from libs.formats.state.leadership import LeadershipRecord
from libs.formats.state.replication import Member
from services.commitlog.engine.elect import election
from services.commitlog.engine.elect.coordinator import Coordinator, CoordinatorUnavailable, Lost, View
from services.commitlog.engine.elect.lease import Lease
from services.commitlog.engine.replicate.ledger import InSync
from services.commitlog.errors import LeaseOver

ASKING_SHARE = 0.4
"""With less of the lease left than this of its time, promises are asked for. It is renewed earlier if it can be."""


@dataclass(slots=True, eq=False)
class Tenure:
    """Of one epoch. `seen` is what the election put there, then each change of this leader."""

    _coordinator: Coordinator
    lease: Lease
    record_seen: LeadershipRecord
    seen: View
    _asked_for: LeadershipRecord | None = None
    """The last change, made or not."""
    _promised_at_s: dict[Member, float] = field(default_factory=dict)
    """When each member was asked for the last promise that it made."""

    @property
    def epoch(self) -> int:
        """In which it leads."""
        return self.record_seen.epoch

    @property
    def left_ms(self) -> int:
        """How long this log may think that nobody else leads, by its lease or by promises, 0 if that is over."""
        return self.lease.left_ms or self._promised_ms

    @property
    def is_by_promises(self) -> bool:
        """Whether promises alone are what is left."""
        return self.lease.left_ms == 0 and self._promised_ms > 0

    def check(self) -> None:
        """Raise LeaseOver if another one may lead."""
        if self.left_ms == 0:
            raise LeaseOver

    @property
    def lease_ms(self) -> int:
        """See `Witnesses`. Nobody is bound without need, as that makes the election after a death later."""
        needs_promises = self.lease.left_ms < self.lease.duration_ms * ASKING_SHARE
        return self.lease.duration_ms if needs_promises and self.left_ms else 0

    def hear(self, member: Member, asked_at_s: float) -> None:
        """See `Witnesses`."""
        if member in self._others:
            self._promised_at_s[member] = asked_at_s

    @property
    def _others(self) -> set[Member]:
        """Who may be elected instead: a change whose answer is lost counts both ways."""
        records = [one for one in (self.record_seen, self._asked_for) if one is not None]
        return {member for record in records for member in record.in_sync if member != self.record_seen.leader}

    @property
    def _promised_ms(self) -> int:
        """How long all that may be elected have promised not to stand."""
        others = self._others
        if not others <= self._promised_at_s.keys():
            return 0
        since_s = min((self._promised_at_s[one] for one in others), default=self.lease.now_s)
        return self.lease.left_ms_since(since_s)

    def load(self) -> InSync:
        """See `InSyncLedger`."""
        record = self.record_seen
        return InSync([one for one in record.in_sync if one != record.leader], record.min_in_sync)

    async def record(self, in_sync: InSync, replicated_physical_offset: int) -> None:
        """See `InSyncLedger`. Raises LeaseOver, after which this log does not lead, and CoordinatorUnavailable."""
        before = self.record_seen
        assert before.leader is not None
        wanted = msgspec.structs.replace(
            before,
            in_sync=(before.leader, *sorted(in_sync.others)),
            min_in_sync=in_sync.min_in_sync,
            floor_physical_offset=max(before.floor_physical_offset, replicated_physical_offset),
        )
        self._asked_for = wanted
        view = await self._sure(lambda: self._coordinator.change(self.seen, wanted), wanted)
        if view is not None:
            self._note(view)

    async def release(self, successor: str, *, leaves: bool) -> None:
        """Let go of the lease, for a successor if there is one. Who `leaves` is not waited for any more.

        Raises LeaseOver and CoordinatorUnavailable. Whatever it raises, this log must not go on as a leader.
        """
        self.lease.is_lost = True  # from here on nothing is acknowledged that another one may not have
        try:
            await self._release(successor, leaves=leaves)
        except CoordinatorUnavailable:
            await self._release(successor, leaves=leaves)

    async def _release(self, successor: str, *, leaves: bool) -> None:
        wanted = election.released_record(self.record_seen, successor, leaves=leaves)
        await self._sure(lambda: self._coordinator.release(self.seen, wanted), wanted)

    async def _sure(self, change: Callable[[], Awaitable[View | None]], wanted: LeadershipRecord) -> View | None:
        """Ask for a change of what was seen. If it is lost, look whether it was made before, by an attempt like it."""
        try:
            return await change()
        except Lost:
            found = await self._coordinator.read()
            if found.record == wanted and wanted.leader is None:
                return found
            if found.holder_version != self.seen.holder_version:
                self.lease.is_lost = True
                raise LeaseOver from None
            self._note(found)
            if found.record == wanted:
                return found
            raise CoordinatorUnavailable("an earlier change has come through") from None

    def _note(self, view: View) -> None:
        if view.record is None:
            raise CoordinatorUnavailable("it has no record any more")
        self.seen, self.record_seen = view, view.record
