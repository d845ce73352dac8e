# SPDX-License-Identifier: Apache-2.0
"""Store: its services, the marks of its log, its disks, its copies, and what the Janitor keeps."""

from typing import Any, ClassVar, Literal

from msgspec import Struct
from reput.commitlog.v1 import log_service_pb2
from reput.indexer.v1 import index_service_pb2
from reput.janitor.v1 import retention_service_pb2

from services.console.pages.page import Gap, Page, command

Health = Literal["good", "problem", "away"]
ROLES = {1: "leads, without waiting for copies", 2: "leads, and waits for copies", 3: "follows"}
INDEXER_STATES = {1: "recovering", 2: "connecting", 3: "catching up", 4: "live", 5: "stopped"}


class ServiceRow(Struct, frozen=True):
    """A service of the store."""

    name: str
    target: str
    health: Health
    state: str
    """Its state in words; the reason if it could not be asked."""
    version: str = ""
    start_time_ms: int | None = None
    problems: tuple[str, ...] = ()


class Mark(Struct, frozen=True):
    """A mark of the log: all bytes before it have a property."""

    name: str
    meaning: str
    physical_offset: int


class Disk(Struct, frozen=True):
    """A file system of the store."""

    name: str
    total_bytes: int
    free_bytes: int
    used_percent: int
    note: str = ""


class Replica(Struct, frozen=True):
    """A follower of the log."""

    name: str
    is_in_sync: bool
    is_catching_up: bool
    behind_bytes: int
    heard_time_ms: int | None
    connected_time_ms: int | None


class Retention(Struct, frozen=True):
    """What the Janitor does."""

    retention_hours: int
    next_check_ms: int | None
    deleted_segment_count: int
    freed_bytes: int


class StorePage(Page, frozen=True, kw_only=True):
    """The store."""

    template: ClassVar = "store.html"

    services: tuple[ServiceRow, ...]
    verdict: str
    is_healthy: bool
    marks: tuple[Mark, ...] = ()
    kept_bytes: int = 0
    segment_count: int = 0
    segment_size_bytes: int = 0
    topic_count: int = 0
    epoch: int = 0
    replica_id: str = ""
    appended_message_count: int = 0
    disks: tuple[Disk, ...] = ()
    replicas: tuple[Replica, ...] = ()
    retention: Retention | None = None


class Answers(Struct, frozen=True):
    """The states of the services, None for a service that could not be asked."""

    commitlog: log_service_pb2.GetStatusResponse | None
    indexer: index_service_pb2.GetStatusResponse | None
    janitor: retention_service_pb2.GetStatusResponse | None
    policy: retention_service_pb2.GetPolicyResponse | None
    group_count: int | None
    """Groups that Delivery has."""


def page_of(answers: Answers, targets: dict[str, str], gaps: tuple[Gap, ...]) -> StorePage:
    """Return the page of the store. A service that was not asked is away, and the page says why."""
    reasons = {gap.subject: gap.reason for gap in gaps}
    rows = [
        _commitlog(answers.commitlog, targets["commitlog"], reasons.get("CommitLog", "")),
        _indexer(answers.indexer, targets["indexer"], reasons.get("Indexer", "")),
        _janitor(answers.janitor, targets["janitor"], reasons.get("Janitor", "")),
    ]
    if targets["delivery"]:
        rows.append(_delivery(answers.group_count, targets["delivery"], reasons.get("Delivery", "")))
    bad = [row.name for row in rows if row.health != "good"]
    return StorePage(
        commands=(command("status"), command("replicas"), command("segments")),
        gaps=gaps,
        services=tuple(rows),
        is_healthy=not bad,
        verdict="All services answer, and none reports a problem." if not bad else f"Look at {' and '.join(bad)}.",
        disks=_disks(answers),
        retention=_retention(answers),
        **_of_log(answers.commitlog, answers.indexer),
    )


def _of_log(log: log_service_pb2.GetStatusResponse | None, index: Any) -> dict[str, Any]:
    if log is None:
        return {}
    marks = (
        Mark("min", "the first byte that is kept", log.min_physical_offset),
        Mark(
            "indexed",
            "everything before it is in all indexes",
            index.indexed_physical_offset if index is not None else log.indexed_physical_offset,
        ),
        Mark("confirmed", "everything before it is visible to readers", log.confirmed_physical_offset),
        Mark("flushed", "everything before it is on the disk", log.flushed_physical_offset),
        Mark("wrote", "the end of the log", log.max_physical_offset),
    )
    return {
        "marks": marks,
        "kept_bytes": log.max_physical_offset - log.min_physical_offset,
        "segment_count": log.segment_count,
        "segment_size_bytes": log.segment_size_bytes,
        "topic_count": log.topic_count,
        "epoch": log.epoch,
        "replica_id": log.replica_id,
        "appended_message_count": log.appended_message_count,
        "replicas": tuple(_replica(one, log.max_physical_offset) for one in log.replicas),
    }


