# SPDX-License-Identifier: Apache-2.0
"""The verdict about a store: the troubles of its services, and the action for each. Pure: states in, troubles out.

An operator has to know of a trouble at night; a note may wait until the morning.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

from reput.commitlog.v1.log_service_pb2 import (
    FOLLOWING_STATE_FOLLOWING,
    FOLLOWING_STATE_OUT,
    LOG_STATE_RECOVERING,
    ROLE_SYNC_MASTER,
    GetStatusResponse,
)
from reput.indexer.v1 import index_service_pb2 as index_pb
from reput.janitor.v1 import retention_service_pb2 as retention_pb

from libs.figures import duration_text, many, size_text
from libs.service_names import BESIDE, SERVICES

DISK_FREE = "make room or add a disk; `reput janitor run --dry-run` tells what could go"
RIGHT_LOG = "mount the disk and start the CommitLog again; if this log is the right one, `reput index rebuild`"
NOT_LEADER = "NOT_LEADER"
"""The refusal of a log that does not lead, such as a log whose lease is over."""
AHEAD_MS_MAX = 5_000
"""Above this distance between store times and the clock an operator should check."""
TOPIC_CURE = "look after the Indexer; `reput janitor status` shows the topics"


class Beside(Protocol):
    """Delivery or the gateway at a moment."""

    @property
    def service(self) -> str:
        """Its kind: a key of BESIDE."""

    @property
    def target(self) -> str:
        """Its address."""

    @property
    def serves(self) -> bool:
        """Whether it serves."""


class States(Protocol):
    """The states of the services at a moment. A state that is not known is None; `away` has the reasons."""

    @property
    def away(self) -> Mapping[str, str]:
        """The services that do not answer, with the reasons."""

    @property
    def log(self) -> GetStatusResponse | None:
        """The state of the CommitLog."""

    @property
    def index(self) -> index_pb.GetStatusResponse | None:
        """The state of the Indexer."""

    @property
    def retention(self) -> retention_pb.GetStatusResponse | None:
        """The state of the Janitor."""

    @property
    def beside(self) -> Sequence[Beside]:
        """Delivery and the gateway, if there are any."""

    @property
    def delay_levels(self) -> Sequence[Any]:
        """Delivery's levels, as the client has them."""

    @property
    def targets(self) -> Mapping[str, str]:
        """The addresses that were asked, for services that have several."""


class Trouble(NamedTuple):
    """A problem, and the action."""

    text: str
    action: str
    is_note: bool = False


def troubles_of(states: States) -> list[Trouble]:
    """Return all troubles, the worst first, and the notes behind them."""
    found = [Trouble(_away_text(service, why), "") for service, why in states.away.items()]
    found += [trouble for troubles in troubles_by_service(states).values() for trouble in troubles]
    return sorted(found, key=lambda trouble: trouble.is_note)


def troubles_by_service(states: States) -> dict[str, list[Trouble]]:
    """Return the troubles of the services that answer, and of those beside them."""
    found = {
        "commitlog": list(_of_log(states)),
        "indexer": list(_of_index(states)),
        "janitor": list(_of_retention(states)),
        "delivery": [],
    }
    for one in states.beside:
        if not one.serves:
            action = f"start it there with `reput serve {one.service}`"
            text = f"{BESIDE[one.service][0]} does not serve at {one.target}"
            found.setdefault(one.service, []).append(Trouble(text, action))
    found["delivery"] += _of_levels(states)
    return found


def verdict_of(troubles: list[Trouble]) -> str:
    """Return the verdict in a single line."""
    bad = [trouble for trouble in troubles if not trouble.is_note]
    if not bad:
        return "healthy"
    return "not well" if len(bad) == 1 else f"not well: {len(bad)} problems"


def is_recovering(log: GetStatusResponse | None) -> bool:
    """Whether the CommitLog still searches the end of its log. The rest of its state is not known then."""
    return log is not None and log.state == LOG_STATE_RECOVERING


def _away_text(service: str, why: str) -> str:
    return why if why.startswith("nobody answers") else f"the {SERVICES[service]} does not answer: {why}"


