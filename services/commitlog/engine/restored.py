# SPDX-License-Identifier: Apache-2.0
"""The state of a log that was written by a restore: its end, queue offsets, writers and times, from its records.

Invariants: the segments are only read. An incomplete last batch of a writer does not belong to the log.
Callers: `reput restore`, before any process uses the directory. Blocks.
"""

from contextlib import closing
from pathlib import Path
from typing import NamedTuple

from libs.formats.state.queue_snapshot import QueueCounter, QueueSnapshot, SegmentTimes
from libs.formats.store_layout import segment_base
from libs.kernel.append.topic_table import TopicTable
from libs.log.end import KnownDurable, ScanEnd
from libs.machine.clock import SystemClock
from libs.machine.posix_fs import PosixFs
from libs.segments.chain import SegmentChain
from services.commitlog.config import CommitLogConfig
from services.commitlog.engine.start.meter import RecoveryMeter
from services.commitlog.engine.start.scan import LogScan
from services.commitlog.engine.write.state import LogState
from services.commitlog.engine.write.writers import WriterTable


class RestoredLog(NamedTuple):
    """The end of the log, as a scan finds it, and the snapshot of this end."""

    end: ScanEnd
    snapshot: QueueSnapshot


def read_restored(log_directory: Path, segment_size_bytes: int, end_physical_offset: int) -> RestoredLog:
    """Scan the segments of a log that should end at this offset. Raises SegmentUnreadable and OSError."""
    config = CommitLogConfig(segment_size_bytes=segment_size_bytes)
    state = LogState(TopicTable(), WriterTable.of(config))
    with closing(SegmentChain(PosixFs(), log_directory, segment_size_bytes).open(is_clean=True)) as chain:
        last = segment_base(max(end_physical_offset - 1, 0), segment_size_bytes)
        scan = LogScan(chain, state, KnownDurable(physical_offset=last), RecoveryMeter(SystemClock()), config)
        end = scan.run(chain.min_physical_offset)
        times = [
            SegmentTimes(segment.base_physical_offset, segment.first_store_time_ms, segment.last_store_time_ms)
            for segment in chain.segments
            if segment.base_physical_offset < end.physical_offset
        ]
    counters = [QueueCounter(topic.decode("latin-1"), *rest) for topic, *rest in state.table.frozen_counters()]
    snapshot = QueueSnapshot(
        end.physical_offset,
        state.last_store_time_ms,
        times,
        counters,
        state.writers.batches(),
        state.writers.next_sequences(),
    )
    return RestoredLog(end, snapshot)
