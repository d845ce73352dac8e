# SPDX-License-Identifier: Apache-2.0
"""LogScan: walks over the log at a start (libs/log/walk.py), for its counters, writers, times and end.

Invariants: a scan changes no byte of the log. It fills the queue counters, the table of the writers and the store times
of the scanned segments. An incomplete last batch of a writer is ignored: the log ends before it.
Blocks for the whole scan; runs before other code knows of the chain, in a worker thread.
Rules: docs/formats/commit_log.md section 9.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

from libs.formats.state.queue_snapshot import WriterBatch
from libs.formats.store_layout import segment_base
from libs.kernel.scan import scan_cy
from libs.kernel.scan.scan_columns import ScanColumns
from libs.log.end import KnownDurable, ScanEnd, ScanEndKind
from libs.log.walk import LogWalk
from libs.segments.chain import SegmentChain
from libs.segments.segment import Segment
from services.commitlog.config import CommitLogConfig
from services.commitlog.engine.start.meter import RecoveryMeter
from services.commitlog.engine.write.state import LogState

SCAN_RECORD_COUNT_MAX = 16_384
SCAN_KEY_COUNT_MAX = 4 * SCAN_RECORD_COUNT_MAX


@dataclass(slots=True, eq=False)
class LogScan:
    """A scan of the log. `_state` covers the records before its start. `_durable` describes bytes that must exist."""

    _chain: SegmentChain
    _state: LogState
    _durable: KnownDurable
    _meter: RecoveryMeter
    _config: CommitLogConfig
    record_count: int = 0
    _columns: ScanColumns = field(default_factory=lambda: ScanColumns(SCAN_RECORD_COUNT_MAX, SCAN_KEY_COUNT_MAX))

    def run(self, start_physical_offset: int) -> ScanEnd:
        """Walk from the first byte of a segment to the end of the log. Raises SegmentUnreadable."""
        end = self._walk_all(start_physical_offset)
        batch = self._state.writers.last
        if end.kind is ScanEndKind.DAMAGED or batch is None or batch.end_physical_offset <= end.physical_offset:
            return end
        if batch.start_physical_offset < self._durable.physical_offset:
            reason = f"the batch at {batch.start_physical_offset} is not whole, although it was on disk once"
            return ScanEnd(ScanEndKind.DAMAGED, end.physical_offset, reason)
        self._leave_out(batch, end.physical_offset)
        return ScanEnd(ScanEndKind.TORN_TAIL, batch.start_physical_offset, "the last batch of a writer is not whole")

    def _walk_all(self, start_physical_offset: int) -> ScanEnd:
        size = self._chain.segment_size_bytes
        assert start_physical_offset == segment_base(start_physical_offset, size)
        segments = [s for s in self._chain.segments if s.base_physical_offset >= start_physical_offset]
        segment_count, target_bytes = _with_data(segments)
        self._meter.begin(segment_count=segment_count, target_bytes=target_bytes)
        walk = LogWalk(
            segments,
            self._columns,
            self._durable,
            clock_step_ms_max=self._config.clock_step_ms_max,
            check_crc=self._config.check_crc_on_recover,
            last_store_time_ms=self._state.last_store_time_ms,
            on_read=self._meter.advance,
        )
        for step in walk.steps(start_physical_offset):
            # Another program may have truncated a batch and appended after it.
            self._state.note(self._columns, segments[step.file_index], has_writers=not self._durable.is_foreign)
            self.record_count += self._columns.count
        return walk.end()

    def _leave_out(self, batch: WriterBatch, end_physical_offset: int) -> None:
        """Undo the scan's effects of a batch's records up to this offset, the end of the log."""
        state = self._state
        state.writers.remove_last()
        state.last_store_time_ms = state.time_before_batch_ms
        base = segment_base(batch.start_physical_offset, self._chain.segment_size_bytes)
        segment = next(segment for segment in self._chain.segments if segment.base_physical_offset == base)
        position, columns = batch.start_physical_offset - base, self._columns
        segment.last_store_time_ms = state.last_store_time_ms if position else 0
        segment.first_store_time_ms = segment.first_store_time_ms if position else 0
        while position < end_physical_offset - base:
            scan_cy.scan(segment.buffer, position, end_physical_offset - base, base, False, columns)
            assert columns.count, "these records were scanned before"
            position = columns.end_position
            self.record_count -= columns.count
            indexes, offsets, queues = columns.queue_indexes, columns.queue_offsets, columns.queues()
            for index in range(columns.count):
                if indexes[index] < 0:
                    continue
                topic, queue_id = queues[indexes[index]]
                if offsets[index] < state.table.next_queue_offset(topic, queue_id):
                    state.table.set_next_queue_offset(topic, queue_id, offsets[index])


def _with_data(segments: Sequence[Segment]) -> tuple[int, int]:
    """Return the approximate numbers of segments and bytes to scan, without the unwritten part at the end."""
    for count in range(len(segments), 0, -1):
        last = segments[count - 1]
        last.check_readable(0, 0)
        ranges = last.data_ranges(0)
        if ranges:
            return count, (count - 1) * last.size_bytes + ranges[-1][1]
    return 0, 0
