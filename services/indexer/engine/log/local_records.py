# SPDX-License-Identifier: Apache-2.0
"""LocalRecords: reads the log's records from its files where this process can, and others from the CommitLog.

Invariants: a record is returned only if it has its physical offset, its size and right checksums; in all doubtful cases
(no such file, a file that is gone or can't be read, other bytes at the place) the CommitLog answers, so that it alone
reports errors and deleted records. Only files of the indexed history are read: the files of another log may have whole
records at the same offsets. The event loop never waits for the disk: a thread reads data that is not in memory.
Callers: the event loop's thread. Memory is bounded by an answer, as with the CommitLog.
Not handled: a log that loses its tail and writes another tail there while a query runs; the CommitLog's answer is the
same in that case.
Decision: docs/decisions/0016-records-from-the-files.md.
"""

import asyncio
import logging
from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from libs.formats.errors import FormatError, NewerVersion
from libs.formats.limits import READ_COUNT_MAX
from libs.formats.store_layout import parse_file_name
from libs.kernel.answer.reads_cy import find_runs
from libs.kernel.scan import scan_cy
from libs.log.state import directories as log_directories
from libs.log.state import small_files
from libs.machine.fs import Fs, ReadableFile
from libs.machine.workers import workers
from libs.segments.errors import SegmentTwice
from services.indexer.engine.log.source import RecordBlock, RecordSource

READ_SIZE_BYTES_MAX = 8 << 20
"""Bytes of records in an answer; the first record always fits."""
RUN_SIZE_BYTES_MAX = 1 << 20
GAP_SIZE_BYTES_MAX = 16 << 10
"""Records with no more bytes between them are read with a single call, together with these bytes."""
FIRST_READ_BYTES = 4096
"""Bytes that are read first of a record of unknown size; the rest follows if it is larger."""
OPEN_FILE_COUNT_MAX = 64
NO_BASES = np.empty(0, np.int64)
FIRST_ROW = np.zeros(1, np.intp)

_log = logging.getLogger(__name__)


class _Doubtful(Exception):
    """The files do not have the records for certain."""


class _WouldWait(Exception):
    """A part of the data is not in memory."""


class _Run(NamedTuple):
    """Records near each other, [first, last), with the bytes from the start of the first to the end of the last."""

    first: int
    last: int
    start_physical_offset: int
    size_bytes: int


