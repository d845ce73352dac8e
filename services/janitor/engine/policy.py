# SPDX-License-Identifier: Apache-2.0
"""The retention policy: which segments go, which stay, and why. Pure: no clock, no files, no network.

Invariants: at most the oldest segments of the log are deleted, without a hole, never the active one; and, unless the
policy gives them up, none that the Indexer has not synced or an in-sync replica does not have. A segment's age is the
age of its last record by store time, not the time of its file.
Not handled: the deleting itself (RetentionLoop).
Rules: docs/retention.md; RocketMQ 5.3 CleanCommitLogService, whose ages are those of files and which looks at neither
indexes nor replicas.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, tzinfo
from enum import StrEnum

from services.janitor.engine.facts import LOG_OWNER, Disk, Facts, SegmentFacts

HOUR_MS = 3_600_000


class Reason(StrEnum):
    """Why a segment is kept or deleted; the last three delete."""

    ACTIVE = "ACTIVE"
    NOT_EXPIRED = "NOT_EXPIRED"
    NOT_DUE = "NOT_DUE"
    NOT_INDEXED = "NOT_INDEXED"
    NOT_REPLICATED = "NOT_REPLICATED"
    BEHIND_KEPT = "BEHIND_KEPT"
    BATCH_FULL = "BATCH_FULL"
    EXPIRED = "EXPIRED"
    OVER_SIZE = "OVER_SIZE"
    DISK_FORCED = "DISK_FORCED"


DELETING = frozenset({Reason.EXPIRED, Reason.OVER_SIZE, Reason.DISK_FORCED})


class Trigger(StrEnum):
    """Why a run begins, the most urgent first. Whatever it is, what has expired goes with it."""

    MANUAL = "MANUAL"
    DISK_FORCED = "DISK_FORCED"
    OVER_SIZE = "OVER_SIZE"
    DISK_SPACE = "DISK_SPACE"
    HOUR = "HOUR"
    RETRY = "RETRY"


class Unsafe(StrEnum):
    """What becomes of segments that are not indexed or not replicated."""

    KEEP = "keep"
    DELETE_WHEN_FORCED = "delete_when_forced"
    DELETE = "delete"


@dataclass(frozen=True, slots=True)
class Schedule:
    """The hours of the day in which expired segments are deleted. `time_zone` None is the machine's own."""

    hours: frozenset[int]
    time_zone: tzinfo | None

    def is_due(self, now_ms: int) -> bool:
        """True during the whole of each hour."""
        return datetime.fromtimestamp(now_ms / 1000, UTC).astimezone(self.time_zone).hour in self.hours


@dataclass(frozen=True, slots=True)
class Policy:
    """How long records are kept, and what disks may make of that. Percents are of used space; 100 is never reached."""

    retention_hours: int
    delete_batch_count_max: int
    schedule: Schedule
    retention_bytes: int = 0
    """0 is no limit."""
    disk_max_used_percent: int = 75
    disk_forcible_percent: int = 85
    disk_full_percent: int = 90
    disk_forced: bool = True
    unsafe_segments: Unsafe = Unsafe.KEEP


@dataclass(frozen=True, slots=True)
class Decision:
    """What is to become of one segment; `explanation` is one sentence with the numbers that decided it."""

    base_physical_offset: int
    size_bytes: int
    reason: Reason
    explanation: str
    last_store_time_ms: int | None
    is_lost: bool = False
    """Deleted although it is not indexed or not replicated."""

    @property
    def is_delete(self) -> bool:
        """True if the segment is to be deleted."""
        return self.reason in DELETING


@dataclass(frozen=True, slots=True)
class Verdict:
    """What the facts come to. `trigger` is None when no run is due; `decisions` are one for each segment."""

    trigger: Trigger | None
    decisions: Sequence[Decision]
    is_disk_full: bool


