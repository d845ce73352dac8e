# SPDX-License-Identifier: Apache-2.0
"""The retention policy: which segments are deleted, which are kept, and why. Pure: no clock, no files, no network.

Invariants: only the oldest segments of the log are deleted, without a hole, and never the active segment. A segment
that the Indexer has not synced, or that an in-sync replica does not have, is kept unless the policy gives it up. A
segment's age is the age of its last record by store time, not the time of its file. A segment that has not expired is
deleted only for retention_bytes, for the log's own disk, or for the Indexer's disk. For the Indexer's disk it is
deleted only if the index files deleted with it free bytes that this disk needs.
Not handled: the deletion (RetentionLoop), and whether the clock is believed (BelievedTime).
Rules: docs/retention.md; RocketMQ 5.3 CleanCommitLogService, which uses the ages of files, and which considers neither
indexes nor replicas, nor whose files fill a disk.
"""

import math
from collections.abc import Iterable, Sequence
from enum import StrEnum

from msgspec import Struct

from services.janitor.config import JanitorConfig
from services.janitor.engine.facts import INDEX_OWNER, LOG_OWNER, Disk, Facts, SegmentFacts

HOUR_MS = 3_600_000


class Reason(StrEnum):
    """Why a segment is kept or deleted. The last three delete."""

    ACTIVE = "ACTIVE"
    NOT_EXPIRED = "NOT_EXPIRED"
    NOT_DUE = "NOT_DUE"
    TOPIC_KEPT = "TOPIC_KEPT"
    NOT_INDEXED = "NOT_INDEXED"
    NOT_REPLICATED = "NOT_REPLICATED"
    BEHIND_KEPT = "BEHIND_KEPT"
    BATCH_FULL = "BATCH_FULL"
    EXPIRED = "EXPIRED"
    OVER_SIZE = "OVER_SIZE"
    DISK_FORCED = "DISK_FORCED"


DELETING = frozenset({Reason.EXPIRED, Reason.OVER_SIZE, Reason.DISK_FORCED})


class Trigger(StrEnum):
    """Why a run begins, the most urgent reason first. Every run deletes expired segments, too."""

    MANUAL = "MANUAL"
    DISK_FORCED = "DISK_FORCED"
    OVER_SIZE = "OVER_SIZE"
    DISK_SPACE = "DISK_SPACE"
    HOUR = "HOUR"
    RETRY = "RETRY"


class ForDisk(StrEnum):
    """The effect of a disk above disk_forcible_percent on segments that have not expired."""

    DELETED = "the oldest segments go until it has room"
    WITH_INDEXES = "the oldest segments go as long as files of the indexes go with them that it needs"
    EMPTIER_DISK = "no segment goes before its time for it: another disk of the log has room"
    NOT_FORCED = "no segment goes before its time for it: disk_forced is off"
    NOT_OURS = "no segment goes before its time for it: the indexes alone do not fill it"
    NO_GAIN = "no segment goes before its time for it: no file of the indexes would go with one"


class Decision(Struct, frozen=True):
    """The decision about a segment. `explanation` is a sentence with the numbers that decided."""

    base_physical_offset: int
    size_bytes: int
    reason: Reason
    explanation: str
    last_store_time_ms: int | None
    is_lost: bool = False
    """True if the segment is deleted although it is not indexed or not replicated."""

    @property
    def end_physical_offset(self) -> int:
        """The first byte after the segment."""
        return self.base_physical_offset + self.size_bytes

    @property
    def is_delete(self) -> bool:
        """True if the segment is to be deleted."""
        return self.reason in DELETING


class DiskNote(Struct, frozen=True):
    """A note that a disk fills up, whose files fill it, and the effect. `text` is a sentence with the numbers."""

    service: str
    path: str
    outcome: ForDisk
    text: str


class Verdict(Struct, frozen=True):
    """The result of the policy. `trigger` is None when no run is due. `decisions` has a decision for each segment."""

    trigger: Trigger | None
    decisions: Sequence[Decision]
    is_disk_full: bool
    """Whether the log's disk is full. Appends are refused for no other disk."""
    disk_notes: Sequence[DiskNote] = ()
    """A note for each disk above disk_forcible_percent."""