def _commitlog(log: log_service_pb2.GetStatusResponse | None, target: str, reason: str) -> ServiceRow:
    if log is None:
        return _away("CommitLog", target, reason)
    problems = [f"appends are refused: {name}" for name in log.refusals]
    following_error = _following_error(log)
    if following_error:
        problems.append(following_error)
    if log.store_time_ahead_ms > 1_000:
        problems.append(f"the log's time is {log.store_time_ahead_ms:,} ms ahead of the clock")
    is_recovering = log.state == log_service_pb2.LOG_STATE_RECOVERING
    role = ROLES.get(log.role, "has an unknown role")
    state = "recovering" if is_recovering else f"{role}; {'accepts' if log.is_writable else 'refuses'} appends"
    is_follower = log.role == log_service_pb2.ROLE_SLAVE
    is_bad = bool(problems) and not (is_follower and not following_error)
    return _answered(
        "CommitLog", target, log, state, problems if is_bad else [], is_good=not is_bad and not is_recovering
    )


def _following_error(log: log_service_pb2.GetStatusResponse) -> str:
    """Return the reason why a follower does not follow. The last error stays in its status when it follows again."""
    follows = log.following.state == log_service_pb2.FOLLOWING_STATE_FOLLOWING
    return log.following.last_error if log.HasField("following") and not follows else ""


def _indexer(index: index_service_pb2.GetStatusResponse | None, target: str, reason: str) -> ServiceRow:
    if index is None:
        return _away("Indexer", target, reason)
    is_live = index.state == index_service_pb2.REPUT_STATE_LIVE and not index.is_log_away
    problems = [index.last_error] if index.last_error and not is_live else []
    if index.is_log_away:
        problems.append(f"it has not heard the log for {index.log_silent_ms:,} ms")
    if index.damaged_records:
        problems.append(f"{len(index.damaged_records)} damaged records: reput verify")
    state = INDEXER_STATES.get(index.state, "in an unknown state")
    if not index.is_complete:
        state += "; the indexes are not complete"
    return _answered("Indexer", target, index, state, problems, is_good=not problems and index.is_complete)


def _janitor(janitor: retention_service_pb2.GetStatusResponse | None, target: str, reason: str) -> ServiceRow:
    if janitor is None:
        return _away("Janitor", target, reason)
    problems = [text for text in (janitor.last_error, janitor.clock_note, *janitor.disk_notes) if text]
    if janitor.is_disk_full:
        problems.append("a disk is too full")
    state = "deletes expired segments" if janitor.is_running else "waits for its next check"
    return _answered("Janitor", target, janitor, state, problems, is_good=not problems)


def _delivery(group_count: int | None, target: str, reason: str) -> ServiceRow:
    if group_count is None:
        return _away("Delivery", target, reason)
    return ServiceRow("Delivery", target, "good", f"answers; {group_count:,} groups share messages")


def _away(name: str, target: str, reason: str) -> ServiceRow:
    return ServiceRow(name, target, "away", reason or "it could not be asked")


def _answered(name: str, target: str, status: Any, state: str, problems: list[str], *, is_good: bool) -> ServiceRow:
    health: Health = "good" if is_good else "problem"
    return ServiceRow(name, target, health, state, status.version, _ms(status, "start_time"), tuple(problems))


def _ms(message: Any, name: str) -> int | None:
    return getattr(message, name).ToMilliseconds() if message.HasField(name) else None


def _disks(answers: Answers) -> tuple[Disk, ...]:
    found = []
    for one in answers.commitlog.log_directories if answers.commitlog is not None else ():
        note = "read-only" if one.is_read_only else "too full for new segments" if one.is_full else ""
        found.append(Disk(one.path, one.disk_total_bytes, one.disk_free_bytes, one.disk_used_percent, note))
    if answers.indexer is not None:
        index = answers.indexer
        found.append(Disk("indexes", index.disk_total_bytes, index.disk_free_bytes, index.disk_used_percent))
    return tuple(found)


def _replica(one: Any, end: int) -> Replica:
    return Replica(
        name=one.replica_id,
        is_in_sync=one.is_in_sync,
        is_catching_up=one.is_catching_up,
        behind_bytes=max(end - one.flushed_physical_offset, 0),
        heard_time_ms=_ms(one, "heard_time"),
        connected_time_ms=_ms(one, "connected_time"),
    )


def _retention(answers: Answers) -> Retention | None:
    janitor, policy = answers.janitor, answers.policy
    if janitor is None or policy is None:
        return None
    return Retention(
        policy.retention_hours, _ms(janitor, "next_check_time"), janitor.deleted_segment_count, janitor.freed_bytes
    )
