# SPDX-License-Identifier: Apache-2.0
"""Store: its services, the marks of its log, its disks, its copies, and the policy of the Janitor."""

import math
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Literal

from msgspec import Struct
from reput.commitlog.v1 import log_service_pb2
from reput.indexer.v1 import index_service_pb2
from reput.janitor.v1 import retention_service_pb2
from reput_client import DelayLevel
from reput_client.core.answers import of_fields

from libs.figures import many, verb
from libs.members import leads, replica_lag_s, standing_of
from libs.service_names import SERVICES
from libs.verdict import Beside, is_recovering, is_too_full, troubles_by_service
from services.console.pages.page import Gap, Page, command

Health = Literal["good", "problem", "away"]
ROLES = {1: "leads, without waiting for copies", 2: "leads, and waits for copies", 3: "follows"}
STANDINGS = {"LEADING": "leads", "FOLLOWING": "follows", "CATCHING_UP": "catches up"}
"""How a log stands if all is well, in words."""
DAY_S = 86_400
CERTIFICATE_DAYS = (21, 7)
"""Certificates that last fewer days are a problem, as for `reput check`: soon, and now."""
INDEXER_STATES = {1: "recovering", 2: "connecting", 3: "catching up", 4: "live", 5: "stopped"}


class Problem(Struct, frozen=True):
    """A trouble of a service, and the action against it."""

    text: str
    action: str
    is_note: bool
    """It may wait."""


class ServiceRow(Struct, frozen=True):
    """A service of the store."""

    name: str
    target: str
    health: Health
    state: str
    """Its state in words; the reason if it could not be asked."""
    version: str = ""
    start_time_ms: int | None = None
    problems: tuple[Problem, ...] = ()


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
    behind_s: float
    heard_time_ms: int | None
    connected_time_ms: int | None


class Member(Struct, frozen=True):
    """A log of the store, at an address."""

    target: str
    standing: str
    """`leads`, `follows`, and so on; the reason if it could not be asked."""
    health: Health
    replica_id: str = ""
    epoch: int | None = None
    is_in_sync: bool = False
    behind_bytes: int | None = None
    behind_s: float | None = None
    version: str = ""
    reason: str = ""


class Certificate(Struct, frozen=True):
    """A certificate, by the address that shows it or by its file."""

    name: str
    end_ms: int
    days_left: int
    health: Health


class Retention(Struct, frozen=True):
    """The work of the Janitor."""

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
    members: tuple[Member, ...] = ()
    in_sync_replica_ids: tuple[str, ...] = ()
    live_in_sync_count: int = 0
    min_in_sync_count: int = 0
    certificates: tuple[Certificate, ...] = ()
    retention: Retention | None = None


class Answers(Struct, frozen=True):
    """The states of the services, as `libs.verdict` reads them. None for a service that could not be asked."""

    log: log_service_pb2.GetStatusResponse | None = None
    index: index_service_pb2.GetStatusResponse | None = None
    retention: retention_service_pb2.GetStatusResponse | None = None
    policy: retention_service_pb2.GetPolicyResponse | None = None
    group_count: int | None = None
    """Groups that Delivery has."""
    delay_levels: Sequence[DelayLevel] = ()
    away: Mapping[str, str] = {}
    delivery_version: str = ""
    delivery_start_ms: int | None = None
    members: Mapping[str, log_service_pb2.GetStatusResponse | str] = {}
    """The state of each log by its address, or why it is not known."""
    certificate_ends_s: Mapping[str, float] = {}
    """The ends of certificates by the addresses that show them, or by their files."""
    beside: Sequence[Beside] = ()
    targets: Mapping[str, str] = {}


def page_of(answers: Answers, targets: dict[str, str], gaps: tuple[Gap, ...], now_ms: int) -> StorePage:
    """Return the page of the store. A service that was not asked is away, and the page says why."""
    rows = _rows(answers, targets, {gap.subject: gap.reason for gap in gaps})
    bad = [row.name for row in rows if row.health != "good"]
    return StorePage(
        commands=(command("status"), command("replicas"), command("segments")),
        gaps=gaps,
        services=tuple(rows),
        is_healthy=not bad,
        verdict="All services answer, and none reports a problem." if not bad else f"Look at {' and '.join(bad)}.",
        disks=_disks(answers),
        members=members_of(answers.members),
        certificates=tuple(_certificate(name, end_s, now_ms) for name, end_s in answers.certificate_ends_s.items()),
        retention=_retention(answers),
        **_of_log(answers.log, answers.index),
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
        "in_sync_replica_ids": tuple(log.in_sync_replica_ids),
        "live_in_sync_count": log.live_in_sync_count,
        "min_in_sync_count": log.min_in_sync_count,
    }