def decide(
    facts: Facts,
    now_ms: int,
    policy: JanitorConfig,
    *,
    is_clock_believed: bool = True,
    was_disk_full: bool = False,
    requested: Trigger | None = None,
) -> Verdict:
    """Return the verdict on all segments, oldest first. Ages are counted up to `now_ms`, in ms since the epoch.

    `now_ms` is the clock's time, or an earlier time while the clock is not believed. Then the explanations say so.

    `was_disk_full` is the last verdict: a full disk counts as full until it is down to disk_forcible_percent.
    `requested` is MANUAL or RETRY when a run is due at any hour.
    """
    disks = emptiest_by_owner(facts.disks)
    log_disk = disks.get(LOG_OWNER)
    relief_end = facts.relief_end_physical_offset if policy.disk_forced else 0
    needs = _Needs(_excess_bytes(facts.segments, policy), _forced_bytes(log_disk, policy), relief_end)
    trigger = _trigger(disks.values(), now_ms, policy, requested, needs)
    unsafe = policy.unsafe_segments
    gives_up = unsafe == "delete" or (unsafe == "delete_when_forced" and needs.forced_bytes > 0)
    judge = _Judge(facts, now_ms, policy, trigger, needs, gives_up=gives_up, is_clock_believed=is_clock_believed)
    decisions = [judge.decision(segment) for segment in facts.segments]
    return Verdict(trigger, decisions, _is_full(log_disk, policy, was_disk_full), _disk_notes(facts, policy))


def index_need_bytes(disk: Disk, own_bytes: int, policy: JanitorConfig) -> int:
    """Return the bytes by which the indexes alone exceed disk_forcible_percent of their disk, at most 0 if they do not.

    Files of others on this disk are ignored: a deletion of segments can't delete them.
    """
    return own_bytes - disk.total_bytes * policy.disk_forcible_percent // 100 if is_forcing(disk, policy) else 0


def is_forcing(disk: Disk, policy: JanitorConfig) -> bool:
    """Return whether more than disk_forcible_percent of a disk is used."""
    return _percent(disk) > policy.disk_forcible_percent


def reliefs(facts: Facts, policy: JanitorConfig) -> list[int]:
    """Return the ends of the oldest segments that may be deleted for the Indexer's disk.

    All of them are indexed and replicated.
    """
    safe_end = min(facts.indexed_physical_offset, facts.replicated_physical_offset)
    ends = []
    for segment in facts.segments[: policy.delete_batch_count_max]:
        if segment.is_active or not segment.is_indexed or segment.end_physical_offset > safe_end:
            break
        ends.append(segment.end_physical_offset)
    return ends


class _Needs(Struct):
    """The needs for deletion at any age: bytes over retention_bytes, bytes for the log's disk, and an end offset.

    Segments up to the end offset are deleted for the Indexer's disk.
    """

    excess_bytes: int
    forced_bytes: float
    relief_end_physical_offset: int


