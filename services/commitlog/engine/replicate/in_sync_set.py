# SPDX-License-Identifier: Apache-2.0
"""InSyncSet: the members whose disks an acknowledgement as REPLICATED waits for, and the changes of this set.

Pure: acknowledgements and times go in, the replicated offset and proposals come out.
Invariants: every member of the recorded set, the leader included, connected or not, has all replicated bytes on its
disk. During a change the old and the new set both count, until the change is recorded. A joining member has all
replicated bytes, the start of the leader's epoch, and the topics of the set. It has acknowledged the topics, so it has
stored its promise to the epoch before. Once the set has reached min_in_sync_replicas it never shrinks below that size,
so every member has all bytes that ever were replicated.
RocketMQ's counterparts are the syncStateSet and minInSyncReplicas; docs/replication.md has the rules for operators.
"""

from collections import deque
from collections.abc import Iterable
from typing import NamedTuple

from msgspec import Struct

from libs.formats.state.replication import Member

AWAITED_MS = 1_000
"""Longest time for which the replicated offset is held back, so that a nearly caught-up follower can join."""
END_INTERVAL_MS = 100
"""Interval at which the end of the log is sampled."""
AWAITED_AGAIN_MS = 3_000


class LagLimits(NamedTuple):
    """Limits of a member's lag."""

    time_ms: int
    size_bytes: int


class _MemberState(Struct):
    """State of a member besides the leader."""

    flushed_physical_offset: int
    heard_at_ms: int
    """End of its last connection; the current time while it is connected."""
    caught_up_at_ms: int
    """The newest sampling time whose end of the log the member has reached."""
    is_live: bool
    awaited_at_ms: int | None = None
    """When the replicated offset was last held back for it."""
    is_leaving: bool = False
    """Whether the member announced an orderly stop."""
    topics_change_count: int = 0
    """The member has the topics as of this change count of the leader."""
    is_heard: bool = True
    """Whether the member reported its offsets. A new leader knows only the names of the recorded members."""


