# SPDX-License-Identifier: Apache-2.0
"""LogFiles: the segments of a log as they lie in its directories, with lookups by physical offset.

The name of a segment is authoritative; the size of a segment is the size that most segments have. Findings: wrong names
and sizes, missing and double segments, missing directories. Layout: docs/formats/commit_log.md section 2.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path

from cli.verify.files import Files
from cli.verify.findings import Report
from libs.formats import limits, store_layout
from libs.formats.errors import FormatError, NewerVersion
from libs.formats.records import record
from libs.log import tail_search
from libs.log.files import MappedLogFile
from libs.log.state import directories as log_directories
from libs.machine.fs import TEMPORARY_SUFFIX
from libs.machine.posix_fs import PosixFs

RECORD_SIZE_BYTES_MAX = 64 * limits.MIB
"""Most bytes that are read at once to check whether a record lost a sector. No record is larger."""


class LogFile(MappedLogFile):
    """A segment: its base offset, its size on disk, and its bytes. `name` is its name in findings."""

    def __init__(self, name: str, path: Path, size_bytes: int) -> None:
        super().__init__(PosixFs(), path, size_bytes)
        self.name = name

    def next_record(self, start: int, *, store_time_ms_min: int, or_blank: bool = False) -> int | None:
        """Return the position of the next whole record from `start` on, as `find_record` does. Raises OSError."""
        end = tail_search.content_end(self, start)
        self.check_readable(start, end)
        return tail_search.find_record(
            self.buffer,
            start,
            end,
            base_physical_offset=self.base_physical_offset,
            store_time_ms_min=store_time_ms_min,
            or_blank=or_blank,
        )


def common_size(sizes_by_base: Sequence[tuple[int, int]]) -> int:
    """Return the most frequent size of these files. Of equally frequent sizes, a size by which two names differ."""
    counts = Counter(size for _, size in sizes_by_base)
    distances = {right - left for (left, _), (right, _) in pairwise(sizes_by_base)}
    return max(counts, key=lambda size: (counts[size], size in distances, size))


def base_of(path: Path, name: str, code: str, report: Report) -> int | None:
    """Return the number in the name of a file. Another name, or no file, is a finding of this code, and gives None."""
    if path.name.endswith(TEMPORARY_SUFFIX):  # reported with the small files
        return None
    try:
        base = store_layout.parse_file_name(path.name)
    except FormatError as error:
        report.add(code, name, error.reason)
        return None
    if not path.is_file():
        report.add(code, name, "it is no file")
        return None
    return base


class LogFiles:
    """The segments of a log, oldest first. Listing them reports wrong names and sizes."""

    def __init__(self, files: Files, data_dir: Path, report: Report) -> None:
        self.segments: list[LogFile] = []
        self.segment_size_bytes = 0
        self._files = files
        self._report = report
        directories = [directory for directory in self._directories(data_dir) if directory.is_dir()]
        self.is_there = bool(directories)
        paths = [path for directory in directories for path in directory.iterdir()]
        for path in sorted(paths, key=lambda path: (path.name, str(path))):
            self._add(path, str(path.relative_to(data_dir) if path.is_relative_to(data_dir) else path))
        if self.segments:
            self._check_sizes()
        self._bases = [segment.base_physical_offset for segment in self.segments]
        self.content_end = self._find_content_end()
        """Offset behind the last byte that is not zero."""

    @property
    def min_physical_offset(self) -> int:
        """The first byte that is kept."""
        return self.segments[0].base_physical_offset if self.segments else 0

    @property
    def size_bytes(self) -> int:
        """Number of bytes of all segments."""
        return sum(segment.size_bytes for segment in self.segments)

    def is_beyond(self, physical_offset: int) -> bool:
        """Return whether no byte was ever written at or behind this offset."""
        return physical_offset >= self.content_end

    def is_record(self, physical_offset: int) -> bool:
        """Return whether a record that names this offset as its own starts here. It may be damaged behind that."""
        return self.head_of(physical_offset) is not None

    def find(self, physical_offset: int) -> LogFile | None:
        """Return the segment that has this byte, or None."""
        index = bisect_right(self._bases, physical_offset) - 1
        if index < 0 or physical_offset >= self.segments[index].end_physical_offset:
            return None
        return self.segments[index]

    def head_of(self, physical_offset: int) -> tuple[int, int] | None:
        """Return queue id and queue offset of the record that starts here, None if there is none."""
        if (segment := self.find(physical_offset)) is None:
            return None
        try:
            head = self._files.read(segment.path, physical_offset - segment.base_physical_offset, record.SYS_FLAG_AT)
        except OSError:
            return None
        if not record.is_head(head, 0, physical_offset):
            return None
        (queue_id,) = record.INT.unpack_from(head, record.QUEUE_ID_AT)
        return queue_id, record.LONG.unpack_from(head, record.QUEUE_OFFSET_AT)[0]

    def _directories(self, data_dir: Path) -> list[Path]:
        """Return the directories of the segments, as the log has recorded them. A missing directory is a finding."""
        try:
            directories = log_directories.load(PosixFs(), data_dir)
        except (FormatError, NewerVersion) as error:
            self._report.add("LOG_DIRECTORIES_DAMAGED", store_layout.LOG_DIRECTORIES, f"content: {error.reason}")
            return [data_dir / store_layout.COMMIT_LOG]
        for directory in directories:
            if not directory.is_dir() and directories != [data_dir / store_layout.COMMIT_LOG]:
                self._report.add("LOG_DIRECTORY_MISSING", str(directory), f"`{store_layout.LOG_DIRECTORIES}` names it")
        return directories

    def _add(self, path: Path, name: str) -> None:
        if (base := base_of(path, name, "LOG_FILE_NAME", self._report)) is None:
            return
        if self.segments and self.segments[-1].base_physical_offset == base:
            message = f"there is {self.segments[-1].name}, too; only that one is looked at"
            self._report.add("LOG_FILE_TWICE", name, message)
            return
        self.segments.append(LogFile(name, path, path.stat().st_size))

    def _check_sizes(self) -> None:
        sizes = [(segment.base_physical_offset, segment.size_bytes) for segment in self.segments]
        self.segment_size_bytes = size = common_size(sizes)
        for index, segment in enumerate(self.segments):
            base = segment.base_physical_offset
            if segment.size_bytes != size:
                is_last = index == len(self.segments) - 1
                message = f"{segment.size_bytes} bytes, but segments of this log have {size}"
                # RocketMQ leaves an empty last file behind when it dies while it makes one, and removes it at a start.
                is_note = is_last and segment.size_bytes == 0
                self._report.add("LOG_FILE_SIZE", segment.name, message, physical_offset=base, is_note=is_note)
            if size and base % size:
                message = f"{base} is not a multiple of the segment size {size}"
                self._report.add("LOG_FILE_NAME", segment.name, message, physical_offset=base)
        for (left, _), (right, _) in pairwise(sizes):
            if size and right > (expected := left + size):
                name = store_layout.file_name(expected)
                count = -(-(right - expected) // size)
                message = f"the log has no bytes from physical offset {expected} to {right}"
                self._report.add("LOG_FILE_MISSING", name, message, physical_offset=expected, count=count)

    def _find_content_end(self) -> int:
        for segment in reversed(self.segments):
            try:
                end = self._files.content_end(segment.path, 0, segment.size_bytes)
            except OSError:
                end = segment.size_bytes
            if end:
                return segment.base_physical_offset + end
        return self.min_physical_offset
