# SPDX-License-Identifier: Apache-2.0
"""LogWalk: goes forward over the records of a log's files, checks each of them, and says where it can't go on, and why.

Everybody who reads a log from its files stands on it: the CommitLog's recovery, a rebuild of the indexes, `reput
verify`. So all of them come to the same records and to the same end.
Invariants: no byte is changed; `columns` hold sound records only, which follow each other without a gap; a window of a
file is read before its bytes are looked at in the mapping, so that a disk that can't read it is an error with a
position and not the end of the process. Blocks for as long as it takes.
Rules: docs/formats/commit_log.md section 9; what an end is called is libs/log/end.py's.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import KW_ONLY, dataclass
from typing import NamedTuple

import numpy as np

from libs.formats.records.record import INT as SIZE
from libs.kernel import layout
from libs.kernel.scan import scan_cy
from libs.kernel.scan.scan_columns import ScanColumns
from libs.log.end import STATUS_REASONS, KnownDurable, ScanEnd, first_unsound, judge, judge_closed
from libs.log.tail_search import LogFile

WINDOW_BYTES = 4 << 20
UNSOUND = -1
"""Stands beside the statuses of `scan`: the next record passes all checks and is none (`first_unsound`)."""


class Step(NamedTuple):
    """The records in the walk's columns are those of [start, end) of this file, in bytes; a blank at the end counts."""

    file_index: int
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class Stop:
    """The first thing of a file that is no record: where, what `scan` says of it (or UNSOUND), and why for people."""

    file_index: int
    position: int
    status: int
    reason: str


@dataclass(slots=True, eq=False)
class LogWalk:
    """One walk over consecutive files, the oldest first. `columns` are used again for each step."""

    _files: Sequence[LogFile]
    columns: ScanColumns
    durable: KnownDurable
    """What must be there."""
    _: KW_ONLY
    clock_step_ms_max: int
    check_crc: bool = True
    last_store_time_ms: int = 0
    """Newest store time of the records behind the walk. Begins with what is known of those before it; 0: unknown."""
    end_physical_offset: int | None = None
    """Where to end at the latest."""
    on_read: Callable[[LogFile, int], None] | None = None
    """Hears of each file and number of bytes before they are looked at."""
    stop: Stop | None = None
    _at: int = 0

    def steps(self, start_physical_offset: int) -> Iterator[Step]:
        """Yield all records from the start of one on, up to the end of the log or the first `stop`.

        Raises as the files do.
        """
        self._at = start_physical_offset
        for index, file in enumerate(self._files):
            position = self._at - file.base_physical_offset
            if self.stop is None and position < self._limit(file):
                assert position >= 0, "files follow each other"
                yield from self.steps_in(index, position)

    def steps_in(self, file_index: int, position: int) -> Iterator[Step]:
        """Yield the records of one file from a position on, until it is closed or the walk stops."""
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
        """Return how the log ends, once all steps are made."""
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
        """Fill the columns with the next sound records. Returns the status and the reason of what follows them."""
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
        """Make sure that the next bytes can be looked at. Returns where they end."""
        end = min(end, self._limit(file))
        file.check_readable(start, end)
        if self.on_read is not None:
            self.on_read(file, end - start)
        return end

    def _limit(self, file: LogFile) -> int:
        """Return the position behind the last byte of a file that the walk may look at."""
        if self.end_physical_offset is None:
            return file.size_bytes
        return min(file.size_bytes, self.end_physical_offset - file.base_physical_offset)


def _claimed_bytes(buffer: memoryview, position: int, end: int) -> int:
    """Return the size that the record here says it has, or 0 if the window ends before that."""
    return int(SIZE.unpack_from(buffer, position)[0]) if end - position >= SIZE.size else 0
