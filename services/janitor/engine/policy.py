# SPDX-License-Identifier: Apache-2.0
"""The retention policy: which segments go, which stay, and why. Pure: no clock, no files, no network.

Invariants: at most the oldest segments of the log are deleted, without a hole, never the active one, and none that the
Indexer has not synced. A segment's age is the age of its last record by store time, not the time of its file.
Not handled: when to run (Schedule tells about hours), and the deleting itself (RetentionLoop).
Rules: RocketMQ 5.3 CleanCommitLogService; the age differs on purpose (its file time is wrong after a restore).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, tzinfo
from enum import StrEnum

HOUR_MS = 3_600_000


class Reason(StrEnum):
    """Why a segment is kept or deleted; EXPIRED is the only one that deletes."""

    ACTIVE = "ACTIVE"
    NOT_EXPIRED = "NOT_EXPIRED"
    NOT_INDEXED = "NOT_INDEXED"
    BEHIND_KEPT = "BEHIND_KEPT"
    BATCH_FULL = "BATCH_FULL"
    EXPIRED = "EXPIRED"


@dataclass(frozen=True, slots=True)
class SegmentFacts:
    """What the CommitLog says of one segment. Times are milliseconds since the epoch, None if it has no record."""

    base_physical_offset: int
    size_bytes: int
    last_store_time_ms: int | None
    is_active: bool
    is_indexed: bool

    @property
    def end_physical_offset(self) -> int:
        """First byte behind the segment."""
        return self.base_physical_offset + self.size_bytes


@dataclass(frozen=True, slots=True)
class Facts:
    """What the owners say: all segments, oldest first, and the end of what the Indexer itself has synced."""

    segments: Sequence[SegmentFacts]
    indexed_physical_offset: int


@dataclass(frozen=True, slots=True)
class Policy:
    """How long records are kept and how many segments one run may delete."""

    retention_hours: int
    delete_batch_count_max: int


@dataclass(frozen=True, slots=True)
class Decision:
    """What is to become of one segment; `explanation` is one sentence with the numbers that decided it."""

    base_physical_offset: int
    size_bytes: int
    reason: Reason
    explanation: str
    last_store_time_ms: int | None

    @property
    def is_delete(self) -> bool:
        """True if the segment is to be deleted."""
        return self.reason is Reason.EXPIRED


@dataclass(frozen=True, slots=True)
class Schedule:
    """The hours of the day in which expired segments are deleted. `time_zone` None is the machine's own."""

    hours: frozenset[int]
    time_zone: tzinfo | None

    def is_due(self, now_ms: int) -> bool:
        """True during the whole of each hour."""
        return datetime.fromtimestamp(now_ms / 1000, UTC).astimezone(self.time_zone).hour in self.hours


def decide(facts: Facts, policy: Policy, now_ms: int) -> list[Decision]:
    """One decision per segment, oldest first. `now_ms` is wall time in milliseconds since the epoch."""
    decisions: list[Decision] = []
    delete_count = 0
    kept: SegmentFacts | None = None
    for segment in facts.segments:
        reason, explanation = _judge(segment, facts.indexed_physical_offset, policy, now_ms)
        if reason is Reason.EXPIRED and kept is not None:
            reason = Reason.BEHIND_KEPT
            explanation = (
                f"{explanation}; it stays because the older segment {kept.base_physical_offset} stays "
                "and the log has no holes"
            )
        elif reason is Reason.EXPIRED and delete_count >= policy.delete_batch_count_max:
            reason = Reason.BATCH_FULL
            explanation = f"{explanation}; it waits because one run deletes at most {policy.delete_batch_count_max}"
        elif reason is Reason.EXPIRED:
            delete_count += 1
        else:
            kept = kept or segment
        decisions.append(
            Decision(
                base_physical_offset=segment.base_physical_offset,
                size_bytes=segment.size_bytes,
                reason=reason,
                explanation=explanation,
                last_store_time_ms=segment.last_store_time_ms,
            )
        )
    return decisions


def _judge(segment: SegmentFacts, indexed_physical_offset: int, policy: Policy, now_ms: int) -> tuple[Reason, str]:
    """The verdict on one segment by itself."""
    if segment.is_active:
        return Reason.ACTIVE, "it takes appends"
    if segment.last_store_time_ms is None:
        return Reason.NOT_EXPIRED, "it has no record whose age could be told"
    age_hours = (now_ms - segment.last_store_time_ms) / HOUR_MS
    # Compared in whole milliseconds: the hours are only for people.
    if now_ms - segment.last_store_time_ms <= policy.retention_hours * HOUR_MS:
        return Reason.NOT_EXPIRED, (
            f"its last record is {age_hours:.1f} hours old, records are kept for {policy.retention_hours} hours"
        )
    if not segment.is_indexed or segment.end_physical_offset > indexed_physical_offset:
        return Reason.NOT_INDEXED, (
            f"its last record is {age_hours:.1f} hours old, but the Indexer has synced the log up to "
            f"{indexed_physical_offset} and the segment ends at {segment.end_physical_offset}"
        )
    return Reason.EXPIRED, (
        f"its last record is {age_hours:.1f} hours old, more than the {policy.retention_hours} hours that are kept"
    )
