# SPDX-License-Identifier: Apache-2.0
"""LogScan: what a start learns from a walk over the log (libs/log/walk.py): counters, writers, times, and its end.

Invariants: a scan changes no byte of the log; it fills the queue counters, the table of the writers and the store times
of the segments that it walks, without those of a writer's last batch if that is not whole: the log ends before it then.
Blocks for as long as it takes; runs before anybody else knows of the chain, in a worker thread.
Rules: docs/formats/commit_log.md section 9; RocketMQ's counterpart is CommitLog.recoverAbnormally, which truncates in
all three cases.
"""

from collections.abc import Sequence

import numpy as np

from libs.formats.errors import FormatError
from libs.formats.indexes.consume_queue import end_after, has_place
from libs.formats.records import writer_stamp
from libs.formats.state.queue_snapshot import WriterBatch
from libs.formats.store_layout import segment_base
from libs.kernel.append.topic_table import QUEUE_ID_MAX, TopicTable
from libs.kernel.scan import scan_cy
from libs.log.end import KnownDurable, ScanEnd, ScanEndKind
from libs.log.tail_search import LogFile
from libs.log.walk import LogWalk
from libs.segments.chain import SegmentChain
from libs.segments.segment import Segment
from services.commitlog.engine.start.meter import RecoveryProgress
from services.commitlog.engine.write.writers import WriterTable

SCAN_RECORD_COUNT_MAX = 16_384
SCAN_KEY_COUNT_MAX = 4 * SCAN_RECORD_COUNT_MAX


class LogScan:
    """One walk. `last_store_time_ms` begins with what is known of the records before the start.

    `durable` is what must be there. The counters of `table` count the records below `counted_physical_offset` already,
    and follow the others: queue offset 0 begins a queue again, and what fits no queue counts for none.
    """

    def __init__(
        self,
        chain: SegmentChain,
        table: TopicTable,
        writers: WriterTable,
        durable: KnownDurable,
        progress: RecoveryProgress,
        *,
        check_crc: bool,
        clock_step_ms_max: int,
        last_store_time_ms: int,
        counted_physical_offset: int = 0,
    ) -> None:
        self.record_count = 0
        self.last_store_time_ms = last_store_time_ms
        self._chain = chain
        self._table = table
        self._counted_physical_offset = counted_physical_offset
        self._writers = writers
        self._time_before_batch_ms = 0
        self._durable = durable
        self._progress = progress
        self._check_crc = check_crc
        self._clock_step_ms_max = clock_step_ms_max
        self._columns = scan_cy.ScanColumns(SCAN_RECORD_COUNT_MAX, SCAN_KEY_COUNT_MAX)
        self._file: LogFile | None = None

    def run(self, start_physical_offset: int) -> ScanEnd:
        """Walk from the first byte of a segment to the end of the log. Raises SegmentUnreadable."""
        end = self._walk_all(start_physical_offset)
        batch = self._writers.last
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
        self._progress.begin(segment_count=segment_count, target_bytes=target_bytes)
        walk = LogWalk(
            segments,
            self._columns,
            self._durable,
            clock_step_ms_max=self._clock_step_ms_max,
            check_crc=self._check_crc,
            last_store_time_ms=self.last_store_time_ms,
            on_read=self._advance,
        )
        for step in walk.steps(start_physical_offset):
            self._absorb(segments[step.file_index])
        return walk.end()

    def _advance(self, file: LogFile, size_bytes: int) -> None:
        if file is not self._file:
            self._file = file
            self._progress.next_segment()
        self._progress.advance(size_bytes)

    def _absorb(self, segment: Segment) -> None:
        """Take over counters and times of the records of the columns."""
        columns, count = self._columns, self._columns.count
        if count == 0:
            return
        times = np.frombuffer(columns.store_times_ms, dtype=np.int64, count=count)
        if not self._durable.is_foreign:  # another program may have cut a batch and gone on
            self._note_writers(times, segment.base_physical_offset + segment.size_bytes)
        if columns.positions[0] == 0:
            segment.first_store_time_ms = int(times[0])
        self.last_store_time_ms = max(self.last_store_time_ms, int(times.max()))
        segment.last_store_time_ms = self.last_store_time_ms
        self.record_count += count
        self._count_queues()

    def _count_queues(self) -> None:
        """Let the counters follow the records of the columns that are not counted yet."""
        columns, count = self._columns, self._columns.count
        indexes = np.frombuffer(columns.queue_indexes, dtype=np.int32, count=count)
        queue_offsets = np.frombuffer(columns.queue_offsets, dtype=np.int64, count=count)
        physical_offsets = np.frombuffer(columns.physical_offsets, dtype=np.int64, count=count)
        start = int(np.searchsorted(physical_offsets, self._counted_physical_offset))
        order = start + np.argsort(indexes[start:], kind="stable")
        bounds = np.searchsorted(indexes[order], np.arange(columns.queue_count + 1))
        for number, (topic, queue_id) in enumerate(columns.queues()):
            rows = order[bounds[number] : bounds[number + 1]]
            if len(rows) and 0 <= queue_id <= QUEUE_ID_MAX:
                end = self._table.next_queue_offset(topic, queue_id)
                self._table.set_next_queue_offset(topic, queue_id, _end_after(queue_offsets[rows], end))

    def _note_writers(self, times: np.ndarray[tuple[int], np.dtype[np.int64]], segment_end: int) -> None:
        """Take over the stamps of the records of the columns; `times` are their store times.

        A stamp that is not of this place, or of more than its segment holds, is none.
        """
        for index, value in self._columns.stamps:
            try:
                stamp = writer_stamp.decode(value)
            except FormatError:
                continue
            is_here = stamp.start_physical_offset == self._columns.physical_offsets[index]
            if is_here and stamp.end_physical_offset < segment_end:
                self._time_before_batch_ms = max(self.last_store_time_ms, int(times[:index].max(initial=0)))
                self._writers.note(WriterBatch.of(stamp, int(times[index])))

    def _leave_out(self, batch: WriterBatch, end_physical_offset: int) -> None:
        """Take back what the scan learned from the records of a batch up to here, the end of the log."""
        self._writers.remove_last()
        self.last_store_time_ms = self._time_before_batch_ms
        base = segment_base(batch.start_physical_offset, self._chain.segment_size_bytes)
        segment = next(segment for segment in self._chain.segments if segment.base_physical_offset == base)
        position, columns = batch.start_physical_offset - base, self._columns
        segment.last_store_time_ms = self.last_store_time_ms if position else 0
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
                if offsets[index] < self._table.next_queue_offset(topic, queue_id):
                    self._table.set_next_queue_offset(topic, queue_id, offsets[index])


def _end_after(queue_offsets: np.ndarray[tuple[int], np.dtype[np.int64]], end: int) -> int:
    """Where a queue ends after these records."""
    first, last = int(queue_offsets[0]), int(queue_offsets[-1])
    is_run = last - first == len(queue_offsets) - 1 and bool((queue_offsets[1:] > queue_offsets[:-1]).all())
    if is_run and has_place(first, end=end, is_empty=end == 0):
        return last + 1
    return end_after(queue_offsets.tolist(), end=end)


def _with_data(segments: Sequence[Segment]) -> tuple[int, int]:
    """About what there is to scan, segments and bytes: without what was never written at the end."""
    for count in range(len(segments), 0, -1):
        last = segments[count - 1]
        last.check_readable(0, 0)
        ranges = last.data_ranges(0)
        if ranges:
            return count, (count - 1) * last.size_bytes + ranges[-1][1]
    return 0, 0
