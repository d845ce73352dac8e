# SPDX-License-Identifier: Apache-2.0
"""Counters and gauges of a log, for telemetry and status. Each is defined only here."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from libs.machine.durations import Durations
from services.commitlog.engine.open_log import OpenLog
from services.commitlog.engine.replicate.follower import FollowingState


@dataclass(frozen=True, slots=True)
class LogStatistics:
    """A snapshot of a log. All values are 0 before the log is open."""

    appended_messages_total: int = 0
    """Messages that were appended since the start."""
    appended_batches_total: int = 0
    """Batches that were appended since the start."""
    repeated_batches_total: int = 0
    """Batches that a writer sent again and that were already stored."""
    refused_new_queues_total: int = 0
    """Appends that were refused because too many new queues waited for the Indexer."""
    syncs_total: int = 0
    """Syncs of the log to its disk."""
    rolls_total: int = 0
    """Segments that were begun."""
    deleted_segments_total: int = 0
    """Segments that were deleted."""
    dispatch_stops_by_damage_total: int = 0
    """Dispatch streams that ended at a damaged record."""
    min_physical_offset: int = 0
    """Offset of the first byte of the log."""
    max_physical_offset: int = 0
    """Offset behind the last byte that was written."""
    committed_physical_offset: int = 0
    """Offset behind the last byte that was committed to the segments."""
    flushed_physical_offset: int = 0
    """Offset behind the last byte that is on the disk."""
    confirmed_physical_offset: int = 0
    """Offset behind the last byte that readers may see."""
    indexed_physical_offset: int = 0
    """Offset behind the last byte that the Indexer has on its disk."""
    segment_count: int = 0
    """Segments of the log."""
    topic_count: int = 0
    """Topics of users."""
    epoch: int = 0
    """Epoch of the log."""
    replica_count: int = 0
    """Followers that are connected to this leader."""
    replica_lag_bytes: int = 0
    """Bytes that the slowest connected follower has not yet."""
    leader_lag_bytes: int = 0
    """Bytes that this follower has not yet; 0 at a leader."""
    replicated_physical_offset: int = 0
    """Offset behind the last byte that all in-sync logs have."""
    in_sync_count: int = field(default=0, metadata={"metric": "in_sync_replicas"})
    """Logs in the in-sync set, with the leader; 0 at a follower."""
    live_in_sync_count: int = field(default=0, metadata={"metric": "live_in_sync_replicas"})
    """Logs in the in-sync set that answer, with the leader; 0 at a follower."""
    min_in_sync_count: int = field(default=0, metadata={"metric": "min_in_sync_replicas"})
    """Logs that must be in sync for an append with REPLICATED; 0 at a follower."""
    in_sync_lag_ms: int = 0
    """Time since the slowest log of the in-sync set had all."""
    not_enough_replicas_total: int = 0
    """Appends that were refused with NOT_ENOUGH_REPLICAS."""
    in_sync_changes_total: int = 0
    """Changes of the in-sync set."""
    is_following: int = 0
    """1 while this log follows a leader."""
    is_leader: int = 0
    """1 while this log takes appends as a leader."""
    is_out: int = 0
    """1 while this follower stopped because its history is not the leader's."""
    disk_total_bytes: int = 0
    """Size of the fullest disk of the segments."""
    disk_free_bytes: int = 0
    """Free bytes of the fullest disk of the segments."""
    disk_used_percent: int = 0
    """Used share of the fullest disk of the segments."""
    data_disk_total_bytes: int = 0
    """Size of the disk of the data directory."""
    data_disk_free_bytes: int = 0
    """Free bytes of the disk of the data directory."""
    data_disk_used_percent: int = 0
    """Used share of the disk of the data directory."""
    evicted_segments_total: int = 0
    """Segments whose pages were given back to the system."""
    is_writable: int = 0
    """1 while appends are accepted."""
    raised_queues_total: int = 0
    """Queues whose next offset was raised because the Indexer knew a higher one."""
    contradicting_queues_total: int = 0
    """Queues whose next offset is below the Indexer's."""
    store_time_ahead_ms: int = 0
    """By how much the time of the last record is ahead of the clock."""


@dataclass(frozen=True, slots=True)
class FollowerStatistics:
    """A connected follower of this log."""

    lag_bytes: int = 0
    """Bytes that the follower has not yet."""
    unsynced_bytes: int = 0
    """Bytes that the follower has not on its disk yet."""
    is_in_sync: int = 0
    """1 while the follower is in the in-sync set."""


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
    "data_disk_total_bytes": lambda log: log.disk.data_usage.total_bytes,
    "data_disk_free_bytes": lambda log: log.disk.data_usage.free_bytes,
    "data_disk_used_percent": lambda log: log.disk.data_usage.used_percent,
    "evicted_segments_total": lambda log: log.segments.evicted_count,
    "is_writable": lambda log: int(log.gate.is_open),
    "raised_queues_total": lambda log: log.queue_offsets.raised_count,
    "contradicting_queues_total": lambda log: log.queue_offsets.contradicting_count,
    "store_time_ahead_ms": lambda log: log.store_time.ahead_ms,
}


def statistics_of(log: OpenLog | None) -> LogStatistics:
    """Return a snapshot. Its values are zero before the log is open. Fast, and safe from any thread."""
    return LogStatistics() if log is None else LogStatistics(**{name: read(log) for name, read in _SOURCES.items()})


def followers_of(log: OpenLog | None) -> dict[tuple[str, ...], FollowerStatistics]:
    """Return the connected followers by replica id."""
    if log is None:
        return {}
    end = log.marks.committed.value
    return {
        (replica.replica_id,): FollowerStatistics(
            max(end - replica.received_physical_offset, 0),
            max(end - replica.flushed_physical_offset, 0),
            int(replica.is_in_sync),
        )
        for replica in log.replicas.connected
    }


def acknowledgements_of(log: OpenLog | None) -> Mapping[tuple[str, ...], Durations]:
    """Return the times from the write of a batch to its acknowledgement, by durability."""
    return {} if log is None else log.acknowledgements.durations


def syncs_of(log: OpenLog | None) -> Mapping[tuple[str, ...], Durations]:
    """Return the durations of the syncs to the disk."""
    durations: dict[tuple[str, ...], Durations] = {}
    if log is not None:
        durations[()] = log.flusher.durations
    return durations
