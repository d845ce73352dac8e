# SPDX-License-Identifier: Apache-2.0
"""Counters and gauges of a log, for telemetry and status. Each is defined only here."""

from collections.abc import Callable
from dataclasses import make_dataclass
from typing import TYPE_CHECKING

from services.commitlog.engine.open_log import OpenLog
from services.commitlog.engine.replicate.follower import FollowingState

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

_SOURCES: dict[str, Callable[[OpenLog], int]] = {
    "appended_messages_total": lambda log: log.pipeline.message_count,
    "appended_batches_total": lambda log: log.pipeline.batch_count,
    "repeated_batches_total": lambda log: log.pipeline.repeated_batch_count,
    "refused_new_queues_total": lambda log: log.pipeline.new_queues.refused_count,
    "syncs_total": lambda log: log.flusher.work_count,
    "rolls_total": lambda log: log.tail.roll_count,
    "deleted_segments_total": lambda log: log.segments.deleted_count,
    "dispatch_stops_by_damage_total": lambda log: log.followers.damage_count,
    "min_physical_offset": lambda log: log.chain.min_physical_offset,
    "max_physical_offset": lambda log: log.marks.wrote.value,
    "committed_physical_offset": lambda log: log.marks.committed.value,
    "flushed_physical_offset": lambda log: log.marks.flushed.value,
    "confirmed_physical_offset": lambda log: log.marks.visible.value,
    "indexed_physical_offset": lambda log: log.checkpoint.indexed_physical_offset,
    "segment_count": lambda log: len(log.chain.segments),
    "topic_count": lambda log: log.topics.user_topic_count,
    "epoch": lambda log: log.epochs.number,
    "replica_count": lambda log: len(log.replicas.connected),
    "replica_lag_bytes": lambda log: log.replicas.lag_bytes,
    "leader_lag_bytes": lambda log: 0 if log.follower is None else log.follower.lag_bytes,
    "replicated_physical_offset": lambda log: log.replicated_physical_offset,
    "in_sync_count": lambda log: 0 if log.in_sync is None else log.in_sync.set.size,
    "live_in_sync_count": lambda log: 0 if log.in_sync is None else log.in_sync.set.live_count,
    "min_in_sync_count": lambda log: 0 if log.in_sync is None else log.in_sync.needed_count,
    "in_sync_lag_ms": lambda log: 0 if log.in_sync is None else log.in_sync.lag_ms,
    "not_enough_replicas_total": lambda log: log.pipeline.refused_durability_count,
    "in_sync_changes_total": lambda log: 0 if log.in_sync is None else log.in_sync.change_count,
    "is_following": lambda log: int(log.follower is not None and log.follower.state is FollowingState.FOLLOWING),
    "is_leader": lambda log: int(log.follower is None),
    "is_out": lambda log: int(log.follower is not None and log.follower.state is FollowingState.OUT),
    "disk_total_bytes": lambda log: log.disk.usage.total_bytes,
    "disk_free_bytes": lambda log: log.disk.usage.free_bytes,
    "disk_used_percent": lambda log: log.disk.usage.used_percent,
    "data_disk_free_bytes": lambda log: log.disk.data_usage.free_bytes,
    "evicted_segments_total": lambda log: log.segments.evicted_count,
    "is_writable": lambda log: int(log.gate.is_open),
    "raised_queues_total": lambda log: log.queue_offsets.raised_count,
    "contradicting_queues_total": lambda log: log.queue_offsets.contradicting_count,
    "store_time_ahead_ms": lambda log: log.store_time.ahead_ms,
}

_Statistics = make_dataclass("_Statistics", [(name, int, 0) for name in _SOURCES], frozen=True, slots=True)


def statistics_of(log: OpenLog | None) -> "DataclassInstance":
    """Return a snapshot. Its values are zero before the log is open. Fast, and safe from any thread."""
    values = {} if log is None else {name: source(log) for name, source in _SOURCES.items()}
    found: DataclassInstance = _Statistics(**values)
    return found
