# SPDX-License-Identifier: Apache-2.0
"""LogState: the state at the end of the log that the next append needs, such as the next queue offsets.

A start restores it from the snapshot and records the later records; then the append pipeline keeps it current.
Callers: recovery, before other code knows of the store; then the loop that owns the log.
"""

import asyncio

import numpy as np
from msgspec import Struct, field

from libs.formats.errors import FormatError
from libs.formats.indexes.consume_queue import end_after, has_place
from libs.formats.limits import QUEUE_ID_MAX
from libs.formats.records import writer_stamp
from libs.formats.state.queue_snapshot import QueueSnapshot, WriterBatch
from libs.kernel.append.topic_table import TopicTable
from libs.kernel.scan.scan_columns import ScanColumns
from libs.segments.segment import Segment
from services.commitlog.engine.write.writers import WriterTable


class LogState(Struct):
    """The state at the end of the log. The next queue offsets are in the topic table, which the kernel updates.

    A record with queue offset 0 begins its queue again. A record that fits no queue changes no queue.
    """

    table: TopicTable
    writers: WriterTable
    last_store_time_ms: int = 0
    """Store time of the last record. The next record is never older."""
    time_before_batch_ms: int = 0
    """Store time of the last record before the newest recorded batch of a writer."""
    counted_physical_offset: int = 0
    """The table already includes all records below this offset."""
    is_worth_saving: asyncio.Event = field(default_factory=asyncio.Event)
    """Set when a snapshot should follow soon: after a new segment, and when the queue offsets are known."""

    def restore(self, snapshot: QueueSnapshot) -> None:
        """Begin with the state of a snapshot."""
        for counter in snapshot.counters:
            topic = counter.topic.encode("latin-1")
            self.table.set_next_queue_offset(topic, counter.queue_id, counter.next_queue_offset)
        self.writers.restore(snapshot.writers, snapshot.writer_sequences, snapshot.end_physical_offset)
        self.counted_physical_offset = snapshot.end_physical_offset

    def note(self, columns: ScanColumns, segment: Segment, *, has_writers: bool) -> None:
        """Record the next records of a segment, and their stamps if stamps have a meaning (`has_writers`)."""
        count = columns.count
        if count == 0:
            return
        times = np.frombuffer(columns.store_times_ms, dtype=np.int64, count=count)
        if has_writers:
            self._note_writers(columns, times, segment.base_physical_offset + segment.size_bytes)
        if columns.physical_offsets[0] == segment.base_physical_offset:
            segment.first_store_time_ms = int(times[0])
        self.last_store_time_ms = max(self.last_store_time_ms, int(times.max()))
        segment.last_store_time_ms = self.last_store_time_ms
        self._count_queues(columns)

    def _count_queues(self, columns: ScanColumns) -> None:
        """Update the table with the records that it does not include yet."""
        indexes = np.frombuffer(columns.queue_indexes, dtype=np.int32, count=columns.count)
        queue_offsets = np.frombuffer(columns.queue_offsets, dtype=np.int64, count=columns.count)
        physical_offsets = np.frombuffer(columns.physical_offsets, dtype=np.int64, count=columns.count)
        start = int(np.searchsorted(physical_offsets, self.counted_physical_offset))
        order = start + np.argsort(indexes[start:], kind="stable")
        bounds = np.searchsorted(indexes[order], np.arange(columns.queue_count + 1))
        for number, (topic, queue_id) in enumerate(columns.queues()):
            rows = order[bounds[number] : bounds[number + 1]]
            if len(rows) and 0 <= queue_id <= QUEUE_ID_MAX:
                end = self.table.next_queue_offset(topic, queue_id)
                self.table.set_next_queue_offset(topic, queue_id, _end_after(queue_offsets[rows], end))

    def _note_writers(
        self, columns: ScanColumns, times: np.ndarray[tuple[int], np.dtype[np.int64]], segment_end: int
    ) -> None:
        """Record the batches that the records' stamps describe. `times` are the store times of the records.

        A stamp of another place, or of more bytes than its segment holds, is ignored.
        """
        for index, value in columns.stamps:
            try:
                stamp = writer_stamp.decode(value)
            except FormatError:
                continue
            is_here = stamp.start_physical_offset == columns.physical_offsets[index]
            if is_here and stamp.end_physical_offset < segment_end:
                self.time_before_batch_ms = max(self.last_store_time_ms, int(times[:index].max(initial=0)))
                self.writers.note(WriterBatch.of(stamp, int(times[index])))


def _end_after(queue_offsets: np.ndarray[tuple[int], np.dtype[np.int64]], end: int) -> int:
    """Return the end of a queue after these records."""
    first, last = int(queue_offsets[0]), int(queue_offsets[-1])
    is_run = last - first == len(queue_offsets) - 1 and bool((queue_offsets[1:] > queue_offsets[:-1]).all())
    if is_run and has_place(first, end=end, is_empty=end == 0):
        return last + 1
    return end_after(queue_offsets.tolist(), end=end)