def _rows(answers: Answers, targets: Mapping[str, str], reasons: Mapping[str, str]) -> list[ServiceRow]:
    """Return a row for each service. A service that was not asked is away, and its row says why."""
    states = {
        "commitlog": answers.log and _log_state(answers.log),
        "indexer": answers.index and _index_state(answers.index),
        "janitor": answers.retention
        and ("deletes expired segments" if answers.retention.is_running else "waits for its next check"),
    }
    told: dict[str, tuple[str, int | None]] = {"delivery": (answers.delivery_version, answers.delivery_start_ms)}
    for service, status in (("commitlog", answers.log), ("indexer", answers.index), ("janitor", answers.retention)):
        if status is not None:
            told[service] = (status.version, _ms(status, "start_time"))
    if targets["delivery"]:
        count = answers.group_count
        states["delivery"] = (
            None if count is None else f"answers; {many(count, 'group')} {verb(count, 'shares', 'share')} messages"
        )
    troubles = troubles_by_service(answers)
    rows = []
    for service, state in states.items():
        name = SERVICES[service]
        if state:
            version, start_ms = told[service]
            problems = tuple(Problem(one.text, one.action, one.is_note) for one in troubles[service])
            health: Health = "good" if all(one.is_note for one in problems) else "problem"
            rows.append(ServiceRow(name, targets[service], health, state, version, start_ms, problems))
        else:
            rows.append(ServiceRow(name, targets[service], "away", reasons.get(name) or "it could not be asked"))
    return rows


def _log_state(log: log_service_pb2.GetStatusResponse) -> str:
    if is_recovering(log):
        return "recovering"
    return f"{ROLES.get(log.role, 'has an unknown role')}; {'accepts' if log.is_writable else 'refuses'} appends"


def _index_state(index: index_service_pb2.GetStatusResponse) -> str:
    state = INDEXER_STATES.get(index.state, "in an unknown state")
    return state if index.is_complete else f"{state}; the indexes are not complete"


def _ms(message: Any, name: str) -> int | None:
    return getattr(message, name).ToMilliseconds() if message.HasField(name) else None


def _disks(answers: Answers) -> tuple[Disk, ...]:
    found = []
    for one in answers.log.log_directories if answers.log is not None else ():
        note = "read-only" if one.is_read_only else "too full for new segments" if is_too_full(one) else ""
        found.append(Disk(one.path, one.disk_total_bytes, one.disk_free_bytes, one.disk_used_percent, note))
    if answers.index is not None:
        index = answers.index
        found.append(
            Disk(
                index.disk_path or "the indexes", index.disk_total_bytes, index.disk_free_bytes, index.disk_used_percent
            )
        )
    return tuple(found)


def _replica(one: Any, end: int) -> Replica:
    return of_fields(
        Replica,
        one,
        name=one.replica_id,
        behind_bytes=max(end - one.flushed_physical_offset, 0),
        behind_s=replica_lag_s(one, end),
        heard_time_ms=_ms(one, "heard_time"),
        connected_time_ms=_ms(one, "connected_time"),
    )


def members_of(states: Mapping[str, log_service_pb2.GetStatusResponse | str]) -> tuple[Member, ...]:
    """Return a row for each log. The lag of a follower comes from the leader, if it is known."""
    seen = {
        replica.replica_id: (replica, one.max_physical_offset)
        for one in states.values()
        if not isinstance(one, str) and leads(one)
        for replica in one.replicas
    }
    return tuple(
        Member(target, one, "away") if isinstance(one, str) else _member(target, one, seen.get(one.replica_id))
        for target, one in states.items()
    )


def _member(target: str, state: log_service_pb2.GetStatusResponse, seen: tuple[Any, int] | None) -> Member:
    word, reason = standing_of(state)
    behind_bytes: int | None = 0 if leads(state) else None
    behind_s: float | None = 0.0 if leads(state) else None
    is_in_sync = leads(state) or state.following.is_in_sync
    if seen is not None:
        replica, end = seen
        behind_bytes, behind_s = max(end - replica.flushed_physical_offset, 0), replica_lag_s(replica, end)
        is_in_sync = replica.is_in_sync
    elif state.HasField("following"):
        behind_bytes = max(state.following.leader_max_physical_offset - state.max_physical_offset, 0)
    return of_fields(
        Member,
        state,
        target=target,
        standing=STANDINGS.get(word, word.lower().replace("_", " ")),
        health="good" if word in STANDINGS else "problem",
        is_in_sync=is_in_sync,
        behind_bytes=behind_bytes,
        behind_s=behind_s,
        reason=reason,
    )


def _certificate(name: str, end_s: float, now_ms: int) -> Certificate:
    days = math.floor((end_s - now_ms / 1_000) / DAY_S)
    warn, bad = CERTIFICATE_DAYS
    return Certificate(name, round(end_s * 1_000), days, "away" if days < bad else "problem" if days < warn else "good")


def _retention(answers: Answers) -> Retention | None:
    janitor, policy = answers.retention, answers.policy
    if janitor is None or policy is None:
        return None
    return Retention(
        policy.retention_hours, _ms(janitor, "next_check_time"), janitor.deleted_segment_count, janitor.freed_bytes
    )
