# SPDX-License-Identifier: Apache-2.0
"""InSyncSet: whose disks an acknowledgement as replicated waits for, and how that changes.

Pure: acknowledgements and times go in, the replicated offset and proposals come out.
Invariants: what is replicated is on the disk of every member of the recorded set, connected or not, the leader
included; while a change is under way both sets count, until it is known to be recorded. Who comes in has all that is
replicated, the start of the leader's epoch, and the topics that the set has. The set never gets smaller than it had to
be large: whoever is in it has all that ever was replicated.
RocketMQ's counterparts are the syncStateSet and minInSyncReplicas; docs/replication.md tells the rules to operators.
"""

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

from libs.formats.state.replication import Member

AWAITED_MS = 1_000
"""So long what is replicated stands still for one that is about to come in. It comes every few milliseconds nearer."""
END_INTERVAL_MS = 100
"""So often it is noted how long the log is."""
AWAITED_AGAIN_MS = 3_000


class LagLimits(NamedTuple):
    """How far behind a member may be."""

    time_ms: int
    size_bytes: int


@dataclass(slots=True)
class _Standing:
    """What is known of a member besides the leader."""

    flushed_physical_offset: int
    heard_at_ms: int
    """When it was connected last; now, while it is."""
    caught_up_at_ms: int
    """The newest time whose end of the log it has reached since."""
    is_live: bool
    awaited_at_ms: int | None = None
    """When it was waited for last, to come in."""
    is_leaving: bool = False
    """Whether it has said that it stops."""
    topics_change_count: int = 0
    """It has the topics as they were after so many changes at the leader."""
    is_heard: bool = True
    """Whether it said what it has. A leader that begins knows of those that are recorded only that they are."""