def decide(
    facts: Facts, now_ms: int, policy: Policy, *, was_disk_full: bool = False, requested: Trigger | None = None
) -> Verdict:
    """The verdict on all segments, oldest first. `now_ms` is wall time in milliseconds since the epoch.

    `was_disk_full` is the verdict before, for a full disk stays so until it is down to disk_forcible_percent.
    `requested` is MANUAL or RETRY when a run is due whatever the hour.
    """
    disks = emptiest_by_owner(facts.disks)
    needs = _Needs(_excess_bytes(facts.segments, policy), _forced_bytes(disks, policy))
    trigger = _trigger(disks, now_ms, policy, requested, needs)
    judge = _Judge(facts, now_ms, policy, trigger, needs)
    decisions = [judge.decision(segment) for segment in facts.segments]
    return Verdict(trigger, decisions, _is_full(disks, policy, was_disk_full))


@dataclass(slots=True)
class _Needs:
    """Bytes that have to go whatever their age: beyond retention_bytes, and for a disk, where that may be infinite."""

    excess_bytes: int
    forced_bytes: float


class _Judge:
    """Judges segments, which come oldest first."""

    def __init__(self, facts: Facts, now_ms: int, policy: Policy, trigger: Trigger | None, needs: _Needs) -> None:
        self._facts, self._now_ms, self._policy, self._trigger = facts, now_ms, policy, trigger
        self._needs = needs
        self._is_forced = needs.forced_bytes > 0
        self._delete_count = 0
        self._kept: SegmentFacts | None = None

    def decision(self, segment: SegmentFacts) -> Decision:
        """What becomes of the next segment."""
        reason, explanation = self._wish(segment)
        obstacle = self._obstacle(segment) if reason in DELETING else None
        is_lost = False
        if obstacle is not None and self._gives_up:
            is_lost, explanation = True, f"{explanation}; it goes although {obstacle[1]}"
        elif obstacle is not None:
            reason, explanation = obstacle[0], f"{explanation}; it stays because {obstacle[1]}"
        if reason in DELETING:
            reason, explanation = self._in_turn(reason, explanation)
        if reason in DELETING:
            self._delete_count += 1
            self._needs.excess_bytes -= segment.size_bytes
            self._needs.forced_bytes -= segment.size_bytes
        elif reason is not Reason.BATCH_FULL:
            self._kept = self._kept or segment
        return Decision(
            base_physical_offset=segment.base_physical_offset,
            size_bytes=segment.size_bytes,
            reason=reason,
            explanation=explanation,
            last_store_time_ms=segment.last_store_time_ms,
            is_lost=is_lost and reason in DELETING,
        )

    @property
    def _gives_up(self) -> bool:
        """Whether segments go that would be lost to the indexes or to a replica."""
        unsafe = self._policy.unsafe_segments
        return unsafe is Unsafe.DELETE or (unsafe is Unsafe.DELETE_WHEN_FORCED and self._is_forced)

    def _wish(self, segment: SegmentFacts) -> tuple[Reason, str]:
        """What age, size and disk want of one segment by itself."""
        if segment.is_active:
            return Reason.ACTIVE, "it takes appends"
        is_expired, age = self._age(segment)
        if is_expired and self._trigger is not None:
            return Reason.EXPIRED, age
        if self._needs.excess_bytes >= segment.size_bytes:
            limit_bytes = self._policy.retention_bytes
            return Reason.OVER_SIZE, f"{age}; without it the log still has the {limit_bytes} bytes that are kept"
        if self._needs.forced_bytes > 0:
            percent = self._policy.disk_forcible_percent
            return Reason.DISK_FORCED, f"{age}; a disk is used to more than {percent} %"
        if is_expired:
            return Reason.NOT_DUE, f"{age}; it goes in the hours of delete_when"
        return Reason.NOT_EXPIRED, age

    def _age(self, segment: SegmentFacts) -> tuple[bool, str]:
        """Whether a segment has expired, and a sentence about it."""
        hours = self._policy.retention_hours
        if segment.last_store_time_ms is None:
            return False, "it has no record whose age could be told"
        age_ms = self._now_ms - segment.last_store_time_ms
        told = f"its last record is {age_ms / HOUR_MS:.1f} hours old"
        if age_ms > hours * HOUR_MS:  # in whole milliseconds: the hours are only for people
            return True, f"{told}, more than the {hours} hours that are kept"
        return False, f"{told}, records are kept for {hours} hours"

    def _obstacle(self, segment: SegmentFacts) -> tuple[Reason, str] | None:
        """What would be lost with a segment."""
        end, indexed = segment.end_physical_offset, self._facts.indexed_physical_offset
        if not segment.is_indexed or end > indexed:
            return (
                Reason.NOT_INDEXED,
                f"the Indexer has synced the log up to {indexed} and the segment ends at {end}",
            )
        if end > self._facts.replicated_physical_offset:
            return (
                Reason.NOT_REPLICATED,
                f"replicas have the log up to {self._facts.replicated_physical_offset} and the segment ends at {end}",
            )
        return None

    def _in_turn(self, reason: Reason, explanation: str) -> tuple[Reason, str]:
        """Whether a segment that is to go has its turn."""
        if self._kept is not None:
            base = self._kept.base_physical_offset
            return (
                Reason.BEHIND_KEPT,
                f"{explanation}; it stays because the older segment {base} stays and the log has no holes",
            )
        most = self._policy.delete_batch_count_max
        if self._delete_count >= most:
            return Reason.BATCH_FULL, f"{explanation}; it waits because one run deletes at most {most}"
        return reason, explanation


