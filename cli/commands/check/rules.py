# SPDX-License-Identifier: Apache-2.0
"""The judgement of `reput check`: facts and limits in, findings out. Pure: no clock, no call.

Each finding has a level of Nagios, a text, the cure, and the number that was compared. A subject of a service that
gave no answer has no finding of its own: the finding of the service says it all.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from enum import IntEnum
from typing import NamedTuple

from msgspec import Struct, field
from reput.commitlog.v1 import log_service_pb2 as log_pb
from reput.indexer.v1 import index_service_pb2 as index_pb
from reput.janitor.v1 import retention_service_pb2 as retention_pb

from libs.figures import duration_text, many, size_text
from libs.verdict import DISK_FREE, NOT_LEADER, RIGHT_LOG, TOPIC_CURE, topic_text

DAY_S = 86_400.0


class Level(IntEnum):
    """A level of Nagios: the value is the exit code."""

    OK = 0
    WARNING = 1
    CRITICAL = 2
    UNKNOWN = 3


SEVERITY = {Level.OK: 0, Level.WARNING: 1, Level.UNKNOWN: 2, Level.CRITICAL: 3}
"""The order of the levels: a store with a critical finding is critical, whatever else is not known."""


class Limits(NamedTuple):
    """The limits of a number: from them on it is a warning, or critical. An infinite limit is never reached."""

    warning: float = math.inf
    critical: float = math.inf
    is_least: bool = False
    """Whether a number below the limit is bad, as for the days that a certificate lasts."""

    def level(self, value: float) -> Level:
        """Return the level of a number."""
        if self.is_least:
            return Level.CRITICAL if value < self.critical else Level.WARNING if value < self.warning else Level.OK
        return Level.CRITICAL if value >= self.critical else Level.WARNING if value >= self.warning else Level.OK


class Number(NamedTuple):
    """A number that was compared, with its unit as Nagios writes it."""

    value: float
    unit: str
    limits: Limits


class Finding(Struct, frozen=True):
    """The judgement about a subject, such as the disk of a log."""

    subject: str
    level: Level
    text: str
    action: str = ""
    number: Number | None = None


class Thresholds(NamedTuple):
    """All limits of a check. `0` of a percent, size or age is a limit like all others."""

    disk_percent: Limits = Limits(80, 90)
    index_bytes: Limits = Limits(64 << 20, 1 << 30)
    replica_bytes: Limits = Limits(64 << 20, 1 << 30)
    janitor_s: Limits = Limits(600, 3600)
    certificate_days: Limits = Limits(21, 7, is_least=True)
    blocked_groups: Limits = Limits(1, math.inf)
    backup_s: Limits = Limits(3 * 3600, 26 * 3600)


class Backups(NamedTuple):
    """The backups of a place."""

    place: str
    newest_s: float | None = None
    """When the store was backed up last, in seconds since the epoch; None without a complete backup."""
    why: str = ""
    """Why nobody could look."""


class Facts(Struct, frozen=True):
    """The answers of the services at `time_s`. Answers are by address, in the order in which the user gave them."""

    time_s: float
    logs: Mapping[str, log_pb.GetStatusResponse] = field(default_factory=dict)
    indexes: Mapping[str, index_pb.GetStatusResponse] = field(default_factory=dict)
    retention: retention_pb.GetStatusResponse | None = None
    away: Mapping[str, str] = field(default_factory=dict)
    """Services that gave no answer, as `CommitLog at host:7101`, with the reasons."""
    unknown: Mapping[str, str] = field(default_factory=dict)
    """Services that refused the question, for example without a token, with the reasons."""
    others: Sequence[str] = ()
    """Services that said of themselves that they serve."""
    certificates: Mapping[str, float] = field(default_factory=dict)
    """The ends of certificates by service or file, in seconds since the epoch."""
    blocked: Sequence[str] | None = None
    """Groups that stand still; None without Delivery."""
    backups: Backups | None = None
    """None if no place of backups was given."""


def findings_of(facts: Facts, thresholds: Thresholds) -> list[Finding]:
    """Return all findings, the worst first."""
    found = [
        *_of_services(facts),
        *_of_appends(facts),
        *_of_disks(facts, thresholds.disk_percent),
        *_of_indexes(facts, thresholds.index_bytes),
        *_of_replication(facts, thresholds.replica_bytes),
        *_of_retention(facts, thresholds.janitor_s),
        *_of_topics(facts),
        *_of_certificates(facts, thresholds.certificate_days),
        *_of_groups(facts, thresholds.blocked_groups),
        *_of_backups(facts, thresholds.backup_s),
    ]
    return sorted(found, key=lambda finding: -SEVERITY[finding.level])


def level_of(findings: Sequence[Finding]) -> Level:
    """Return the level of a store: that of its worst finding."""
    return max((finding.level for finding in findings), key=lambda level: SEVERITY[level], default=Level.UNKNOWN)


def leader_of(facts: Facts) -> log_pb.GetStatusResponse | None:
    """Return the log that leads, None if no log that was asked leads."""
    leads = (log for log in _served(facts).values() if not log.HasField("following") and NOT_LEADER not in log.refusals)
    return next(leads, None)


def _served(facts: Facts) -> dict[str, log_pb.GetStatusResponse]:
    return {target: log for target, log in facts.logs.items() if log.state != log_pb.LOG_STATE_RECOVERING}


def _of_services(facts: Facts) -> Iterator[Finding]:
    for name, why in facts.away.items():
        yield Finding("services", Level.CRITICAL, f"{name} does not answer: {why}", "start it, or give its address")
    for name, why in facts.unknown.items():
        yield Finding("services", Level.UNKNOWN, f"{name} refuses to answer: {why}", "give --token-file or --ca-file")
    if not facts.away and not facts.unknown:
        count = len(facts.logs) + len(facts.indexes) + (facts.retention is not None) + len(facts.others)
        yield Finding("services", Level.OK, f"{many(count, 'service')} answer")


def _of_appends(facts: Facts) -> Iterator[Finding]:
    for target, log in facts.logs.items():
        if log.state == log_pb.LOG_STATE_RECOVERING:
            yield Finding(
                "appends",
                Level.WARNING,
                f"the log at {target} looks for its end",
                "wait: it serves when it is found",
            )
    served = _served(facts)
    leader = leader_of(facts)
    if leader is None:
        if served and len(served) == len(facts.logs):
            yield Finding("appends", Level.CRITICAL, _no_leader_text(facts), "`reput replicas` tells which log leads")
        return
    if leader.refusals:
        action = DISK_FREE if any("FULL" in reason for reason in leader.refusals) else "`reput status` tells more"
        action = RIGHT_LOG if "STORE_REPLACED" in leader.refusals else action
        yield Finding("appends", Level.CRITICAL, f"appends are refused: {', '.join(leader.refusals)}", action)
    else:
        yield Finding("appends", Level.OK, "appends are accepted")


def _no_leader_text(facts: Facts) -> str:
    names = ", ".join(facts.logs)
    return f"no log leads of {names}" if len(facts.logs) > 1 else f"{names} does not lead"


def _of_disks(facts: Facts, limits: Limits) -> Iterator[Finding]:
    disks: dict[str, tuple[int, int]] = {}
    for target, log in _served(facts).items():
        for one in log.log_directories:
            if not one.is_read_only:
                disks[f"{one.path} of {target}"] = (one.disk_used_percent, one.disk_free_bytes)
        if not log.log_directories and log.disk_total_bytes:
            disks[f"the log at {target}"] = (log.disk_used_percent, log.disk_free_bytes)
    for target, index in facts.indexes.items():
        if index.disk_total_bytes:
            disks[f"the indexes at {target}"] = (index.disk_used_percent, index.disk_free_bytes)
    for name, (percent, free_bytes) in disks.items():
        text = f"{percent} % used, {size_text(free_bytes)} free: {name}"
        yield Finding("disk", limits.level(percent), text, DISK_FREE, Number(percent, "%", limits))


def _of_indexes(facts: Facts, limits: Limits) -> Iterator[Finding]:
    leader = leader_of(facts)
    for target, index in facts.indexes.items():
        name, error = f"the Indexer at {target}", f": {index.last_error}" if index.last_error else ""
        end = max(leader.confirmed_physical_offset if leader is not None else 0, index.confirmed_physical_offset)
        behind = max(end - index.indexed_physical_offset, 0)
        number = Number(behind, "B", limits)
        text, action = f"{name} is {size_text(behind)} behind", "`reput status --watch` tells whether it catches up"
        if index.state in (index_pb.REPUT_STATE_STOPPED, index_pb.REPUT_STATE_OTHER_LOG):
            is_other = index.state == index_pb.REPUT_STATE_OTHER_LOG
            cure = RIGHT_LOG if is_other else "`reput verify` tells what is wrong, `reput index rebuild` helps"
            yield Finding("index", Level.CRITICAL, f"{name} stands still{error}", cure, number)
        elif index.is_log_away or index.state == index_pb.REPUT_STATE_CONNECTING:
            cure = "see that the CommitLog of its commitlog_target runs, and its token"
            yield Finding("index", Level.CRITICAL, f"{name} can't reach its CommitLog{error}", cure, number)
        elif not index.is_complete:
            level = max(Level.WARNING, limits.level(behind))
            yield Finding("index", level, f"{text}, and builds the indexes again", action, number)
        else:
            yield Finding("index", limits.level(behind), text, action, number)
        for one in index.damaged_records:
            text = f"segment {one.segment} is damaged at byte {one.position}: {one.reason}"
            yield Finding("index", Level.CRITICAL, text, "restore the segment from a copy")


def _of_replication(facts: Facts, limits: Limits) -> Iterator[Finding]:
    leader = leader_of(facts)
    if leader is not None and leader.min_in_sync_count and (leader.replicas or len(leader.in_sync_replica_ids) > 1):
        live, needed = leader.live_in_sync_count, leader.min_in_sync_count
        absent = set(leader.in_sync_replica_ids[1:]) - {replica.replica_id for replica in leader.replicas}
        text = f"{live} logs are in sync and connected, {needed} must be"
        text += f"; not connected: {', '.join(sorted(absent))}" if absent else ""
        level = Level.CRITICAL if live < needed else Level.WARNING if absent else Level.OK
        yield Finding("replication", level, text, "`reput replicas` tells more")
        for replica in leader.replicas:
            behind = max(leader.max_physical_offset - replica.received_physical_offset, 0)
            text = f"replica {replica.replica_id} is {size_text(behind)} behind"
            yield Finding(
                "replication", limits.level(behind), text, "`reput replicas` tells more", Number(behind, "B", limits)
            )
    for target, log in _served(facts).items():
        if log.HasField("following") and log.following.state != log_pb.FOLLOWING_STATE_FOLLOWING:
            is_out = log.following.state == log_pb.FOLLOWING_STATE_OUT
            text = f"the log at {target} does not follow {log.following.leader_target}: {log.following.last_error}"
            yield Finding("replication", Level.CRITICAL if is_out else Level.WARNING, text, "see docs/replication.md")


def _of_retention(facts: Facts, limits: Limits) -> Iterator[Finding]:
    retention = facts.retention
    if retention is None:
        return
    last = retention.last_check_time if retention.HasField("last_check_time") else retention.start_time
    age_s = max(facts.time_s - last.ToMilliseconds() / 1000, 0.0)
    level, text = limits.level(age_s), f"the Janitor looked {duration_text(age_s)} ago"
    action = "look into the Janitor's log"
    if retention.last_error:
        level, text = max(level, Level.WARNING), f"{text}, and failed: {retention.last_error}"
        action = "`reput janitor run --dry-run` tries it again"
    yield Finding("janitor", level, text, action, Number(round(age_s, 1), "s", limits))
    if retention.lost_segment_count:
        lost = many(retention.lost_segment_count, "segment")
        text = f"{lost} went before they were indexed or replicated"
        yield Finding("janitor", Level.CRITICAL, text, "see docs/retention.md")


def _of_topics(facts: Facts) -> Iterator[Finding]:
    """Yield a finding for all topics with a retention of their own, if there are any."""
    retention = facts.retention
    if retention is None or not retention.topic_count:
        return
    unknown = [one for one in retention.topics if one.error]
    if unknown:
        more = f"; and of {many(len(unknown) - 1, 'more topic')}" if len(unknown) > 1 else ""
        yield Finding("topics", Level.WARNING, topic_text(unknown[0]) + more, TOPIC_CURE)
    else:
        verb = "has" if retention.topic_count == 1 else "have"
        text = f"{many(retention.topic_count, 'topic')} {verb} a retention of {'its' if verb == 'has' else 'their'} own"
        longest = max(retention.topics, key=lambda one: one.retention_hours if one.is_longer else 0, default=None)
        if longest is not None and longest.is_longer:
            text += f"; segments stay up to {longest.retention_hours} h for topic {longest.topic}"
        yield Finding("topics", Level.OK, text)


def _of_certificates(facts: Facts, limits: Limits) -> Iterator[Finding]:
    for name, end_s in facts.certificates.items():
        days = (end_s - facts.time_s) / DAY_S
        text = f"the certificate of {name} "
        text += f"ends in {duration_text(days * DAY_S)}" if days >= 0 else f"ended {duration_text(-days * DAY_S)} ago"
        number = Number(round(days, 2), "", limits)
        yield Finding("certificate", limits.level(days), text, "put a new pair there: it is read by itself", number)


def _of_groups(facts: Facts, limits: Limits) -> Iterator[Finding]:
    if facts.blocked is not None:
        count = len(facts.blocked)
        text = f"{many(count, 'group')} stand{'s' if count == 1 else ''} still"
        text += f": {'; '.join(facts.blocked[:5])}" if count else ""
        number = Number(count, "", limits)
        yield Finding("groups", limits.level(count), text, "`reput groups show GROUP` tells why", number)


def _of_backups(facts: Facts, limits: Limits) -> Iterator[Finding]:
    if facts.backups is None:
        return
    place, newest_s, why = facts.backups
    cure = f"look at the end of the last `reput backup create --to {place}`"
    if why:
        yield Finding("backup", Level.UNKNOWN, f"no look at the backups of {place}: {why}", cure)
    elif newest_s is None:
        yield Finding("backup", Level.CRITICAL, f"{place} has no complete backup", cure)
    else:
        age_s = max(facts.time_s - newest_s, 0.0)
        text = f"the newest backup of {place} is {duration_text(age_s)} old"
        yield Finding("backup", limits.level(age_s), text, cure, Number(round(age_s), "s", limits))