def _of_log(states: States) -> Iterator[Trouble]:
    log = states.log
    if log is None:
        return
    if is_recovering(log):
        progress = log.recovery_progress
        share = f", {100 * progress.scanned_bytes // progress.target_bytes} % done" if progress.target_bytes else ""
        yield Trouble(f"the CommitLog looks for the end of its log{share}", "wait: it serves when it has found it")
        return
    if log.refusals and not log.HasField("following"):
        reasons = ", ".join(log.refusals)
        action = "look into the CommitLog's log"
        if NOT_LEADER in log.refusals:
            reasons += ", this log does not lead"
            action = "`reput replicas` with the addresses of all logs tells which one leads"
        elif "STORE_REPLACED" in log.refusals:
            action = RIGHT_LOG
        elif any("FULL" in reason for reason in log.refusals):
            action = DISK_FREE
        yield Trouble(f"appends are refused: {reasons}", action)
    yield from _of_recovery(log)
    yield from _of_replicas(log)
    if log.store_time_ahead_ms > AHEAD_MS_MAX:
        ahead = duration_text(log.store_time_ahead_ms / 1000)
        yield Trouble(
            f"store times are {ahead} ahead of the CommitLog's clock", "see that its clock is right", is_note=True
        )
    if log.contradicting_queue_count:
        queues = many(log.contradicting_queue_count, "queue")
        yield Trouble(f"{queues} of the Indexer contradict the log", "`reput index rebuild`")


def _of_recovery(log: GetStatusResponse) -> Iterator[Trouble]:
    recovery = log.recovery
    if recovery.missing_bytes:
        missing = size_text(recovery.missing_bytes)
        yield Trouble(
            f"somebody removed {missing} of the log's oldest segments", "see docs/operations.md", is_note=True
        )
    if recovery.truncated_bytes:
        cut = f"the last start cut a torn tail of {size_text(recovery.truncated_bytes)} off the log"
        yield Trouble(cut, f"a copy is in {recovery.truncated_copy_path}", is_note=True)
    yield from _of_disks(log)


def _of_disks(log: GetStatusResponse) -> Iterator[Trouble]:
    """Yield the disks that get no new segments. While another disk has room it may wait until the morning."""
    has_room = any(not one.is_full and not one.is_read_only for one in log.log_directories)
    for one in log.log_directories:
        if one.is_read_only and len(log.log_directories) > 1:
            yield Trouble(f"{one.path} takes no new segments: it is read only", "see its disk", is_note=True)
        elif is_too_full(one):
            used = f"the disk of {one.path} is {one.disk_used_percent} % used"
            effect = "new segments go to another disk" if has_room else "appends are refused when it is full"
            yield Trouble(f"{used}: {effect}", DISK_FREE, is_note=has_room)


def is_too_full(directory: Any) -> bool:
    """Whether the disk of a directory of the log is too full for new segments."""
    return bool(directory.is_full and not directory.is_read_only)


def _of_replicas(log: GetStatusResponse) -> Iterator[Trouble]:
    if log.HasField("following"):
        following = log.following
        if following.state == FOLLOWING_STATE_OUT:
            yield Trouble(
                f"this log can't follow {following.leader_target}: {following.last_error}", "see docs/replication.md"
            )
        elif following.state != FOLLOWING_STATE_FOLLOWING and following.last_error:
            yield Trouble(
                f"no stream from {following.leader_target}: {following.last_error}", "see that the leader runs"
            )
    elif NOT_LEADER not in log.refusals:
        yield from _of_in_sync_set(log)
    if log.HasField("election") and log.election.last_error:
        yield Trouble(f"the coordinator can't be asked: {log.election.last_error}", "see that it runs")


def _of_in_sync_set(log: GetStatusResponse) -> Iterator[Trouble]:
    if 0 < log.live_in_sync_count < log.min_in_sync_count:
        what = "appends" if log.role == ROLE_SYNC_MASTER else "appends as REPLICATED"
        counts = f"{log.live_in_sync_count} of {log.min_in_sync_count} logs that must be in sync are connected"
        yield Trouble(f"{what} are refused: NOT_ENOUGH_REPLICAS, {counts}", "bring one back, see `reput replicas`")
    connected = {replica.replica_id for replica in log.replicas}
    for name in log.in_sync_replica_ids[1:]:
        if name not in connected:
            yield Trouble(
                f"replica {name} is of the in-sync set and not connected", "start it, or see `reput replicas`"
            )