def _trigger(
    disks: Sequence[Disk], now_ms: int, policy: Policy, requested: Trigger | None, needs: _Needs
) -> Trigger | None:
    if requested is Trigger.MANUAL:
        return requested
    if needs.forced_bytes > 0:
        return Trigger.DISK_FORCED
    if needs.excess_bytes > 0:
        return Trigger.OVER_SIZE
    if any(disk.used_percent is None or disk.used_percent > policy.disk_max_used_percent for disk in disks):
        return Trigger.DISK_SPACE
    return Trigger.HOUR if policy.schedule.is_due(now_ms) else requested


def _excess_bytes(segments: Sequence[SegmentFacts], policy: Policy) -> int:
    """Bytes of the log beyond retention_bytes, if at least its oldest segment can go for them; else 0."""
    excess_bytes = sum(segment.size_bytes for segment in segments) - policy.retention_bytes
    can_go = len(segments) > 1 and excess_bytes >= segments[0].size_bytes
    return excess_bytes if policy.retention_bytes and can_go else 0


def _forced_bytes(disks: Sequence[Disk], policy: Policy) -> float:
    """Bytes of the log that have to go for disks beyond disk_forcible_percent; without an end where none can tell."""
    needed = 0.0
    for disk in disks:
        beyond_percent = _percent(disk) - policy.disk_forcible_percent
        if policy.disk_forced and beyond_percent > 0:
            can_tell = disk.service == LOG_OWNER and disk.total_bytes > 0
            needed = max(needed, beyond_percent * disk.total_bytes / 100 if can_tell else math.inf)
    return needed


def emptiest_by_owner(disks: Sequence[Disk]) -> list[Disk]:
    """One disk for each owner: of several the emptiest, and one that can't be told comes before all (as RocketMQ)."""
    found: dict[str, Disk] = {}
    for disk in disks:
        known = found.get(disk.service)
        if known is None or _percent(disk) < _percent(known):
            found[disk.service] = disk
    return list(found.values())


def _percent(disk: Disk) -> int:
    return -1 if disk.used_percent is None else disk.used_percent


def _is_full(disks: Sequence[Disk], policy: Policy, was_full: bool) -> bool:
    most = max(map(_percent, disks), default=-1)
    return most > policy.disk_full_percent or (was_full and most > policy.disk_forcible_percent)