class LocalRecords:
    """A RecordSource over files, with another source behind it. `history_id` is of the indexed log."""

    def __init__(
        self,
        fs: Fs,
        data_dir: Path,
        remote: RecordSource,
        *,
        history_id: Callable[[], str],
        min_physical_offset: Callable[[], int],
    ) -> None:
        """Read nothing yet. `data_dir` is the CommitLog's. `min_physical_offset` returns the first kept byte."""
        self.read_count = 0
        """Records that came from the files."""
        self._fs = fs
        self._data_dir = data_dir
        self._remote = remote
        self._history_id = history_id
        self._min_physical_offset = min_physical_offset
        self._checked_history_id = ""
        self._is_same_log = False
        self._lock = workers().lock()
        self._bases = NO_BASES
        self._end_physical_offset = 0
        self._paths: list[Path] = []
        self._files: OrderedDict[int, ReadableFile] = OrderedDict()
        self._present: set[int] = set()
        """Files that were used for the current answer, and had their names then."""

    async def has_topic(self, topic: str) -> bool:
        """See RecordSource."""
        return await self._remote.has_topic(topic)

    async def read(
        self, physical_offsets: NDArray[np.int64], record_sizes: NDArray[np.int32] | None = None
    ) -> RecordBlock:
        """See RecordSource."""
        offsets = physical_offsets[:READ_COUNT_MAX]
        sizes = record_sizes[:READ_COUNT_MAX] if record_sizes is not None else None
        found = None
        if offsets.min() >= self._min_physical_offset() and self._is_readable():
            found = await self._from_files(offsets, sizes)
        return found or await self._remote.read(physical_offsets, record_sizes)

    async def _from_files(self, offsets: NDArray[np.int64], sizes: NDArray[np.int32] | None) -> RecordBlock | None:
        """Read from the files, in a thread if data is not in memory. Returns None if anything is doubtful."""
        try:
            try:
                return self._block(offsets, sizes, may_wait=False)
            except _WouldWait:
                return await asyncio.to_thread(self._block, offsets, sizes, may_wait=True)
        except (OSError, FormatError, NewerVersion, SegmentTwice, _Doubtful) as error:
            _log.debug("asking the CommitLog: %s", error)
            return None

    def _is_readable(self) -> bool:
        """Return whether the files belong to the indexed log. It is checked once for each history."""
        history_id = self._history_id()
        if history_id and history_id != self._checked_history_id:
            try:
                found = small_files.load_history_id(self._fs, self._data_dir)
            except (OSError, NewerVersion) as error:
                found = str(error)
            self._checked_history_id, self._is_same_log = history_id, found == history_id
            self._bases, self._paths, self._end_physical_offset, self._files = NO_BASES, [], 0, OrderedDict()
            if self._is_same_log:
                _log.info("records are read from the log's files in %s", self._data_dir)
            else:
                _log.warning("%s is not the log that is indexed (%s): not read", self._data_dir, found or "no history")
        return bool(history_id) and self._is_same_log

    def _block(self, offsets: NDArray[np.int64], sizes: NDArray[np.int32] | None, *, may_wait: bool) -> RecordBlock:
        """Read as many records as fit. Raises OSError, FormatError, SegmentTwice, _Doubtful and _WouldWait."""
        self._present = set()
        if sizes is None:
            return self._block_of_unknown_sizes(offsets, may_wait=may_wait)
        last = int(offsets.max())
        with self._lock:
            self._list(last)
            bases, log_end = self._bases, self._end_physical_offset
        if last >= log_end:
            raise _Doubtful(f"no file has {last}")
        runs = _fitting(find_runs(offsets, sizes, bases, GAP_SIZE_BYTES_MAX, RUN_SIZE_BYTES_MAX))
        records = _buffer(sum(run.size_bytes for run in runs))
        count = runs[-1].last
        positions = np.empty(count, np.int64)
        total = 0
        for run in runs:
            piece = records[total : total + run.size_bytes]
            self._read(run.start_physical_offset, piece, may_wait=may_wait)
            within, expected = offsets[run.first : run.last] - run.start_physical_offset, sizes[run.first : run.last]
            good_count = scan_cy.check_records(piece, within, expected, run.start_physical_offset)
            if good_count < len(within):
                raise _Doubtful(f"no record of {expected[good_count]} bytes at {offsets[run.first + good_count]}")
            positions[run.first : run.last] = within + total
            total += run.size_bytes
        return self._made(records, positions, sizes[:count])

    def _block_of_unknown_sizes(self, offsets: NDArray[np.int64], *, may_wait: bool) -> RecordBlock:
        """Read FIRST_READ_BYTES of each record, near records with a single call, then all of larger records."""
        count_max = max(1, READ_SIZE_BYTES_MAX // (2 * FIRST_READ_BYTES))
        ascending, rows = (
            np.unique(offsets[:count_max], return_inverse=True) if len(offsets) > 1 else (offsets, FIRST_ROW)
        )
        records, positions, ends = self._first_bytes(ascending.tolist(), may_wait=may_wait)
        sizes = np.empty(len(ascending), np.int32)
        good_count = scan_cy.check_placed(records, positions, ends, ascending, sizes)
        if good_count < len(ascending):
            raise _Doubtful(f"no record at {ascending[good_count]}")
        if sizes.min() > 0 and len(records) <= READ_SIZE_BYTES_MAX:
            return self._made(records, positions[rows], sizes[rows])
        fitting_count = np.searchsorted(np.cumsum(np.abs(sizes)[rows]), READ_SIZE_BYTES_MAX, side="right")
        rows = rows[: max(1, int(fitting_count))]
        pieces, total = [records], len(records)
        for row in np.unique(rows[sizes[rows] < 0]).tolist():
            piece = self._large_record(int(ascending[row]), -int(sizes[row]), may_wait=may_wait)
            positions[row], sizes[row] = total, len(piece)
            pieces.append(piece)
            total += len(piece)
        return self._made(b"".join(pieces), positions[rows], sizes[rows])

    def _first_bytes(
        self, ascending: list[int], *, may_wait: bool
    ) -> tuple[memoryview, NDArray[np.int64], NDArray[np.int64]]:
        """Read the first bytes of records. Returns them, with the begin and the end of the known bytes of each."""
        with self._lock:
            self._list(ascending[-1])
            bases, log_end = self._bases.tolist(), self._end_physical_offset
        if not bases or ascending[0] < bases[0] or ascending[-1] >= log_end:
            raise _Doubtful(f"no file has {ascending[0]} or {ascending[-1]}")
        runs = list(_first_runs(ascending, [*bases, log_end]))
        records = _buffer(sum(run.size_bytes for run in runs))
        positions, ends = np.array(ascending, np.int64), np.empty(len(ascending), np.int64)
        total, base, file_end, file = 0, 0, 0, None
        for run in runs:
            start = run.start_physical_offset
            if file is None or start >= file_end:
                base, file = self._file(start)
                file_end = next((bound for bound in bases if bound > start), log_end)
            self._fill(file, start - base, records[total : total + run.size_bytes], may_wait=may_wait)
            positions[run.first : run.last] += total - start
            total += run.size_bytes
            ends[run.first : run.last] = total
        return records, positions, ends

    def _large_record(self, physical_offset: int, claimed_bytes: int, *, may_wait: bool) -> memoryview:
        if claimed_bytes > READ_SIZE_BYTES_MAX:
            raise _Doubtful(f"no record at {physical_offset}")
        piece = _buffer(claimed_bytes)
        self._read(physical_offset, piece, may_wait=may_wait)
        if scan_cy.check_record(piece, 0, claimed_bytes, physical_offset, True) != claimed_bytes:
            raise _Doubtful(f"no record at {physical_offset}")
        return piece

    def _made(self, records: bytes | memoryview, positions: NDArray[np.int64], sizes: NDArray[np.int32]) -> RecordBlock:
        self.read_count += len(positions)
        return RecordBlock(records, positions, sizes, self._min_physical_offset())

    def _read(self, physical_offset: int, target: memoryview, *, may_wait: bool) -> None:
        """Read bytes of a file of the log."""
        base, file = self._file(physical_offset)
        self._fill(file, physical_offset - base, target, may_wait=may_wait)

    @staticmethod
    def _fill(file: ReadableFile, position: int, target: memoryview, *, may_wait: bool) -> None:
        read_bytes = file.read(position, target, may_wait=may_wait)
        if read_bytes is None:
            raise _WouldWait
        if read_bytes != len(target):
            raise _Doubtful(f"the file ends before {position + len(target)}")

    def _file(self, physical_offset: int) -> tuple[int, ReadableFile]:
        """Return the file with this byte. A removed file is not read although that would be possible."""
        with self._lock:
            self._list(physical_offset)
            number = int(self._bases.searchsorted(physical_offset, "right")) - 1
            if number < 0 or physical_offset >= self._end_physical_offset:
                raise _Doubtful(f"no file has {physical_offset}")
            base, path = int(self._bases[number]), self._paths[number]
            file = self._files.pop(base, None)
            if file is None or (base not in self._present and file.is_removed()):
                file = self._fs.open_readable(path)
            self._present.add(base)
            self._files[base] = file  # the last used file is the last entry
            if len(self._files) > OPEN_FILE_COUNT_MAX:
                self._files.popitem(last=False)
            return base, file

    def _list(self, physical_offset: int) -> None:
        """List the files again if no known file has this byte."""
        if physical_offset >= self._end_physical_offset:
            self._paths = log_directories.segment_paths(self._fs, log_directories.load(self._fs, self._data_dir))
            self._bases = np.array([parse_file_name(path.name) for path in self._paths], np.int64)
            if self._paths:
                self._end_physical_offset = int(self._bases[-1]) + self._fs.size(self._paths[-1])


def _buffer(size_bytes: int) -> memoryview:
    """Return a buffer that is not set to zero first."""
    return np.empty(size_bytes, np.uint8).data


def _fitting(runs: Iterable[tuple[int, int, int, int]]) -> list[_Run]:
    """Return as many runs as fit into an answer, at least 1."""
    fitting: list[_Run] = []
    total = 0
    for run in map(_Run._make, runs):
        total += run.size_bytes
        if fitting and total > READ_SIZE_BYTES_MAX:
            break
        fitting.append(run)
    return fitting


def _first_runs(ascending: list[int], bounds: list[int]) -> Iterator[_Run]:
    """Group the first bytes of records near each other in a file. `bounds` are the begins of the files, and the end."""
    first, start, end, file_end = 0, -1, -1, -1
    for number, physical_offset in enumerate(ascending):
        is_near = physical_offset <= end + min(GAP_SIZE_BYTES_MAX, FIRST_READ_BYTES)
        if not is_near or physical_offset >= file_end or physical_offset - start >= RUN_SIZE_BYTES_MAX:
            if number:
                yield _Run(first, number, start, end - start)
            first, start = number, physical_offset
            if physical_offset >= file_end:
                file_end = bounds[min(bisect_right(bounds, physical_offset), len(bounds) - 1)]
        end = min(physical_offset + FIRST_READ_BYTES, file_end)
    yield _Run(first, len(ascending), start, end - start)
