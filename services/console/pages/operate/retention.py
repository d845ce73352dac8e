# SPDX-License-Identifier: Apache-2.0
"""Retention: why each segment is kept, how the disk fills, and the messages that groups lose by an earlier deletion."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any, ClassVar, Literal
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from msgspec import Struct
from msgspec.structs import replace
from reput.commitlog.v1.segment_service_pb2 import Segment
from reput.janitor.v1 import retention_service_pb2 as pb
from reput_client.core.answers import of_fields

from services.console.pages.chart import SMALLEST, WIDTH
from services.console.pages.operate.forecast import Extent, Forecast, forecast_of
from services.console.pages.page import Gap, Page, command

ROWS_OF_A_PAGE = 50
BLOCKS_MAX = 120
"""Blocks of the time line; neighbours of the same kind share a block beyond that."""
RUNS_SHOWN_MAX = 10
TOPICS_SHOWN_MAX = 100
HOUR_MS = 3_600_000
HOURS_OF_TWO_DAYS = 48
LAST_MS = 253_370_764_800_000
"""The year 9999, in which calendars end."""

Kind = Literal["active", "kept", "waits", "held", "goes", "unknown"]
REASONS: Mapping[str, tuple[Kind, str]] = {
    "ACTIVE": ("active", "takes appends"),
    "NOT_EXPIRED": ("kept", "has not expired"),
    "NOT_DUE": ("waits", "expired, waits for its hour"),
    "BATCH_FULL": ("waits", "expired, waits for the next run"),
    "TOPIC_KEPT": ("held", "a topic keeps its messages longer"),
    "NOT_INDEXED": ("held", "is not in synced indexes yet"),
    "NOT_REPLICATED": ("held", "is not replicated"),
    "BEHIND_KEPT": ("held", "an older segment stays"),
    "EXPIRED": ("goes", "expired"),
    "OVER_SIZE": ("goes", "the log is larger than its limit"),
    "DISK_FORCED": ("goes", "the disk is too full"),
}
"""The kind of each reason of the Janitor, and its words."""
UNKNOWN: tuple[Kind, str] = ("unknown", "not known")


class SegmentRow(Struct, frozen=True):
    """A segment, and the Janitor's reason to keep or delete it."""

    base_physical_offset: int
    size_bytes: int
    wrote_bytes: int
    first_store_time_ms: int | None
    last_store_time_ms: int | None
    is_indexed: bool
    reader_count: int
    kind: Kind
    reason: str
    """The Janitor's word, empty if it could not be asked."""
    meaning: str
    explanation: str
    earliest_ms: int | None = None
    """The first hour of deletions after its expiry, by the age limit; None for the segment that takes appends."""


class Block(Struct, frozen=True):
    """Segments of the same kind on the time line."""

    x: float
    width: float
    kind: Kind
    segment_count: int
    size_bytes: int
    start_ms: int
    end_ms: int
    meaning: str


class TimeLine(Struct, frozen=True):
    """The log in time, from its oldest segment to now."""

    start_ms: int
    end_ms: int
    blocks: tuple[Block, ...]
    limit_x: float | None
    """Where the retention begins; None if it is before the oldest segment."""


class Policy(Struct, frozen=True):
    """The policy in force."""

    retention_hours: int
    retention_bytes: int
    delete_hours: tuple[int, ...]
    time_zone: str
    disk_max_used_percent: int
    disk_forcible_percent: int
    disk_full_percent: int
    disk_forced: bool
    next_check_ms: int | None


class TopicRule(Struct, frozen=True):
    """A topic with a rule of its own."""

    topic: str
    retention_hours: int
    retention_bytes: int
    expired_message_count: int
    kept_message_count: int
    is_longer: bool
    error: str


class RunRow(Struct, frozen=True):
    """A past run that deleted something or failed."""

    time_ms: int
    trigger: str
    deleted_segment_count: int
    freed_bytes: int
    error: str


class Loss(Struct, frozen=True):
    """Messages that a group has not read, and would miss."""

    group: str
    topic: str
    message_count: int
    queue_count: int


class Stay(Struct, frozen=True):
    """Segments that stay for the same reason."""

    meaning: str
    segment_count: int


class Trial(Struct, frozen=True):
    """The segments that a shorter retention would delete now, and the groups that would miss messages."""

    hours: str = ""
    """As it was typed; empty for no other hours."""
    bytes: str = ""
    topic: str = ""
    """The topic that would have these limits; empty for the whole store."""
    is_decided: bool = False
    refusal: str = ""
    gap: str = ""
    """Why it could not be looked at."""
    segment_count: int = 0
    freed_bytes: int = 0
    stays: tuple[Stay, ...] = ()
    expired_message_count: int = 0
    """Messages that the topic's rule would take from readers."""
    losses: tuple[Loss, ...] = ()
    is_cut: bool = False
    """More positions are below the kept messages than the Janitor names."""


