# SPDX-License-Identifier: Apache-2.0
"""LogScan: walks the log forward, checks each record, and says how the log ends.

Invariants: a scan changes no byte of the log; it fills the queue counters and the store times of the segments that it
walks. Blocks for as long as it takes; runs before anybody else knows of the chain, in a worker thread.
The end has one of three names. CLEAN: zeros follow, nothing is lost. TORN_TAIL: rubbish follows that was never whole,
as a process leaves it that died while it wrote, or writes are missing, as a power cut leaves it. DAMAGED: records are
changed in the middle, because whole records follow, or the place was durable once; no program may decide to drop them.
Rules: docs/formats/commit_log.md section 9; RocketMQ's counterpart is CommitLog.recoverAbnormally, which truncates in
all three cases.
"""

import enum
import logging
from dataclasses import dataclass

import numpy as np

from libs.formats.offsets import segment_base
from libs.kernel import scan_cy
from libs.kernel.topic_table import QUEUE_ID_MAX, TopicTable
from libs.store.segment import Segment
from libs.store.segment_chain import SegmentChain
from services.commitlog.engine import tail_search

SCAN_RECORD_COUNT_MAX = 16_384
SCAN_KEY_COUNT_MAX = 4 * SCAN_RECORD_COUNT_MAX

_log = logging.getLogger(__name__)


class ScanEndKind(enum.Enum):
    """How a scan ended, as the recovery report says it."""

    CLEAN = "clean end"
    TORN_TAIL = "torn tail"
    DAMAGED = "damaged middle"


STATUS_REASONS = {
    scan_cy.S_TRUNCATED: "a record runs past the end of the segment",
    scan_cy.S_BAD_MAGIC: "no record starts here",
    scan_cy.S_BAD_LENGTH: "the lengths of a record contradict each other",
    scan_cy.S_BAD_CRC: "the checksum of a record is wrong",
    scan_cy.S_BAD_OFFSET: "a record belongs to another place",
}


@dataclass(frozen=True, slots=True)
class ScanEnd:
    """Where the whole records end, and why. `reason` is for people."""

    kind: ScanEndKind
    physical_offset: int
    reason: str


@dataclass(frozen=True, slots=True)
class KnownDurable:
    """What was on disk for certain before the start: bytes below an offset, records up to a store time (0: unknown).

    With `is_end` the offset is also where the log ended, because the stop before was clean.
    """

    physical_offset: int = 0
    store_time_ms: int = 0
    is_end: bool = False