class InSyncSet:
    """The in-sync set of a leader; `others` are the members besides it. Offsets are physical, ends exclusive."""

    def __init__(
        self,
        others: Iterable[Member],
        *,
        min_in_sync: int,
        min_in_sync_setting: int,
        limits: LagLimits,
        epoch_start_physical_offset: int,
        now_ms: int,
        topics_change_count: int = 0,
    ) -> None:
        self.others = frozenset(others)
        """The recorded members besides the leader."""
        self.min_in_sync = min(min_in_sync, min_in_sync_setting)
        """Minimum size of the set, leader included; 1 until the set first reaches the setting."""
        self._setting = min_in_sync_setting
        self._limits = limits
        self._epoch_start = epoch_start_physical_offset
        self._topics_change_count = topics_change_count
        """A joining member needs the topics as of this change count: the set has them, or may have had them."""
        self._proposed: frozenset[Member] | None = None
        self.awaited: frozenset[Member] = frozenset()
        """Members for which the replicated offset is held back, so that they can join."""
        self.hurried: frozenset[Member] = frozenset()
        """Members to ask for an fsync: awaited members, and members near the lag limit because they sync rarely."""
        self._members = {
            member: _MemberState(0, now_ms, now_ms, is_live=False, is_heard=False) for member in self.others
        }
        self._ends: deque[tuple[int, int]] = deque()
        """Samples (time, end of the log) for the duration of the lag limit."""

    @property
    def size(self) -> int:
        """Number of recorded members, leader included."""
        return 1 + len(self.others)

    @property
    def is_alone(self) -> bool:
        """Whether the leader has neither other members nor connected followers."""
        return not self._members

    @property
    def live_count(self) -> int:
        """Number of connected members of the set, leader included."""
        return 1 + sum(member in self.others and known.is_live for member, known in self._members.items())

    def lag_ms(self, now_ms: int) -> int:
        """Return the lag of the slowest member in milliseconds."""
        return max((now_ms - self._members[member].caught_up_at_ms for member in self.others), default=0)

    @property
    def counted(self) -> frozenset[Member]:
        """Members that acknowledgements wait for: the recorded members, and during a change the proposed members.

        For a moment also nearly caught-up followers, for which the replicated offset is held back.
        """
        return self.others | self.awaited if self._proposed is None else self.others | self._proposed

    def replicated(self, own_flushed_physical_offset: int) -> int:
        """Return the offset up to which all counted members have flushed."""
        flushed = (self._members[member].flushed_physical_offset for member in self.counted)
        return min(own_flushed_physical_offset, *flushed) if self.counted else own_flushed_physical_offset

    def join(self, member: Member, flushed_physical_offset: int, now_ms: int) -> None:
        """Record that a member is connected, with its reported offset, which replaces all earlier reports."""
        known = self._members.get(member)
        caught_up_at_ms = now_ms - self._limits.time_ms - 1 if known is None else known.caught_up_at_ms
        self._members[member] = _MemberState(flushed_physical_offset, now_ms, caught_up_at_ms, is_live=True)

    def hear(self, member: Member, flushed_physical_offset: int) -> None:
        """Record an acknowledgement of a connected member."""
        state = self._members[member]
        state.flushed_physical_offset = max(state.flushed_physical_offset, flushed_physical_offset)

    def let_go(self, member: Member) -> None:
        """Record that a connected member stops in order: it counts as late until it joins again."""
        self._members[member].is_leaving = True

    def hear_topics(self, member: Member, change_count: int) -> None:
        """Record that a connected member has the topics as of this change count."""
        self._members[member].topics_change_count = change_count

    def has_topics(self, change_count: int) -> bool:
        """Return whether all counted members have the topics as of this change count."""
        has_them = all(self._members[member].topics_change_count >= change_count for member in self.counted)
        if has_them:
            self._topics_change_count = max(self._topics_change_count, change_count)
        return has_them

    def leave(self, member: Member, now_ms: int) -> None:
        """Record a disconnect. A recorded member still counts with its last offset."""
        state = self._members.get(member)
        if state is None or not state.is_live:
            return
        state.is_live, state.heard_at_ms = False, now_ms
        self.awaited -= {member}
        self._forget()

    def look(self, replicated: int, max_physical_offset: int, now_ms: int) -> frozenset[Member] | None:
        """Return the set to record, or None if the recorded set is right. There is one proposal at a time.

        The proposed set counts from now on, besides the recorded set. An undecided proposal is returned again.
        `replicated` is the largest replicated offset so far.
        """
        self._note_end(max_physical_offset, now_ms)
        if self._proposed is not None:
            return self._proposed
        late = {member for member in self._members if self._is_late(member, max_physical_offset, now_ms)}
        outside = [(member, known) for member, known in self._members.items() if member not in self.others | late]
        floor = max(replicated, self._epoch_start)
        joining = {
            member
            for member, known in outside
            if known.is_live
            and known.flushed_physical_offset >= floor
            and known.topics_change_count >= self._topics_change_count
        }
        self.awaited = frozenset(
            member for member, known in outside if member not in joining and _is_near(known, now_ms)
        )
        half_ms = self._limits.time_ms // 2
        behind = (member for member in self.others if now_ms - self._members[member].caught_up_at_ms > half_ms)
        self.hurried = self.awaited.union(behind)
        late &= self.others
        wanted = (self.others - late) | joining
        missing_count = max(self.min_in_sync - 1 - len(wanted), 0)
        nearest = sorted(late - wanted, key=lambda member: (-self._members[member].flushed_physical_offset, member))
        wanted |= set(nearest[:missing_count])
        self._proposed = None if wanted == self.others else wanted
        return self._proposed

    def min_in_sync_with(self, others: frozenset[Member]) -> int:
        """Return the minimum size to record with a set."""
        return self._setting if 1 + len(others) >= self._setting else self.min_in_sync

    def decide(self, min_in_sync: int) -> None:
        """Record that the proposed set was recorded durably."""
        assert self._proposed is not None
        self.others, self._proposed, self.min_in_sync = self._proposed, None, min_in_sync
        self.awaited -= self.others
        self._forget()

    def _is_late(self, member: Member, max_physical_offset: int, now_ms: int) -> bool:
        state, limits = self._members[member], self._limits
        if state.is_leaving:
            return True
        heard_at_ms = now_ms if state.is_live else state.heard_at_ms
        return now_ms - min(state.caught_up_at_ms, heard_at_ms) > limits.time_ms or (
            state.is_heard and max_physical_offset - state.flushed_physical_offset > limits.size_bytes
        )

    def _note_end(self, max_physical_offset: int, now_ms: int) -> None:
        if not self._ends or now_ms - self._ends[-1][0] >= END_INTERVAL_MS:
            self._ends.append((now_ms, max_physical_offset))
        for state in self._members.values():
            reached = (at_ms for at_ms, end in reversed(self._ends) if end <= state.flushed_physical_offset)
            state.caught_up_at_ms = max(state.caught_up_at_ms, next(reached, state.caught_up_at_ms))
            if state.flushed_physical_offset >= max_physical_offset:
                state.caught_up_at_ms = now_ms
        while now_ms - self._ends[0][0] > self._limits.time_ms:
            self._ends.popleft()

    def _forget(self) -> None:
        """Drop members that neither count nor are connected."""
        counted = self.counted
        self._members = {member: known for member, known in self._members.items() if member in counted or known.is_live}


def _is_near(state: _MemberState, now_ms: int) -> bool:
    """Return whether to hold the replicated offset back for this member: for a moment, then with a pause."""
    if not state.is_live or now_ms - state.caught_up_at_ms > AWAITED_MS:
        return False
    if state.awaited_at_ms is None or now_ms - state.awaited_at_ms > AWAITED_AGAIN_MS:
        state.awaited_at_ms = now_ms
    return now_ms - state.awaited_at_ms <= AWAITED_MS
