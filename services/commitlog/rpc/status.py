# SPDX-License-Identifier: Apache-2.0
"""The log's state as the answer of GetStatus, also while the log is being recovered."""

from typing import TYPE_CHECKING

from reput.commitlog.v1 import log_service_pb2 as pb

from libs.runtime.rpc.by_name import named
from libs.runtime.rpc.timestamps import timestamp
from libs.runtime.version import VERSION
from services.commitlog.engine.commit_log import CommitLog
from services.commitlog.engine.open_log import OpenLog
from services.commitlog.engine.statistics import statistics_of

if TYPE_CHECKING:
    from services.commitlog.engine.elect.member import ElectedMember

EARLY_METHODS = ("GetStatus",)
"""Methods that answer also while the log is being recovered."""

_LATER = (
    *("role", "replica_id", "segment_size_bytes", "start_time", "version", "state", "recovery_progress"),
    *("indexed_time", "recovery", "log_directories", "replicas", "following", "in_sync_replica_ids"),
    "election",
)
"""Fields of the status that are filled separately: fields known before the log is open, and fields with messages."""


class StatusServicer:
    """The servicer of GetStatus of reput.commitlog.v1.LogService."""

    def __init__(self, commit_log: CommitLog, member: "ElectedMember | None" = None) -> None:
        self._commit_log = commit_log
        self._member = member

    async def GetStatus(self, _request: pb.GetStatusRequest, _: object) -> pb.GetStatusResponse:
        """Return the state of the log."""
        status = status_of(self._commit_log)
        if self._member is not None:
            status.election.CopyFrom(_election(self._member))
        return status


def status_of(commit_log: CommitLog) -> pb.GetStatusResponse:
    """Return the log's state, complete after the log has opened, and as far as known before."""
    status = pb.GetStatusResponse(
        role=pb.Role.Value(f"ROLE_{commit_log.config.role_name.upper()}"),
        segment_size_bytes=commit_log.config.segment_size_bytes,
        start_time=timestamp(commit_log.started_at_ms),
        version=VERSION,
        replica_id=commit_log.config.replica_id,
        state=pb.LOG_STATE_SERVING if commit_log.is_open else pb.LOG_STATE_RECOVERING,
        recovery_progress=named(pb.RecoveryProgress, commit_log.meter),
    )
    if commit_log.is_open and commit_log.log is not None:
        status.MergeFrom(_open_status(commit_log.log))
    return status


def _election(member: "ElectedMember") -> pb.Election:
    election = pb.Election(decision=member.decision.reason, last_error=str(member.watch.last_error or ""))
    election.lease_left_ms = member.lease_left_ms
    if member.view is not None and (record := member.view.record) is not None:
        election.epoch, election.leader_target = record.epoch, record.leader_target
        election.leader_replica_id = record.leader.replica_id if record.leader else ""
        election.in_sync_replica_ids.extend(one.replica_id for one in record.in_sync)
        election.is_lease_held = bool(member.view.holder)
    return election


def _open_status(log: OpenLog) -> pb.GetStatusResponse:
    status = named(pb.GetStatusResponse, statistics_of(log), later=_LATER, refusals=log.gate.refusals())
    if log.checkpoint.reported_at_ms is not None:
        status.indexed_time.FromMilliseconds(log.checkpoint.reported_at_ms)
    status.recovery.CopyFrom(named(pb.RecoveryReport, log.recovery))
    status.replicas.extend(
        named(
            pb.Replica,
            replica,
            connected_time=timestamp(replica.connected_at_ms),
            heard_time=timestamp(replica.heard_at_ms),
            had_all_time=timestamp(replica.had_all_at_ms),
        )
        for replica in log.replicas.connected
    )
    if log.in_sync is not None:
        status.in_sync_replica_ids.extend(log.in_sync.replica_ids)
    if (follower := log.follower) is not None:
        heard = None if follower.heard_at_ms is None else timestamp(follower.heard_at_ms)
        state = pb.FollowingState.Value(f"FOLLOWING_STATE_{follower.state.name}")
        status.following.CopyFrom(
            named(pb.Following, follower, leader_target=follower.leader.target, state=state, heard_time=heard)
        )
    status.log_directories.extend(
        named(
            pb.LogDirectory,
            directory,
            path=str(directory.path),
            disk_total_bytes=directory.usage.total_bytes,
            disk_free_bytes=directory.usage.free_bytes,
            disk_used_percent=directory.usage.used_percent,
        )
        for directory in log.disk.log_directories()
    )
    return status