class InSyncSet:
    """`others` are the members besides the leader. Offsets are physical, ends exclusive."""

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
        """As recorded."""
        self.min_in_sync = min(min_in_sync, min_in_sync_setting)
        """Least size of the set, leader included; 1 until it was as large as the setting once."""
        self._setting = min_in_sync_setting
        self._limits = limits
        self._epoch_start = epoch_start_physical_offset
        self._topics_change_count = topics_change_count
        """Who comes in has the topics as they were after so many changes: those that the set has, or may have had."""
        self._proposed: frozenset[Member] | None = None
        self.awaited: frozenset[Member] = frozenset()
        """For whom what is replicated stands still, so that they come in."""
        self.hurried: frozenset[Member] = frozenset()
        """Who should sync what it has: these, and those that would be late soon because they sync seldom."""
        self._standings = {one: _Standing(0, now_ms, now_ms, is_live=False, is_heard=False) for one in self.others}
        self._ends: deque[tuple[int, int]] = deque()
        """When the log had which end, for as long as a member may be behind."""

    @property
    def size(self) -> int:
        """How many members are recorded, leader included."""
        return 1 + len(self.others)

    @property
    def is_alone(self) -> bool:
        """Whether nobody besides the leader is in the set, nor connected."""
        return not self._standings

    @property
    def live_count(self) -> int:
        """How many of them are connected, leader included."""
        return 1 + sum(one in self.others and known.is_live for one, known in self._standings.items())

    def lag_ms(self, now_ms: int) -> int:
        """Return for how long the member that is furthest behind has lacked something that the log had then."""
        return max((now_ms - self._standings[one].caught_up_at_ms for one in self.others), default=0)

    @property
    def counted(self) -> frozenset[Member]:
        """Who is waited for: all that are recorded, and while a change is under way those that will be, too.

        Also, for a moment, who is so near that it comes in when what is replicated stands still.
        """
        return self.others | self.awaited if self._proposed is None else self.others | self._proposed

    def replicated(self, own_flushed_physical_offset: int) -> int:
        """Return what all that count have on their disks."""
        flushed = (self._standings[one].flushed_physical_offset for one in self.counted)
        return min(own_flushed_physical_offset, *flushed) if self.counted else own_flushed_physical_offset

    def join(self, member: Member, flushed_physical_offset: int, now_ms: int) -> None:
        """Take note that a member is connected, and what it says that it has: that alone counts from here on."""
        known = self._standings.get(member)
        caught_up_at_ms = now_ms - self._limits.time_ms - 1 if known is None else known.caught_up_at_ms
        self._standings[member] = _Standing(flushed_physical_offset, now_ms, caught_up_at_ms, is_live=True)

    def hear(self, member: Member, flushed_physical_offset: int) -> None:
        """Take note of an acknowledgement of a member that is connected."""
        standing = self._standings[member]
        standing.flushed_physical_offset = max(standing.flushed_physical_offset, flushed_physical_offset)

    def let_go(self, member: Member) -> None:
        """Take note that a member that is connected stops in order: it is late from now on, until it joins again."""
        self._standings[member].is_leaving = True

    def hear_topics(self, member: Member, change_count: int) -> None:
        """Take note that a member that is connected has the topics as they were after so many changes."""
        self._standings[member].topics_change_count = change_count

    def has_topics(self, change_count: int) -> bool:
        """Return whether all that count have the topics as they were after so many changes."""
        has_them = all(self._standings[one].topics_change_count >= change_count for one in self.counted)
        if has_them:
            self._topics_change_count = max(self._topics_change_count, change_count)
        return has_them

    def leave(self, member: Member, now_ms: int) -> None:
        """Take note that a member is not connected any more. What it has counts all the same, if it is recorded."""
        standing = self._standings.get(member)
        if standing is None or not standing.is_live:
            return
        standing.is_live, standing.heard_at_ms = False, now_ms
        self.awaited -= {member}
        self._forget()

    def look(self, replicated: int, max_physical_offset: int, now_ms: int) -> frozenset[Member] | None:
        """Return the set that should be recorded, if it is another one than what is. One proposal at a time.

        It counts from here on, besides the recorded one. One that was not decided is returned again, the same.
        `replicated` is the largest that `replicated` was.
        """
        self._note_end(max_physical_offset, now_ms)
        if self._proposed is not None:
            return self._proposed
        late = {one for one in self._standings if self._is_late(one, max_physical_offset, now_ms)}
        outside = [(one, known) for one, known in self._standings.items() if one not in self.others | late]
        least = max(replicated, self._epoch_start)
        joining = {
            one
            for one, known in outside
            if known.is_live
            and known.flushed_physical_offset >= least
            and known.topics_change_count >= self._topics_change_count
        }
        self.awaited = frozenset(one for one, known in outside if one not in joining and _is_near(known, now_ms))
        half_ms = self._limits.time_ms // 2
        behind = (one for one in self.others if now_ms - self._standings[one].caught_up_at_ms > half_ms)
        self.hurried = self.awaited.union(behind)
        late &= self.others
        wanted = (self.others - late) | joining
        missing_count = max(self.min_in_sync - 1 - len(wanted), 0)
        nearest = sorted(late - wanted, key=lambda one: (-self._standings[one].flushed_physical_offset, one))
        wanted |= set(nearest[:missing_count])
        self._proposed = None if wanted == self.others else wanted
        return self._proposed

    def min_in_sync_with(self, others: frozenset[Member]) -> int:
        """Return the least size that has to be recorded with a set."""
        return self._setting if 1 + len(others) >= self._setting else self.min_in_sync

    def decide(self, min_in_sync: int) -> None:
        """Take note that what was proposed is recorded."""
        assert self._proposed is not None
        self.others, self._proposed, self.min_in_sync = self._proposed, None, min_in_sync
        self.awaited -= self.others
        self._forget()

    def _is_late(self, member: Member, max_physical_offset: int, now_ms: int) -> bool:
        standing, limits = self._standings[member], self._limits
        if standing.is_leaving:
            return True
        heard_at_ms = now_ms if standing.is_live else standing.heard_at_ms
        return now_ms - min(standing.caught_up_at_ms, heard_at_ms) > limits.time_ms or (
            standing.is_heard and max_physical_offset - standing.flushed_physical_offset > limits.size_bytes
        )

    def _note_end(self, max_physical_offset: int, now_ms: int) -> None:
        if not self._ends or now_ms - self._ends[-1][0] >= END_INTERVAL_MS:
            self._ends.append((now_ms, max_physical_offset))
        for standing in self._standings.values():
            reached = (at_ms for at_ms, end in reversed(self._ends) if end <= standing.flushed_physical_offset)
            standing.caught_up_at_ms = max(standing.caught_up_at_ms, next(reached, standing.caught_up_at_ms))
            if standing.flushed_physical_offset >= max_physical_offset:
                standing.caught_up_at_ms = now_ms
        while now_ms - self._ends[0][0] > self._limits.time_ms:
            self._ends.popleft()

    def _forget(self) -> None:
        """Forget those that neither count nor are connected."""
        counted = self.counted
        self._standings = {one: known for one, known in self._standings.items() if one in counted or known.is_live}


def _is_near(standing: _Standing, now_ms: int) -> bool:
    """Return whether to wait for it, for a moment and not all the time."""
    if not standing.is_live or now_ms - standing.caught_up_at_ms > AWAITED_MS:
        return False
    if standing.awaited_at_ms is None or now_ms - standing.awaited_at_ms > AWAITED_AGAIN_MS:
        standing.awaited_at_ms = now_ms
    return now_ms - standing.awaited_at_ms <= AWAITED_MS
