# SPDX-License-Identifier: Apache-2.0
"""LogFiles: the log's tail from the files of a CommitLog's data directory, without a CommitLog.

Invariants: reads only, and changes no byte; steps equal the steps of Dispatch (same scan, same checks, same columns),
and the checksums of all records are checked in addition; it ends where a start of the CommitLog would let the log end,
also before a torn tail, and raises RecordDamaged for a damaged middle. A single file is mapped at a time.
Callers: `rebuild`, and tests that compare; a single `follow` at a time. Work is done in the calling thread.
Not handled: a log that is written or trimmed meanwhile, unless `end_physical_offset` says where it was whole.
Layout: docs/formats/commit_log.md; the end of a log: libs/log/end.py.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from libs.formats.epoch import Epoch
from libs.formats.errors import FormatError
from libs.formats.limits import CLOCK_STEP_MS_MAX
from libs.formats.records import dispatch_columns
from libs.formats.records.delay_level import DELAY_LEVELS_MS
from libs.formats.records.dispatch_columns import DispatchBatch, Handshake, Heartbeat
from libs.formats.state.log_history import QueueEnd
from libs.formats.store_layout import file_name, segment_base
from libs.kernel.scan.scan_columns import ScanColumns
from libs.log import tail_search
from libs.log.end import KnownDurable, ScanEnd, ScanEndKind
from libs.log.files import MappedLogFile
from libs.log.state import directories as log_directories
from libs.log.state import small_files, topics_file
from libs.log.state.set_apart import SetApart
from libs.log.walk import LogWalk
from libs.machine.fs import Fs
from libs.requests.errors import DependencyUnavailable, RecordDamaged
from libs.segments.errors import SegmentMissing, SegmentSizeWrong
from services.indexer.engine.log.source import LogRole, ProgressReport, RecordBlock
from services.indexer.errors import Inapplicable

STEP_RECORD_COUNT_MAX = 8_192
KEYS_PER_RECORD = 4


class LogFiles:
    """A LogSource over the files, and a RecordSource that knows topics only. `end` tells how a `follow` has ended.

    With `end_physical_offset` it ends there at the latest, and the log must be whole up to there. `epoch` is the log's.
    `durable` names the part of the log that must exist: a log that ends before its end is damaged.
    """

    def __init__(
        self,
        fs: Fs,
        data_dir: Path,
        *,
        segment_size_bytes: int,
        end_physical_offset: int | None = None,
        epoch: int = 0,
        durable: KnownDurable | None = None,
        clock_step_ms_max: int = CLOCK_STEP_MS_MAX,
        delay_levels_ms: Sequence[int] = DELAY_LEVELS_MS,
    ) -> None:
        """List the files.

        Raises FileNotFoundError for a directory, SegmentSizeWrong, SegmentMissing, SegmentTwice and FormatError.
        """
        self.epoch = epoch
        self.end: ScanEnd | None = None
        self._fs = fs
        self._data_dir = data_dir
        self._segment_size_bytes = segment_size_bytes
        self._end_physical_offset = end_physical_offset
        self._durable = durable or KnownDurable(physical_offset=end_physical_offset or 0)
        self._clock_step_ms_max = clock_step_ms_max
        self._delay_levels_ms = delay_levels_ms
        self._files = self._list()
        self.min_physical_offset = self._files[0].base_physical_offset if self._files else 0
        """First byte of the log that is kept."""
        self.estimated_end_physical_offset = self._estimate_end()
        """About where the records end: behind the last byte that is not zero."""

    async def follow(
        self, start_physical_offset: int, epoch: int, epochs: Sequence[Epoch] = ()
    ) -> AsyncGenerator[Handshake | DispatchBatch | Heartbeat, None]:
        """See LogSource. After the last record it yields a heartbeat with the real end, and then it waits for ever.

        A caller with another epoch has nothing in common with this log and begins at its first record. The handshake's
        confirmed offset is an estimate. Raises RecordDamaged, and Inapplicable as a stream over the network does.
        """
        del epochs
        is_known = epoch == self.epoch
        common_end = min(start_physical_offset, self.estimated_end_physical_offset) if is_known else 0
        yield Handshake(
            common_end,
            self.epoch,
            self.min_physical_offset,
            self.estimated_end_physical_offset,
            set_apart=SetApart.load(self._fs, self._data_dir).reasons,
            topic_begins=small_files.load_topic_begins(self._fs, self._data_dir).begins,
        )
        at = max(common_end, self.min_physical_offset)
        walk = LogWalk(
            self._files,
            ScanColumns(STEP_RECORD_COUNT_MAX, KEYS_PER_RECORD * STEP_RECORD_COUNT_MAX, self._delay_levels_ms),
            self._durable,
            clock_step_ms_max=self._clock_step_ms_max,
            end_physical_offset=self._end_physical_offset,
        )
        for step in walk.steps(at):
            if step.file_index:
                self._files[step.file_index - 1].close()
            base = self._files[step.file_index].base_physical_offset
            at = base + step.end
            yield _batch(walk.columns, base + step.start, at)
        self._finish(walk.end())
        self.close()
        yield Heartbeat(at, self.min_physical_offset)
        await asyncio.Event().wait()

    async def report(self, report: ProgressReport) -> LogRole:
        """See LogSource. Does nothing, because no CommitLog runs."""
        del report
        return LogRole()

    async def check_queue_offsets(
        self, pages: AsyncGenerator[list[QueueEnd], None], *, epoch: int, history_id: str, is_complete: bool
    ) -> int:
        """See LogSource. Compares nothing, because no CommitLog runs."""
        del pages, epoch, history_id, is_complete
        return 0

    async def has_topic(self, topic: str) -> bool:
        """See RecordSource. The topics are read from `topics.json`. Raises ConfigFileDamaged."""
        return topic in topics_file.load(self._fs, self._data_dir).topics

    async def read(
        self, physical_offsets: NDArray[np.int64], record_sizes: NDArray[np.int32] | None = None
    ) -> RecordBlock:
        """See RecordSource. Always refuses, because no caller reads records while indexes are built."""
        del physical_offsets, record_sizes
        raise DependencyUnavailable("commitlog", "only its files are at hand")

    def close(self) -> None:
        """Unmap the files. They are mapped again when they are needed."""
        for file in self._files:
            file.close()

    def _list(self) -> list[MappedLogFile]:
        paths = log_directories.segment_paths(self._fs, log_directories.load(self._fs, self._data_dir))
        if paths and self._fs.size(paths[-1]) == 0:
            paths.pop()  # as RocketMQ may leave it
        files: list[MappedLogFile] = []
        expected_bytes = self._segment_size_bytes
        for path in paths:
            if (size_bytes := self._fs.size(path)) != expected_bytes:
                raise SegmentSizeWrong(path=path, size_bytes=size_bytes, expected_bytes=expected_bytes)
            file = MappedLogFile(self._fs, path, size_bytes)
            if files and file.base_physical_offset != (base := files[-1].base_physical_offset + size_bytes):
                raise SegmentMissing(path=path, previous=files[-1].path, missing=file_name(base))
            files.append(file)
        return files

    def _estimate_end(self) -> int:
        if self._end_physical_offset is not None:
            return self._end_physical_offset
        for file in reversed(self._files):
            end = tail_search.content_end(file, 0)
            file.close()
            if end:
                return file.base_physical_offset + end
        return self.min_physical_offset

    def _finish(self, end: ScanEnd) -> None:
        wanted = self._end_physical_offset
        if wanted is not None and end.physical_offset < wanted:
            end = ScanEnd(ScanEndKind.DAMAGED, end.physical_offset, f"{end.reason}, but the log goes on to {wanted}")
        if end.kind is ScanEndKind.DAMAGED:
            base = segment_base(end.physical_offset, self._segment_size_bytes)
            raise RecordDamaged(segment=file_name(base), position=end.physical_offset - base, reason=end.reason)
        self.end = end


def _batch(columns: ScanColumns, start: int, end: int) -> DispatchBatch:
    """Return the records of [start, end) as Dispatch gives them. Raises Inapplicable."""
    try:
        step = dispatch_columns.decode(dispatch_columns.encode(columns, start, end))
    except FormatError as error:
        raise Inapplicable(f"malformed step: {error}", physical_offset=start) from error
    assert isinstance(step, DispatchBatch)
    return step
