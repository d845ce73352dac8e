# SPDX-License-Identifier: Apache-2.0
"""The log's state as GetStatus tells it, also while the log is being recovered."""

import functools
from importlib import metadata

from reput.commitlog.v1 import log_service_pb2 as pb

from libs.runtime.rpc.handlers import Context
from services.commitlog.engine.commit_log import CommitLog
from services.commitlog.engine.open_log import OpenLog
from services.commitlog.engine.statistics import statistics_of
from services.commitlog.rpc.timestamps import timestamp

EARLY_METHODS = ("GetStatus",)
"""Methods that answer also while the log is being recovered."""

DISTRIBUTION = "reput-server"

_ROLES = {"async_master": pb.ROLE_ASYNC_MASTER, "sync_master": pb.ROLE_SYNC_MASTER}


class StatusServicer:
    """Serves GetStatus of reput.commitlog.v1.LogService."""

    def __init__(self, commit_log: CommitLog) -> None:
        self._commit_log = commit_log

    async def GetStatus(self, request: pb.GetStatusRequest, context: Context) -> pb.GetStatusResponse:
        """Tell the state of the log."""
        del request, context
        return status_of(self._commit_log)


def status_of(commit_log: CommitLog) -> pb.GetStatusResponse:
    """All of it once the log is open; before that, what is known."""
    progress = commit_log.recovery_progress
    status = pb.GetStatusResponse(
        role=_ROLES[commit_log.config.role],
        segment_size_bytes=commit_log.config.segment_size_bytes,
        start_time=timestamp(commit_log.started_at_ms),
        version=_version(),
        state=pb.LOG_STATE_SERVING if commit_log.is_open else pb.LOG_STATE_RECOVERING,
        recovery_progress=pb.RecoveryProgress(
            scanned_bytes=progress.scanned_bytes,
            target_bytes=progress.target_bytes,
            segment_number=progress.segment_number,
            segment_count=progress.segment_count,
        ),
    )
    if commit_log.is_open and commit_log.log is not None:
        _add(status, commit_log.log)
    return status


def _add(status: pb.GetStatusResponse, log: OpenLog) -> None:
    statistics, reported_at_ms, recovery = statistics_of(log), log.progress.reported_at_ms, log.recovery
    status.epoch = statistics.epoch
    status.min_physical_offset = statistics.min_physical_offset
    status.max_physical_offset = statistics.max_physical_offset
    status.flushed_physical_offset = statistics.flushed_physical_offset
    status.confirmed_physical_offset = statistics.confirmed_physical_offset
    status.indexed_physical_offset = statistics.indexed_physical_offset
    if reported_at_ms is not None:
        status.indexed_time.CopyFrom(timestamp(reported_at_ms))
    status.is_writable = log.gate.is_open
    status.refusals.extend(log.gate.refusals())
    status.segment_count = statistics.segment_count
    status.topic_count = statistics.topic_count
    status.disk_total_bytes = statistics.disk_total_bytes
    status.disk_free_bytes = statistics.disk_free_bytes
    status.disk_used_percent = statistics.disk_used_percent
    status.data_disk_free_bytes = statistics.data_disk_free_bytes
    status.log_directories.extend(
        pb.LogDirectory(
            path=str(one.path),
            segment_count=one.segment_count,
            is_read_only=one.is_read_only,
            is_full=one.is_full,
            disk_total_bytes=one.usage.total_bytes,
            disk_free_bytes=one.usage.free_bytes,
            disk_used_percent=one.usage.used_percent,
        )
        for one in log.disk.log_directories()
    )
    status.appended_message_count = statistics.appended_messages_total
    status.sync_count = statistics.syncs_total
    status.raised_queue_count = statistics.raised_queues_total
    status.contradicting_queue_count = statistics.contradicting_queues_total
    status.store_time_ahead_ms = statistics.store_time_ahead_ms
    status.recovery.CopyFrom(
        pb.RecoveryReport(
            was_clean_stop=recovery.was_clean_stop,
            scan_end=recovery.scan_end.value,
            scan_start_physical_offset=recovery.scan_start_physical_offset,
            scanned_record_count=recovery.scanned_record_count,
            truncated_bytes=recovery.truncated_bytes,
            truncated_copy_path=recovery.truncated_copy_path,
            duration_ms=recovery.duration_ms,
            missing_bytes=recovery.missing_bytes,
        )
    )


@functools.cache
def _version() -> str:
    try:
        return metadata.version(DISTRIBUTION)
    except metadata.PackageNotFoundError:
        return ""
