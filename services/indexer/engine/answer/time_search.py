# SPDX-License-Identifier: Apache-2.0
"""Finds queue offsets by store time: units have no time, so a search reads a few records of the log.

Relies on the log's promise that store times never run backwards within a queue. A deleted record is treated as older
than every time. A search over n units reads O(log n) records: each round reads up to PROBE_COUNT of them at once and
continues in a part between two of them, so the number of round trips is smaller than with halving.
Rules: ConsumeQueue.getOffsetInQueueByTime of RocketMQ 5.1.1 and later, with exact results beyond the ends.
"""

import numpy as np

from services.indexer.engine.log.record_reader import store_times_ms
from services.indexer.engine.log.source import RecordSource
from services.indexer.engine.tables.queue import ConsumeQueue

PROBE_COUNT = 15
"""Records that a round reads, unless they are large."""

PROBE_SIZE_BYTES_MAX = 256 * 1024
"""Above this many bytes of records a round reads a single record."""


async def first_at_or_after(queue: ConsumeQueue, records: RecordSource, time_ms: int) -> int:
    """Return the queue offset of the first message with this store time or a later time, or else the queue's end."""
    low, high = queue.min_queue_offset, queue.max_queue_offset
    # Invariant: all messages below low are older, all messages from high on are not. Either end of the queue may
    # move while records are read.
    while (low := max(low, queue.min_queue_offset)) < (high := min(high, queue.max_queue_offset)):
        probes = np.unique(np.linspace(low, high - 1, min(PROBE_COUNT + 2, high - low), dtype=np.int64))
        places = [queue.place_at(probe) for probe in probes.tolist()]
        offsets = np.array([physical_offset for physical_offset, _ in places], np.int64)
        sizes = np.array([size for _, size in places], np.int32)
        if int(sizes.sum(dtype=np.int64)) > PROBE_SIZE_BYTES_MAX:
            middle = len(probes) // 2
            probes, offsets, sizes = probes[middle:][:1], offsets[middle:][:1], sizes[middle:][:1]
        for probe, found_ms in zip(probes.tolist(), await store_times_ms(records, offsets, sizes), strict=True):
            if found_ms is None or found_ms < time_ms:
                low = probe + 1
            else:
                high = probe
                break
    return high


async def last_at_or_before(queue: ConsumeQueue, records: RecordSource, time_ms: int) -> int:
    """Return the queue offset of the last message with this time or an earlier time, or else the queue's first."""
    after = await first_at_or_after(queue, records, time_ms + 1)
    return max(after - 1, queue.min_queue_offset)
