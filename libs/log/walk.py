# SPDX-License-Identifier: Apache-2.0
"""LogWalk: reads the records of a log's files forward, checks each record, and reports where and why it stopped.

All readers of a log's files use it: the CommitLog's recovery, a rebuild of the indexes, `reput verify`. So all of them
find the same records and the same end.
Invariants: no byte is changed. `columns` hold only sound records, which follow each other without a gap. A window of a
file is read before its bytes are accessed in the mapping, so that a read error of the disk is an error with a position
and does not end the process. Blocks until the end.
Rules: docs/formats/commit_log.md section 9. libs/log/end.py decides about the kind of the end.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import KW_ONLY, dataclass
from typing import NamedTuple

import numpy as np
from msgspec import Struct

from libs.formats.records.record import INT as SIZE
from libs.kernel import layout
from libs.kernel.scan import scan_cy
from libs.kernel.scan.scan_columns import ScanColumns
from libs.log.end import STATUS_REASONS, KnownDurable, ScanEnd, first_unsound, judge, judge_closed
from libs.log.tail_search import LogFile

WINDOW_BYTES = 4 << 20
UNSOUND = -1
"""A status besides the statuses of `scan`: the next record passes all checks but is unsound (`first_unsound`)."""


class Step(NamedTuple):
    """A part of a file, whose records are in the walk's columns: bytes [start, end), including a blank at the end."""

    file_index: int
    start: int
    end: int


class Stop(Struct, frozen=True):
    """The first place of a file without a record, with the status of `scan` or UNSOUND, and a reason for people."""

    file_index: int
    position: int
    status: int
    reason: str


@dataclass(slots=True, eq=False)
class LogWalk:
    """A walk over consecutive files, the oldest first. `columns` are reused for each step."""

    _files: Sequence[LogFile]
    columns: ScanColumns
    durable: KnownDurable
    """The data that must exist."""
    _: KW_ONLY
    clock_step_ms_max: int
    check_crc: bool = True
    last_store_time_ms: int = 0
    """Newest store time of the records so far. Begins with the newest store time before the walk; 0: unknown."""
    end_physical_offset: int | None = None
    """The upper limit of the walk's end."""
    on_read: Callable[[LogFile, int], None] | None = None
    """Called with each file and number of bytes, before these bytes are scanned."""
    stop: Stop | None = None
    _at: int = 0

    def steps(self, start_physical_offset: int) -> Iterator[Step]:
        """Yield all records from the start of a record on, up to the end of the log or the first `stop`.

        Raises the errors of the files.
        """
        self._at = start_physical_offset
        for index, file in enumerate(self._files):
            position = self._at - file.base_physical_offset
            if self.stop is None and position < self._limit(file):
                assert position >= 0, "files follow each other"
                yield from self.steps_in(index, position)

    def steps_in(self, file_index: int, position: int) -> Iterator[Step]:
        """Yield the records of a file from a position on, up to its end or the walk's stop."""
        file, columns, self.stop = self._files[file_index], self.columns, None
        base, size_bytes = file.base_physical_offset, self._limit(file)
        if position >= size_bytes:
            return
        window_end = self._read(file, position, position + WINDOW_BYTES)
        while self.stop is None and position < size_bytes:
            start = position
            status, reason = self._scan(file, start, window_end)
            position = file.size_bytes if status == layout.S_BLANK else columns.end_position
            if position > start:
                newest_ms = self._newest_ms()
                yield Step(file_index, start, position)
                self._at, self.last_store_time_ms = base + position, newest_ms
            record_end = position + _claimed_bytes(file.buffer, position, window_end)
            if status in (layout.S_END, layout.S_TRUNCATED) and window_end < size_bytes >= record_end:
                window_end = self._read(file, window_end, max(window_end + WINDOW_BYTES, record_end))
            elif status == layout.S_END:
                self._at = base + size_bytes
                return
            elif status not in (layout.S_FULL, layout.S_BLANK):
                at = position if status == UNSOUND else columns.error_position
                self.stop = Stop(file_index, at, status, reason)

    def end(self) -> ScanEnd:
        """Return the end of the log. To be called after all steps."""
        if self.stop is None:
            return judge_closed(self._at, self.durable)
        return judge(
            self._files[self.stop.file_index :],
            self.stop.position,
            self.stop.reason,
            self.durable,
            last_store_time_ms=self.last_store_time_ms,
            clock_step_ms_max=self.clock_step_ms_max,
        )

    def _scan(self, file: LogFile, start: int, end: int) -> tuple[int, str]:
        """Fill the columns with the next sound records. Returns the status and the reason after them."""
        buffer, base, columns = file.buffer, file.base_physical_offset, self.columns
        status = scan_cy.scan(buffer, start, end, base, self.check_crc, columns)
        unsound = first_unsound(buffer, columns, self.last_store_time_ms, self.clock_step_ms_max, self.durable)
        if unsound is None:
            return status, STATUS_REASONS.get(status, "")
        index, reason = unsound
        scan_cy.scan(buffer, start, int(columns.positions[index]), base, self.check_crc, columns)
        return UNSOUND, reason

    def _newest_ms(self) -> int:
        times = np.frombuffer(self.columns.store_times_ms, np.int64, self.columns.count)
        return max(self.last_store_time_ms, int(times.max(initial=0)))

    def _read(self, file: LogFile, start: int, end: int) -> int:
        """Read the next bytes from the disk, so that the scan can access them. Returns their end."""
        end = min(end, self._limit(file))
        file.check_readable(start, end)
        if self.on_read is not None:
            self.on_read(file, end - start)
        return end

    def _limit(self, file: LogFile) -> int:
        """Return the position after the last byte of a file that the walk may access."""
        if self.end_physical_offset is None:
            return file.size_bytes
        return min(file.size_bytes, self.end_physical_offset - file.base_physical_offset)


def _claimed_bytes(buffer: memoryview, position: int, end: int) -> int:
    """Return the size in the record's header, or 0 if the window ends before the end of this field."""
    return int(SIZE.unpack_from(buffer, position)[0]) if end - position >= SIZE.size else 0