class _Judge(Struct):
    """The judge of segments, which it gets oldest first.

    `gives_up`: segments are deleted also if they are not indexed or not replicated.
    """

    facts: Facts
    now_ms: int
    policy: JanitorConfig
    trigger: Trigger | None
    needs: _Needs
    gives_up: bool
    is_clock_believed: bool
    delete_count: int = 0
    kept: SegmentFacts | None = None

    def decision(self, segment: SegmentFacts) -> Decision:
        """Return the decision about the next segment."""
        reason, explanation = self._wish(segment)
        obstacle = self._obstacle(segment) if reason in DELETING else None
        is_lost = False
        if obstacle is not None and self.gives_up:
            is_lost, explanation = True, f"{explanation}; it goes although {obstacle[1]}"
        elif obstacle is not None:
            reason, explanation = obstacle[0], f"{explanation}; it stays because {obstacle[1]}"
        if reason in DELETING:
            reason, explanation = self._or_wait(reason, explanation)
        if reason in DELETING:
            self.delete_count += 1
            self.needs.excess_bytes -= segment.size_bytes
            self.needs.forced_bytes -= segment.size_bytes
        elif reason is not Reason.BATCH_FULL:
            self.kept = self.kept or segment
        return Decision(
            base_physical_offset=segment.base_physical_offset,
            size_bytes=segment.size_bytes,
            reason=reason,
            explanation=explanation,
            last_store_time_ms=segment.last_store_time_ms,
            is_lost=is_lost and reason in DELETING,
        )

    def _wish(self, segment: SegmentFacts) -> tuple[Reason, str]:
        """Return the reason that age, size and disks give for a single segment, without regard to the others."""
        if segment.is_active:
            return Reason.ACTIVE, "it takes appends"
        is_expired, age = self._age(segment)
        hold = self.facts.hold
        is_held = is_expired and hold is not None and segment.end_physical_offset > hold.physical_offset
        is_expired = is_expired and not is_held
        if is_expired and self.trigger is not None:
            return Reason.EXPIRED, age
        if self.needs.excess_bytes >= segment.size_bytes:
            limit_bytes = self.policy.retention_bytes
            return Reason.OVER_SIZE, f"{age}; without it the log still has the {limit_bytes} bytes that are kept"
        if self.needs.forced_bytes > 0:
            percent = self.policy.disk_forcible_percent
            return Reason.DISK_FORCED, f"{age}; the log's disk is used to more than {percent} %"
        if segment.end_physical_offset <= self.needs.relief_end_physical_offset:
            return Reason.DISK_FORCED, f"{age}; the indexes fill their disk, and files of them go with it"
        if is_expired:
            return Reason.NOT_DUE, f"{age}; it goes in the hours of delete_when"
        if is_held and hold is not None:
            why = (
                f"topic {hold.topic} keeps messages for {hold.hours} hours and has some from {hold.physical_offset} on"
            )
            return Reason.TOPIC_KEPT, f"{age}; it stays because {why}"
        return Reason.NOT_EXPIRED, age

    def _age(self, segment: SegmentFacts) -> tuple[bool, str]:
        """Return whether a segment has expired, and a sentence about it."""
        hours = self.policy.retention_hours
        if segment.last_store_time_ms is None:
            return False, "it has no record whose age could be told"
        age_ms = self.now_ms - segment.last_store_time_ms
        told = f"its last record is {age_ms / HOUR_MS:.1f} hours old"
        if not self.is_clock_believed:
            told += " without the clock, which is not believed"
        if age_ms < 0:
            told = f"its last record is {-age_ms / HOUR_MS:.1f} hours ahead of the clock"
        if age_ms > hours * HOUR_MS:  # in whole milliseconds: hours are only for the text
            return True, f"{told}, more than the {hours} hours that are kept"
        return False, f"{told}, records are kept for {hours} hours"

    def _obstacle(self, segment: SegmentFacts) -> tuple[Reason, str] | None:
        """Return why a segment can't be deleted: the Indexer or a replica does not have it yet."""
        end = segment.end_physical_offset
        indexed, replicated = self.facts.indexed_physical_offset, self.facts.replicated_physical_offset
        if not segment.is_indexed or end > indexed:
            return Reason.NOT_INDEXED, f"the Indexer has synced the log up to {indexed} and the segment ends at {end}"
        if end > replicated:
            return Reason.NOT_REPLICATED, f"replicas have the log up to {replicated} and the segment ends at {end}"
        return None

    def _or_wait(self, reason: Reason, explanation: str) -> tuple[Reason, str]:
        """Return this reason, or why the segment is kept: an older segment is kept, or the run's batch is full."""
        if self.kept is not None:
            base = self.kept.base_physical_offset
            why = f"it stays because the older segment {base} stays and the log has no holes"
            return Reason.BEHIND_KEPT, f"{explanation}; {why}"
        most = self.policy.delete_batch_count_max
        if self.delete_count >= most:
            return Reason.BATCH_FULL, f"{explanation}; it waits because one run deletes at most {most}"
        return reason, explanation