class RetentionPage(Page, frozen=True, kw_only=True):
    """Retention."""

    template: ClassVar = "retention.html"

    time_line: TimeLine | None = None
    forecast: Forecast | None = None
    policy: Policy | None = None
    segments: tuple[SegmentRow, ...] = ()
    segment_count: int = 0
    number: int = 1
    page_count: int = 1
    trial: Trial
    topics: tuple[TopicRule, ...] = ()
    topic_count: int = 0
    runs: tuple[RunRow, ...] = ()


class Answers(Struct, frozen=True):
    """The answers of the store. None or empty for a question that failed."""

    segments: Sequence[Segment] = ()
    policy: pb.GetPolicyResponse | None = None
    status: pb.GetStatusResponse | None = None
    run: pb.Run | None = None
    """A dry run by the policy in force."""
    trial_run: pb.Run | None = None
    history: Sequence[pb.Run] = ()
    is_too_full: bool = False
    """Whether all disks of the log are too full for new segments."""


def retention_page(answers: Answers, trial: Trial, number: int, now_ms: int, gaps: tuple[Gap, ...]) -> RetentionPage:
    """Return the page of retention."""
    rows = [
        replace(row, earliest_ms=earliest_ms(row, answers.policy, now_ms))
        for row in _rows(answers.segments, answers.run)
    ]
    policy, status = answers.policy, answers.status
    page_count = max(-(-len(rows) // ROWS_OF_A_PAGE), 1)
    number = min(max(number, 1), page_count)
    rules = status.topics if status is not None else ()
    extents = [_extent(row, now_ms) for row in rows]
    forecast = None
    if policy is not None and status is not None:
        forecast = forecast_of(
            [one for one in extents if one is not None], status.disks, policy, now_ms, is_too_full=answers.is_too_full
        )
    return RetentionPage(
        commands=_commands(trial),
        gaps=gaps,
        time_line=time_line(rows, policy.retention_hours if policy is not None else None, now_ms),
        forecast=forecast,
        policy=_policy(policy, status),
        segments=tuple(rows[(number - 1) * ROWS_OF_A_PAGE : number * ROWS_OF_A_PAGE]),
        segment_count=len(rows),
        number=number,
        page_count=page_count,
        trial=tried(trial, answers.run, answers.trial_run),
        topics=tuple(of_fields(TopicRule, one) for one in rules[:TOPICS_SHOWN_MAX]),
        topic_count=status.topic_count if status is not None else 0,
        runs=tuple(map(_run_row, answers.history[:RUNS_SHOWN_MAX])),
    )


def _commands(trial: Trial) -> tuple[str, ...]:
    options = [f"--retention-hours={trial.hours}"] if trial.hours else []
    options += [f"--retention-bytes={trial.bytes}"] if trial.bytes else []
    options += [f"--topic={trial.topic}"] if trial.topic else []
    run = command("janitor", "run", "--dry-run", *options)
    return (run, command("segments"), command("janitor", "policy"), command("janitor", "history"))


def _rows(segments: Iterable[Segment], run: pb.Run | None) -> list[SegmentRow]:
    decided = {one.base_physical_offset: one for one in run.decisions} if run is not None else {}
    return [_row(one, decided.get(one.base_physical_offset)) for one in segments]


def _row(segment: Segment, decision: pb.Decision | None) -> SegmentRow:
    reason = decision.reason if decision is not None else "ACTIVE" if segment.is_active else ""
    kind, meaning = REASONS.get(reason, UNKNOWN)
    return SegmentRow(
        base_physical_offset=segment.base_physical_offset,
        size_bytes=segment.size_bytes,
        wrote_bytes=segment.wrote_bytes,
        first_store_time_ms=_ms(segment, "first_store_time"),
        last_store_time_ms=_ms(segment, "last_store_time"),
        is_indexed=segment.is_indexed,
        reader_count=segment.reader_count,
        kind=kind,
        reason=reason,
        meaning=meaning,
        explanation=decision.explanation if decision is not None else "",
    )


def earliest_ms(row: SegmentRow, policy: pb.GetPolicyResponse | None, now_ms: int) -> int | None:
    """Return before when the age limit does not let a segment go, None if it is not known.

    Deletions begin in the hours of the policy, and take a segment whose last message has expired.
    """
    if policy is None or row.kind == "active" or row.last_store_time_ms is None or not policy.delete_hours:
        return None
    try:
        zone = ZoneInfo(policy.time_zone)
    except (ValueError, OSError, ZoneInfoNotFoundError):
        return None
    expired_ms = max(row.last_store_time_ms + policy.retention_hours * HOUR_MS, now_ms)
    for hours in range(HOURS_OF_TWO_DAYS):
        begin_ms = expired_ms if not hours else expired_ms // HOUR_MS * HOUR_MS + hours * HOUR_MS
        if begin_ms > LAST_MS:
            return None
        if datetime.fromtimestamp(begin_ms / 1000, zone).hour in policy.delete_hours:
            return begin_ms
    return None


def _extent(row: SegmentRow, now_ms: int) -> Extent | None:
    """Return the time of a segment, None if it has no record. The active segment lasts until now."""
    if row.first_store_time_ms is None or row.last_store_time_ms is None:
        return None
    start_ms = min(row.first_store_time_ms, now_ms)
    end_ms = now_ms if row.kind == "active" else max(min(row.last_store_time_ms, now_ms), start_ms)
    return Extent(start_ms, end_ms, row.wrote_bytes, row.size_bytes)


def time_line(rows: Sequence[SegmentRow], retention_hours: int | None, now_ms: int) -> TimeLine | None:
    """Return the time line of segments, None if none has a record."""
    dated = [(row, extent) for row in rows if (extent := _extent(row, now_ms)) is not None]
    if not dated:
        return None
    start_ms = min(extent.start_ms for _, extent in dated)
    length_ms = max(now_ms - start_ms, 1_000)
    most = -(-len(dated) // BLOCKS_MAX)
    groups: list[list[tuple[SegmentRow, Extent]]] = []
    for one in dated:
        if groups and len(groups[-1]) < most and groups[-1][0][0].reason == one[0].reason:
            groups[-1].append(one)
        else:
            groups.append([one])
    limit_ms = now_ms - retention_hours * HOUR_MS if retention_hours is not None else start_ms
    return TimeLine(
        start_ms=start_ms,
        end_ms=now_ms,
        blocks=tuple(_block(group, start_ms, length_ms) for group in groups[: 4 * BLOCKS_MAX]),
        limit_x=round((limit_ms - start_ms) / length_ms * WIDTH, 1) if limit_ms > start_ms else None,
    )


def _block(group: Sequence[tuple[SegmentRow, Extent]], start_ms: int, length_ms: int) -> Block:
    (row, first), last = group[0], group[-1][1]
    x = (first.start_ms - start_ms) / length_ms * WIDTH
    width = max((last.end_ms - first.start_ms) / length_ms * WIDTH - 1, SMALLEST)
    return Block(
        x=round(min(x, WIDTH - SMALLEST), 1),
        width=round(width, 1),
        kind=row.kind,
        segment_count=len(group),
        size_bytes=sum(extent.size_bytes for _, extent in group),
        start_ms=first.start_ms,
        end_ms=last.end_ms,
        meaning=row.meaning,
    )


def tried(trial: Trial, run: pb.Run | None, trial_run: pb.Run | None) -> Trial:
    """Return a trial with its result: segments and messages that it would delete beyond the policy in force."""
    if trial_run is None:
        return trial
    going = [one for one in trial_run.decisions if one.action == pb.ACTION_DELETE]
    staying = Counter(one.reason for one in trial_run.decisions if one.action != pb.ACTION_DELETE)
    already = _below(run.consumers) if run is not None else {}
    found: dict[tuple[str, str], list[int]] = {}
    for place, (position, kept) in _below(trial_run.consumers).items():
        missed = kept - max(position, already.get(place, (0, 0))[1])
        if missed > 0 and trial.topic in ("", place[1]):
            found.setdefault(place[:2], []).append(missed)
    losses = [Loss(group, topic, sum(counts), len(counts)) for (group, topic), counts in found.items()]
    return replace(
        trial,
        is_decided=True,
        segment_count=len(going),
        freed_bytes=sum(one.size_bytes for one in going),
        stays=tuple(Stay(REASONS.get(reason, UNKNOWN)[1], count) for reason, count in staying.items()),
        expired_message_count=sum(one.expired_message_count for one in trial_run.topics if one.topic == trial.topic),
        losses=tuple(sorted(losses, key=lambda loss: (-loss.message_count, loss.group, loss.topic))),
        is_cut=trial_run.consumer_count > len(trial_run.consumers),
    )


def _below(consumers: Iterable[Any]) -> dict[tuple[str, str, int], tuple[int, int]]:
    return {(one.group, one.topic, one.queue_id): (one.queue_offset, one.min_queue_offset) for one in consumers}


def _policy(policy: pb.GetPolicyResponse | None, status: pb.GetStatusResponse | None) -> Policy | None:
    if policy is None:
        return None
    return of_fields(
        Policy,
        policy,
        delete_hours=tuple(policy.delete_hours),
        next_check_ms=_ms(status, "next_check_time") if status is not None else None,
    )


def _run_row(run: pb.Run) -> RunRow:
    return RunRow(run.time.ToMilliseconds(), run.trigger, run.deleted_segment_count, run.freed_bytes, run.error)


def _ms(message: Any, name: str) -> int | None:
    return getattr(message, name).ToMilliseconds() if message.HasField(name) else None
