# SPDX-License-Identifier: Apache-2.0
"""The kernel's two loops, append and scan, on buffers in memory, beside the cost of copying the same bytes."""

import itertools
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from isal import isal_zlib
from reput.common.v1 import message_pb2

from bench import batches
from bench.peers.peer import Durability
from bench.results import Figures
from libs.formats import limits
from libs.formats.records.host import Host
from libs.kernel import layout
from libs.kernel.append import append_cy
from libs.kernel.append.append_columns import AppendColumns, AppendLimits
from libs.kernel.append.topic_table import TopicTable
from libs.kernel.scan import scan_cy
from libs.kernel.scan.scan_columns import ScanColumns

SEGMENT_SIZE_BYTES = 64 << 20
REQUEST_SIZE_BYTES = 1 << 20
SECONDS_MIN = 0.3
STORE_TIME_MS = 1_700_000_000_000
BORN_HOST = Host.parse("127.0.0.1:1000").to_bytes()
STORE_HOST = Host.parse("127.0.0.1:1001").to_bytes()
LIMITS = AppendLimits(
    body_size_bytes_max=limits.BODY_SIZE_BYTES_MAX,
    record_size_bytes_max=limits.BODY_SIZE_BYTES_MAX + limits.RECORD_SIZE_SLACK_BYTES,
    message_count_max=limits.BATCH_MESSAGE_COUNT_MAX,
    crc_property=True,
)


def kernel(body_size_bytes: int) -> Callable[[Path, Durability, float], Figures]:
    """Append requests until a segment is full, again and again, and then scan it."""

    def measure(folder: Path, mode: Durability, seconds: float) -> Figures:
        del folder, mode, seconds  # in memory, and as long as it takes to be steady
        requests = [
            batches.build(
                body_size_bytes=body_size_bytes,
                batch_size_bytes=REQUEST_SIZE_BYTES,
                durability=message_pb2.DURABILITY_MEMORY,
                variant=variant,
            )
            for variant in range(batches.VARIANT_COUNT)
        ]
        segment = bytearray(SEGMENT_SIZE_BYTES)
        table = TopicTable()
        table.put_topic(batches.TOPIC.encode(), write_queue_count=batches.QUEUE_COUNT, is_writable=True)
        table.put_topic(b"SCHEDULE_TOPIC_XXXX", write_queue_count=18, is_writable=False)
        filled = list(_append(segment, requests, table))
        end, message_count = filled[-1][0], sum(count for _, count in filled)
        append_s = best_s(lambda: list(_append(segment, requests, table)))
        columns = ScanColumns(message_count, 4 * message_count)
        assert scan_cy.scan(segment, 0, end, 0, True, columns) in (layout.S_BAD_MAGIC, layout.S_END)
        assert columns.count == message_count
        scan_s = best_s(lambda: scan_cy.scan(segment, 0, end, 0, True, columns))
        copy_s = best_s(lambda: _copy(segment, requests))
        return {
            "append_ns_per_message": append_s / message_count * 1e9,
            "append_gigabytes_per_s": end / append_s / 1e9,
            "scan_ns_per_message": scan_s / message_count * 1e9,
            "scan_gigabytes_per_s": end / scan_s / 1e9,
            "copy_gigabytes_per_s": _copied_bytes(requests) / copy_s / 1e9,
            "copy_with_crc_gigabytes_per_s": copy_with_crc_gigabytes_per_s(),
        }

    return measure


def copy_with_crc_gigabytes_per_s() -> float:
    """Copy buffers of 1 MiB to ever new places of a large buffer, and compute the checksum of each."""
    source, target = bytes(REQUEST_SIZE_BYTES), memoryview(bytearray(SEGMENT_SIZE_BYTES))

    def copy() -> None:
        for position in range(0, SEGMENT_SIZE_BYTES, REQUEST_SIZE_BYTES):
            target[position : position + REQUEST_SIZE_BYTES] = source
            isal_zlib.crc32(target[position : position + REQUEST_SIZE_BYTES])

    return SEGMENT_SIZE_BYTES / best_s(copy) / 1e9


def best_s(act: Callable[[], object]) -> float:
    """Return the CPU seconds of a call, the least of the calls within a while."""
    times_s = []
    until_s = time.perf_counter() + SECONDS_MIN
    while time.perf_counter() < until_s:
        start_s = time.thread_time()
        act()
        times_s.append(time.thread_time() - start_s)
    return min(times_s)


def _append(segment: bytearray, requests: list[batches.Batch], table: TopicTable) -> Iterator[tuple[int, int]]:
    """Fill the segment. Yields the position and the count after each request."""
    columns = AppendColumns(limits.BATCH_MESSAGE_COUNT_MAX)
    position = 0
    for request in itertools.cycle(requests):
        code = append_cy.append(
            request.data, segment, position, 0, STORE_TIME_MS, BORN_HOST, STORE_HOST, table, LIMITS, columns
        )
        if code == layout.E_FULL:
            return
        assert code > 0
        position = code
        yield position, columns.count


def _copy(segment: bytearray, requests: list[batches.Batch]) -> None:
    view, position = memoryview(segment), 0
    for request in itertools.islice(itertools.cycle(requests), SEGMENT_SIZE_BYTES // len(requests[0].data)):
        view[position : position + len(request.data)] = request.data
        position += len(request.data)


def _copied_bytes(requests: list[batches.Batch]) -> int:
    return SEGMENT_SIZE_BYTES // len(requests[0].data) * len(requests[0].data)