def _trigger(
    disks: Iterable[Disk], now_ms: int, policy: JanitorConfig, requested: Trigger | None, needs: _Needs
) -> Trigger | None:
    if requested is Trigger.MANUAL:
        return requested
    if needs.forced_bytes > 0 or needs.relief_end_physical_offset:
        return Trigger.DISK_FORCED
    if needs.excess_bytes > 0:
        return Trigger.OVER_SIZE
    if any(disk.used_percent is None or disk.used_percent > policy.disk_max_used_percent for disk in disks):
        return Trigger.DISK_SPACE
    return Trigger.HOUR if policy.is_due(now_ms) else requested


def _excess_bytes(segments: Sequence[SegmentFacts], policy: JanitorConfig) -> int:
    """Return the bytes of the log over retention_bytes, or 0 if not even its oldest segment can be deleted."""
    excess_bytes = sum(segment.size_bytes for segment in segments) - policy.retention_bytes
    can_go = len(segments) > 1 and excess_bytes >= segments[0].size_bytes
    return excess_bytes if policy.retention_bytes and can_go else 0


def _forced_bytes(disk: Disk | None, policy: JanitorConfig) -> float:
    """Return the bytes of the log to delete for its own disk, infinite if the disk's size is unknown."""
    if disk is None or not policy.disk_forced or not is_forcing(disk, policy):
        return 0
    beyond_percent = _percent(disk) - policy.disk_forcible_percent
    return beyond_percent * disk.total_bytes / 100 if disk.total_bytes else math.inf


def emptiest_by_owner(disks: Sequence[Disk]) -> dict[str, Disk]:
    """Return the emptiest disk of each owner. A disk of unknown use counts as the emptiest (as RocketMQ)."""
    fullest_first = sorted(disks, key=_percent)[::-1]
    return {disk.service: disk for disk in fullest_first}  # the last disk of an owner is kept


def _percent(disk: Disk) -> int:
    return -1 if disk.used_percent is None else disk.used_percent


def _is_full(disk: Disk | None, policy: JanitorConfig, was_full: bool) -> bool:
    limit_percent = policy.disk_forcible_percent if was_full else policy.disk_full_percent
    return disk is not None and _percent(disk) > limit_percent


def _disk_notes(facts: Facts, policy: JanitorConfig) -> list[DiskNote]:
    emptiest = emptiest_by_owner(facts.disks)
    return [
        _disk_note(disk, _for_disk(disk, facts, policy, is_all=is_forcing(emptiest[disk.service], policy)))
        for disk in facts.disks
        if is_forcing(disk, policy)
    ]


def _for_disk(disk: Disk, facts: Facts, policy: JanitorConfig, *, is_all: bool) -> ForDisk:
    if not policy.disk_forced:
        return ForDisk.NOT_FORCED
    if disk.service == LOG_OWNER:
        return ForDisk.DELETED if is_all else ForDisk.EMPTIER_DISK
    if facts.relief_end_physical_offset:
        return ForDisk.WITH_INDEXES
    is_ours = disk.own_bytes is not None and index_need_bytes(disk, disk.own_bytes, policy) > 0
    return ForDisk.NO_GAIN if is_ours else ForDisk.NOT_OURS


def _disk_note(disk: Disk, outcome: ForDisk) -> DiskNote:
    name = f"the {disk.service}'s file system" + (f" of {disk.path}" if disk.path else "")
    whose = {LOG_OWNER: "the log's segments", INDEX_OWNER: "the indexes' files"}[disk.service]
    text = f"{name} is used to {disk.used_percent} %"
    if disk.own_bytes is not None:
        others_bytes = max(0, disk.total_bytes - disk.free_bytes - disk.own_bytes)
        text += f": of its {disk.total_bytes} bytes {disk.own_bytes} are {whose}, {others_bytes} others'"
    return DiskNote(disk.service, disk.path, outcome, f"{text}; {outcome}")
