# SPDX-License-Identifier: Apache-2.0
"""LeaderTerm: the lease and the leadership record of an elected leader, from the election to the end of the term.

If the lease cannot be renewed, the leader continues on promises: each member that may be elected promises not to stand
for the duration of a lease. One missing promise ends the term.
Invariants: the leader replaces only a record that it wrote itself. If the answer to a change is lost, the leader reads
the record: an unchanged holder with the wanted record means that the change was applied, otherwise the leader retries.
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
"""The leader asks for promises when less than this share of the lease is left. Renewals normally come earlier."""


@dataclass(slots=True, eq=False)
class LeaderTerm:
    """The term of one epoch. `seen` is the coordinator's state after the election, then after each change."""

    _coordinator: Coordinator
    lease: Lease
    record_seen: LeadershipRecord
    seen: View
    _asked_for: LeadershipRecord | None = None
    """The last requested record, applied or not."""
    _promised_at_s: dict[Member, float] = field(default_factory=dict)
    """Request time of each member's last promise, in monotonic seconds."""

    @property
    def epoch(self) -> int:
        """Epoch of the term."""
        return self.record_seen.epoch

    @property
    def left_ms(self) -> int:
        """Milliseconds for which no other log can lead, by the lease or by promises, 0 after expiry."""
        return self.lease.left_ms or self._promised_ms

    @property
    def is_by_promises(self) -> bool:
        """Whether only promises keep the term."""
        return self.lease.left_ms == 0 and self._promised_ms > 0

    def check(self) -> None:
        """Raise LeaseOver if another log may lead."""
        if self.left_ms == 0:
            raise LeaseOver

    @property
    def lease_ms(self) -> int:
        """See `LeasePromises`. Promises are requested only if needed: they delay an election after a crash."""
        needs_promises = self.lease.left_ms < self.lease.duration_ms * ASKING_SHARE
        return self.lease.duration_ms if needs_promises and self.left_ms else 0

    def hear(self, member: Member, asked_at_s: float) -> None:
        """See `LeasePromises`."""
        if member in self._others:
            self._promised_at_s[member] = asked_at_s

    @property
    def _others(self) -> set[Member]:
        """Members that may be elected instead: those of the current record and of a change whose answer is lost."""
        records = [record for record in (self.record_seen, self._asked_for) if record is not None]
        return {member for record in records for member in record.in_sync if member != self.record_seen.leader}

    @property
    def _promised_ms(self) -> int:
        """Milliseconds for which every member that may be elected has promised not to stand."""
        others = self._others
        if not others <= self._promised_at_s.keys():
            return 0
        since_s = min((self._promised_at_s[member] for member in others), default=self.lease.now_s)
        return self.lease.left_ms_since(since_s)

    def load(self) -> InSync:
        """See `InSyncLedger`."""
        record = self.record_seen
        others = [one for one in record.in_sync if one != record.leader]
        return InSync(others, record.min_in_sync, record.floor_physical_offset)

    async def record(self, in_sync: InSync) -> None:
        """See `InSyncLedger`. Raises LeaseOver, after which this log does not lead, and CoordinatorUnavailable."""
        before = self.record_seen
        assert before.leader is not None
        wanted = msgspec.structs.replace(
            before,
            in_sync=(before.leader, *sorted(in_sync.others)),
            min_in_sync=in_sync.min_in_sync,
            floor_physical_offset=max(before.floor_physical_offset, in_sync.floor_physical_offset),
        )
        self._asked_for = wanted
        view = await self._sure(lambda: self._coordinator.change(self.seen, wanted), wanted)
        if view is not None:
            self._note(view)

    async def release(self, successor: str, *, leaves: bool) -> None:
        """Release the lease, for `successor` if it is not empty. With `leaves` the leader leaves the in-sync set.

        Raises LeaseOver and CoordinatorUnavailable. After any error this log must not continue as a leader.
        """
        self.lease.is_lost = True  # no acknowledgement from here on: another log may lead
        try:
            await self._release(successor, leaves=leaves)
        except CoordinatorUnavailable:
            await self._release(successor, leaves=leaves)

    async def _release(self, successor: str, *, leaves: bool) -> None:
        wanted = election.released_record(self.record_seen, successor, leaves=leaves)
        await self._sure(lambda: self._coordinator.release(self.seen, wanted), wanted)

    async def _sure(self, change: Callable[[], Awaitable[View | None]], wanted: LeadershipRecord) -> View | None:
        """Apply a change to `seen`. After Lost, check whether an earlier attempt of the same change was applied."""
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
