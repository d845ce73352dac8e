# SPDX-License-Identifier: Apache-2.0
"""Planning: turns options into the partitions that the Indexer cuts. Runs on the driver, for each read.

Invariant: the end of every range is fixed here, so a task that runs twice reads the same rows. No partition has a queue
or an entry that the options do not select.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from reput.indexer.v1 import index_service_pb2, scan_service_pb2
from reput.indexer.v1.scan_service_pb2 import ScanFilter, ScanPartition, ScanRange
from reput_client.core.types import to_timestamp
from reput_client.frames import plan as client_plan

from reput_spark import calls
from reput_spark.read import positions
from reput_spark.read.options import LATEST

if TYPE_CHECKING:
    from reput_spark.read.options import ReadOptions
    from reput_spark.read.positions import Queue


def plan(options: ReadOptions) -> list[ScanPartition]:
    """Return the partitions of a batch read. Raises DataLoss, NoMessageAtTime and CallFailed."""
    calls.check_reach(options, index_service_pb2.GetStatusRequest())
    if options.topics:
        return _planned(options, options.topics, named_ranges(options))
    kept = positions.bounds(options)
    return plan_ranges(options, {queue: _asked(options, queue, ends) for queue, ends in kept.items()})


def plan_ranges(options: ReadOptions, cut: Mapping[Queue, tuple[int, int]]) -> list[ScanPartition]:
    """Return partitions of exactly these entries: start and end, exclusive, by queue. Raises CallFailed."""
    ranges = [_range(queue, *cut[queue]) for queue in sorted(cut) if cut[queue][0] < cut[queue][1]]
    found = _planned(options, sorted({asked.topic for asked in ranges}), ranges)
    allowed = {(asked.topic, asked.queue_id) for asked in ranges}
    return [kept for partition in found if (kept := _only(partition, allowed)) is not None]


def check_topics(options: ReadOptions, topics: Sequence[str]) -> None:
    """Raise CallFailed, with TOPIC_NOT_FOUND, for a topic that does not exist."""
    _planned(options, topics, [])


def scan_filter(options: ReadOptions) -> ScanFilter:
    """Return the filter of messages, apart from ranges."""
    is_position = options.starts_latest  # of a stream: all entries from its start on pass
    return ScanFilter(
        tag_expression=options.tag_expression,
        where=options.where,
        start_time=None if is_position else to_timestamp(options.start_time_ms),
        end_time=to_timestamp(options.end_time_ms),
        keys=options.keys,
    )


def named_ranges(options: ReadOptions) -> list[ScanRange]:
    """Return the ranges of the queues that are cut at given offsets or times. Other queues are read whole."""
    named = {
        (topic, queue_id)
        for found in (
            options.starting_offsets,
            options.ending_offsets,
            options.starting_times_ms,
            options.ending_times_ms,
        )
        for topic, queues in found.items()
        for queue_id in queues
    }
    kept = positions.bounds(options) if named else {}
    return [
        _range(queue, *_asked(options, queue, kept.get(queue, (0, 0))))
        for queue in sorted(named)
        if positions.is_chosen(options, queue)
    ]


def _asked(options: ReadOptions, queue: Queue, kept: tuple[int, int]) -> tuple[int, int]:
    """Return the start and the end, exclusive, that the options select in a queue."""
    topic, queue_id = queue
    start = positions.start(options, queue, kept)
    time_ms = options.ending_times_ms.get(topic, {}).get(queue_id)
    if time_ms is not None:
        return start, positions.at_time(options, queue, time_ms)
    value = options.ending_offsets.get(topic, {}).get(queue_id, LATEST)
    return start, positions.resolved(options, "endingOffsets", queue, value, kept)


def _range(queue: Queue, start: int, end: int) -> ScanRange:
    return ScanRange(topic=queue[0], queue_id=queue[1], start_queue_offset=start, end_queue_offset=max(start, end))


def _planned(options: ReadOptions, topics: Sequence[str], ranges: list[ScanRange]) -> list[ScanPartition]:
    request = scan_service_pb2.PlanScanRequest(
        topics=topics,
        queue_ids=options.queue_ids if options.topics else sorted({asked.queue_id for asked in ranges}),
        filter=scan_filter(options),
        ranges=ranges,
        partition_count_min=options.partition_count_min,
        partition_row_count_max=options.partition_row_count_max,
        partition_size_bytes_max=options.partition_size_bytes_max,
    )
    with calls.told():
        return client_plan.plan(calls.servers(options), request)


def _only(partition: ScanPartition, allowed: set[Queue]) -> ScanPartition | None:
    """Return a partition without new queues that the options do not select, None if no queue is left."""
    ranges = [planned for planned in partition.ranges if (planned.topic, planned.queue_id) in allowed]
    if len(ranges) == len(partition.ranges):
        return partition
    if not ranges:  # without ranges a partition of keys would mean the whole topic
        return None
    kept = ScanPartition()
    kept.CopyFrom(partition)
    del kept.ranges[:]
    kept.ranges.extend(ranges)
    return kept
