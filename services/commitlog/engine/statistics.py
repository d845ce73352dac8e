# SPDX-License-Identifier: Apache-2.0
"""Counters and gauges of a log, for telemetry and status."""

from dataclasses import dataclass

from services.commitlog.engine.open_log import OpenLog


@dataclass(frozen=True, slots=True)
class CommitLogStatistics:
    """Zeros before the log is open."""

    appended_messages_total: int = 0
    appended_batches_total: int = 0
    repeated_batches_total: int = 0
    syncs_total: int = 0
    rolls_total: int = 0
    deleted_segments_total: int = 0
    dispatch_stops_by_damage_total: int = 0
    min_physical_offset: int = 0
    max_physical_offset: int = 0
    committed_physical_offset: int = 0
    flushed_physical_offset: int = 0
    confirmed_physical_offset: int = 0
    indexed_physical_offset: int = 0
    segment_count: int = 0
    topic_count: int = 0
    epoch: int = 0
    disk_total_bytes: int = 0
    disk_free_bytes: int = 0
    disk_used_percent: int = 0
    data_disk_free_bytes: int = 0
    evicted_segments_total: int = 0
    is_writable: int = 0
    raised_queues_total: int = 0
    contradicting_queues_total: int = 0
    store_time_ahead_ms: int = 0


def statistics_of(log: OpenLog) -> CommitLogStatistics:
    """A snapshot. Quick, and safe from any thread."""
    disk = log.disk.usage
    return CommitLogStatistics(
        appended_messages_total=log.pipeline.message_count,
        appended_batches_total=log.pipeline.batch_count,
        repeated_batches_total=log.pipeline.repeated_batch_count,
        syncs_total=log.flusher.work_count,
        rolls_total=log.tail.roll_count,
        deleted_segments_total=log.segments.deleted_count,
        dispatch_stops_by_damage_total=log.followers.damage_count,
        min_physical_offset=log.chain.min_physical_offset,
        max_physical_offset=log.marks.wrote.value,
        committed_physical_offset=log.marks.committed.value,
        flushed_physical_offset=log.marks.flushed.value,
        confirmed_physical_offset=log.marks.visible.value,
        indexed_physical_offset=log.progress.indexed_physical_offset,
        segment_count=len(log.chain.segments),
        topic_count=log.topics.topic_count,
        epoch=log.epochs.number,
        disk_total_bytes=disk.total_bytes,
        disk_free_bytes=disk.free_bytes,
        disk_used_percent=disk.used_percent,
        data_disk_free_bytes=log.disk.data_usage.free_bytes,
        evicted_segments_total=log.segments.evicted_count,
        is_writable=int(log.gate.is_open),
        raised_queues_total=log.queue_offsets.raised_count,
        contradicting_queues_total=log.queue_offsets.contradicting_count,
        store_time_ahead_ms=log.store_time.ahead_ms,
    )