def _of_index(states: States) -> Iterator[Trouble]:
    index = states.index
    if index is None:
        return
    error = f": {index.last_error}" if index.last_error else ""
    if index.state == index_pb.REPUT_STATE_STOPPED:
        yield Trouble(
            f"indexing stands still{error}", "`reput verify` tells what is wrong, `reput index rebuild` helps"
        )
    elif index.state == index_pb.REPUT_STATE_OTHER_LOG:
        yield Trouble(f"nothing is indexed or answered{error}", RIGHT_LOG)
    elif index.state == index_pb.REPUT_STATE_CONNECTING and "commitlog" not in states.away:
        action = "see that the CommitLog of its commitlog_target runs, and its token"
        yield Trouble(f"{_indexer(states)} can't reach its CommitLog{error}", action)
    elif index.is_log_away and "commitlog" not in states.away:
        silent = f"{_indexer(states)} has heard nothing of its CommitLog for {index.log_silent_ms // 1000} s{error}"
        yield Trouble(silent, "see that the CommitLog of its commitlog_target runs")
    elif not index.is_complete:
        yield Trouble(_rebuilding_text(index), "wait: queries are answered when it is done")
    for one in index.damaged_records:
        damaged = f"segment {one.segment} is damaged at byte {one.position}: {one.reason}"
        yield Trouble(damaged, "restore the segment from a copy; what lies before and behind it is served")
    if index.stepped_over_record_count:
        records = many(index.stepped_over_record_count, "record")
        reasons = sorted(
            {
                index_pb.SteppedOverReason.Name(one.reason).removeprefix("STEPPED_OVER_REASON_")
                for one in index.stepped_over
            }
        )
        what = f"{records} fit no queue ({', '.join(reasons)}); they are found by key"
        yield Trouble(what, "`reput status --json` names queues and places", is_note=True)


def _indexer(states: States) -> str:
    target = states.targets.get("indexer")
    return f"the Indexer at {target}" if target else "the Indexer"


def _rebuilding_text(index: index_pb.GetStatusResponse) -> str:
    total = index.complete_physical_offset - index.min_physical_offset
    done = index.indexed_physical_offset - index.min_physical_offset
    share = f": {max(0, min(99, 100 * done // total))} %" if total > 0 else ""
    return f"the indexes are built again{share}"


def _of_retention(states: States) -> Iterator[Trouble]:
    retention = states.retention
    if retention is None:
        return
    if retention.is_disk_full:
        yield Trouble("a disk is full, and appends are refused because of it", DISK_FREE)
    if retention.last_error:
        yield Trouble(f"retention failed: {retention.last_error}", "`reput janitor run --dry-run` tries it again")
    if retention.lost_segment_count:
        lost = many(retention.lost_segment_count, "segment")
        yield Trouble(f"{lost} went before they were indexed or replicated", "see docs/retention.md")
    if unknown := [one for one in retention.topics if one.error]:
        more = f"; and of {many(len(unknown) - 1, 'more topic')}" if len(unknown) > 1 else ""
        yield Trouble(f"{topic_text(unknown[0])}{more}", TOPIC_CURE)
    for note in retention.disk_notes:
        yield Trouble(note, DISK_FREE)
    if retention.clock_note:
        yield Trouble(retention.clock_note, "see docs/retention.md", is_note=True)


def topic_text(topic: retention_pb.TopicRetention) -> str:
    """Return that the expired messages of a topic are not known, with the reason and the effect."""
    effect = "all segments stay meanwhile" if topic.is_longer else "none of its messages expires meanwhile"
    return f"the expired messages of topic {topic.topic} are not known: {topic.error}; {effect}"


def _of_levels(states: States) -> Iterator[Trouble]:
    if blocked := [level for level in states.delay_levels if level.last_error]:
        verb = "stands" if len(blocked) == 1 else "stand"
        text = f"{many(len(blocked), 'delay level')} {verb} still: {blocked[0].last_error}"
        yield Trouble(text, "look into Delivery's log")
