# SPDX-License-Identifier: Apache-2.0
"""Planning: from options to the partitions that the Indexer cuts. Runs on the driver, once per DataFrame.

Invariant: the end of every range is fixed here, so a task that runs twice reads the same rows.
Not handled: following the live end (a streaming source would).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from reput.indexer.v1 import queue_service_pb2, scan_service_pb2

from reput_spark import calls
from reput_spark.errors import DataLoss
from reput_spark.options import EARLIEST, LATEST

if TYPE_CHECKING:
    from google.protobuf.timestamp_pb2 import Timestamp

    from reput_spark.options import ReadOptions


def plan(options: ReadOptions) -> scan_service_pb2.PlanScanResponse:
    """Asks the Indexer for partitions. Raises DataLoss and CallFailed."""
    request = scan_service_pb2.PlanScanRequest(
        topics=options.topics,
        queue_ids=options.queue_ids,
        filter=scan_filter(options),
        ranges=ranges(options),
        partition_count_min=options.partition_count_min,
        partition_row_count_max=options.partition_row_count_max,
        partition_size_bytes_max=options.partition_size_bytes_max,
    )
    return calls.unary(options, calls.SCAN_SERVICE + "PlanScan", request, scan_service_pb2.PlanScanResponse)


def scan_filter(options: ReadOptions) -> scan_service_pb2.ScanFilter:
    """What passes, beyond ranges."""
    return scan_service_pb2.ScanFilter(
        tag_expression=options.tag_expression,
        start_time=timestamp(options.start_time_ms),
        end_time=timestamp(options.end_time_ms),
        keys=options.keys,
    )


def ranges(options: ReadOptions) -> list[scan_service_pb2.ScanRange]:
    """The queues that are cut at given offsets; others are read whole."""
    named = {
        (topic, queue_id)
        for offsets in (options.starting_offsets, options.ending_offsets)
        for topic, queues in offsets.items()
        for queue_id in queues
    }
    return [queue_range(options, topic, queue_id) for topic, queue_id in sorted(named)]


def queue_range(options: ReadOptions, topic: str, queue_id: int) -> scan_service_pb2.ScanRange:
    """One queue's range. Raises DataLoss for an offset that the queue does not have, if that matters."""
    request = queue_service_pb2.GetQueueRangeRequest(topic=topic, queue_id=queue_id)
    response = calls.unary(
        options, calls.QUEUE_SERVICE + "GetQueueRange", request, queue_service_pb2.GetQueueRangeResponse
    )
    first, end = response.queue.min_queue_offset, response.queue.max_queue_offset

    def resolve(option: str, value: int) -> int:
        if value in (EARLIEST, LATEST):
            return first if value == EARLIEST else end
        if not first <= value <= end and options.fail_on_data_loss:
            raise DataLoss(topic=topic, queue_id=queue_id, option=option, value=value, kept=(first, end))
        return min(max(value, first), end)

    start = resolve("startingOffsets", options.starting_offsets.get(topic, {}).get(queue_id, EARLIEST))
    stop = resolve("endingOffsets", options.ending_offsets.get(topic, {}).get(queue_id, LATEST))
    return scan_service_pb2.ScanRange(
        topic=topic, queue_id=queue_id, start_queue_offset=start, end_queue_offset=max(start, stop)
    )


def timestamp(time_ms: int | None) -> Timestamp | None:
    """Milliseconds since the epoch as protobuf's type."""
    from google.protobuf.timestamp_pb2 import Timestamp

    return None if time_ms is None else Timestamp(seconds=time_ms // 1000, nanos=time_ms % 1000 * 1_000_000)