class LogScan:
    """One walk. `last_store_time_ms` begins with what is known of the records before the start."""

    def __init__(
        self,
        chain: SegmentChain,
        table: TopicTable,
        *,
        check_crc: bool,
        clock_step_ms_max: int,
        last_store_time_ms: int,
    ) -> None:
        self.record_count = 0
        self.last_store_time_ms = last_store_time_ms
        self._chain = chain
        self._table = table
        self._check_crc = check_crc
        self._clock_step_ms_max = clock_step_ms_max
        self._columns = scan_cy.ScanColumns(SCAN_RECORD_COUNT_MAX, SCAN_KEY_COUNT_MAX)

    def run(self, start_physical_offset: int, durable: KnownDurable) -> ScanEnd:
        """Walk from the first byte of a segment to the end of the log."""
        size = self._chain.segment_size_bytes
        assert start_physical_offset == segment_base(start_physical_offset, size)
        segments = [s for s in self._chain.segments if s.base_physical_offset >= start_physical_offset]
        for index, segment in enumerate(segments):
            _log.info("scanning segment %s, %d of %d", segment.path.name, index + 1, len(segments))
            position, reason = self._walk(segment)
            if reason:
                return self._judge(segments[index:], position, reason, durable)
        end = self._chain.max_physical_offset
        return ScanEnd(ScanEndKind.CLEAN, end, "the last segment is closed")

    def _walk(self, segment: Segment) -> tuple[int, str]:
        """Scan one segment. Position and reason of the first thing that is no record; no reason if it is closed."""
        position, buffer, columns = 0, segment.buffer, self._columns
        while True:
            status = scan_cy.scan(
                buffer, position, segment.size_bytes, segment.base_physical_offset, self._check_crc, columns
            )
            stale_index = self._first_stale()
            if stale_index is not None:
                self._absorb(segment, stale_index)
                return int(columns.positions[stale_index]), "a record is older than the one before it"
            self._absorb(segment, columns.count)
            position = columns.end_position
            if status in (scan_cy.S_BLANK, scan_cy.S_END):
                return position, ""
            if status != scan_cy.S_FULL:
                return columns.error_position, STATUS_REASONS[status]

    def _first_stale(self) -> int | None:
        """Index of the first record whose store time runs backwards further than a clock may step."""
        count = self._columns.count
        times = np.frombuffer(self._columns.store_times_ms, dtype=np.int64, count=count)
        newest = np.maximum.accumulate(np.concatenate(([self.last_store_time_ms], times)))[:-1]
        stale = np.flatnonzero(times < newest - self._clock_step_ms_max)
        return int(stale[0]) if stale.size else None

    def _absorb(self, segment: Segment, count: int) -> None:
        """Take over counters and times of the first records of the columns."""
        if count == 0:
            return
        columns = self._columns
        times = np.frombuffer(columns.store_times_ms, dtype=np.int64, count=count)
        if columns.positions[0] == 0:
            segment.first_store_time_ms = int(times[0])
        self.last_store_time_ms = max(self.last_store_time_ms, int(times.max()))
        segment.last_store_time_ms = self.last_store_time_ms
        self.record_count += count
        queue_indexes = np.frombuffer(columns.queue_indexes, dtype=np.int32, count=count)
        queue_offsets = np.frombuffer(columns.queue_offsets, dtype=np.int64, count=count)
        counted = queue_indexes >= 0
        next_offsets = np.zeros(columns.queue_count, dtype=np.int64)
        np.maximum.at(next_offsets, queue_indexes[counted], queue_offsets[counted] + 1)
        for (topic, queue_id), next_offset in zip(columns.queues(), next_offsets.tolist(), strict=True):
            if 0 <= queue_id <= QUEUE_ID_MAX and next_offset > self._table.next_queue_offset(topic, queue_id):
                self._table.set_next_queue_offset(topic, queue_id, next_offset)

    def _judge(self, segments: list[Segment], position: int, reason: str, durable: KnownDurable) -> ScanEnd:
        """Tell which of the three ends this is. The scan stopped at `position` of the first of the segments."""
        first = segments[0]
        end = first.base_physical_offset + position
        was_newer_durable = self.record_count > 0 and self.last_store_time_ms < durable.store_time_ms
        if end < durable.physical_offset or was_newer_durable:
            return ScanEnd(ScanEndKind.DAMAGED, end, f"{reason}, although what was there was on disk once")
        if durable.is_end and end == durable.physical_offset:
            return ScanEnd(ScanEndKind.CLEAN, end, reason)
        has_content = False
        for segment in segments:
            start = position if segment is first else 0
            content_end = tail_search.content_end(segment, start)
            if content_end == start:
                continue
            has_content = True
            found = tail_search.find_record(
                segment.buffer,
                start,
                content_end,
                base_physical_offset=segment.base_physical_offset,
                store_time_ms_min=self.last_store_time_ms - self._clock_step_ms_max,
            )
            if found is not None and not tail_search.has_lost_sector(
                first.buffer, position, found if segment is first else first.size_bytes
            ):
                return ScanEnd(
                    ScanEndKind.DAMAGED,
                    end,
                    f"{reason}, but a whole record follows at byte {found} of {segment.path.name}",
                )
        return ScanEnd(ScanEndKind.TORN_TAIL if has_content else ScanEndKind.CLEAN, end, reason)
