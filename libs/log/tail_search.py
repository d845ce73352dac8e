# SPDX-License-Identifier: Apache-2.0
"""Search in the bytes after the place where a scan of the log stopped: zeros, broken bytes, or records.

It works in windows and skips ranges that were never written, so that a mostly empty segment of a gigabyte costs little.
"""

import re
from pathlib import Path
from typing import Protocol

from libs.formats.limits import RECORD_SIZE_BYTES_MIN
from libs.formats.records.record import BLANK, MAGIC_AT, check_header, is_blank
from libs.formats.records.record import INT as SIZE
from libs.formats.records.record import LONG as TIME
from libs.kernel.scan import scan_cy

WINDOW_BYTES = 1 << 20
SECTOR_BYTES = 512
"""The unit that a disk writes as a whole. A page of the cache has several sectors."""
RECORD_HEAD_BYTES = 4
"""A record begins with its size, which is never 0."""
_ZEROS = bytes(WINDOW_BYTES)
MAGIC_SIZE_BYTES = 4
_MAGIC = re.compile(b"\xda\xa3\x20[\xa7\xab]")
MAGIC_OR_BLANK = re.compile(_MAGIC.pattern + b"|\xcb\xd4\x31\x94")


class LogFile(Protocol):
    """A file of the log for readers, such as a Segment."""

    path: Path
    """Where the file is."""
    base_physical_offset: int
    """Physical offset of its first byte."""
    size_bytes: int
    """Size of the file and of `buffer`."""

    @property
    def buffer(self) -> memoryview:
        """All bytes of the file."""
        ...

    def check_readable(self, position: int, end: int) -> None:
        """Raise an error if the disk can't read [position, end). An access by the mapping would end the process."""
        ...

    def data_ranges(self, position: int) -> list[tuple[int, int]]:
        """See `MappedFile.data_ranges`."""
        ...


def content_end(segment: LogFile, start: int) -> int:
    """Return the position after the last byte from `start` on that is not zero, or `start` if all are zero."""
    buffer = segment.buffer
    for range_start, range_end in reversed(segment.data_ranges(start)):
        for window_end in range(range_end, range_start, -WINDOW_BYTES):
            window_start = max(window_end - WINDOW_BYTES, range_start)
            segment.check_readable(window_start, window_end)
            window = bytes(buffer[window_start:window_end])
            if window != _ZEROS[: len(window)]:
                return window_start + len(window.rstrip(b"\0"))
    return start


def find_record(
    buffer: memoryview,
    start: int,
    end: int,
    *,
    base_physical_offset: int,
    store_time_ms_min: int,
    or_blank: bool = False,
) -> int | None:
    """Return the position of the first whole record that begins in [start, end) at its own offset, or None.

    Whole means: magic, lengths, checksums and the stored physical offset are right, and the record is not older than
    `store_time_ms_min`: an older record was left behind by an older log. The record may end after `end`: its last bytes
    may be zeros. `or_blank` also finds the blank that closes the buffer.
    """
    pattern = MAGIC_OR_BLANK if or_blank else _MAGIC
    window_start = start
    while window_start < end:
        window_end = min(window_start + WINDOW_BYTES, end)
        window = bytes(buffer[window_start : min(window_end + MAGIC_SIZE_BYTES - 1, len(buffer))])
        for match in pattern.finditer(window):
            position = window_start + match.start() - MAGIC_AT
            if position >= start and _is_item(buffer, position, base_physical_offset, store_time_ms_min):
                return position
        window_start = window_end
    return None


def has_lost_sector(buffer: memoryview, start: int, end: int) -> bool:
    """Return whether missing sectors can be the fault of the record at `start`: a sector of it ends in zeros.

    After a power cut a sector may be missing although later sectors are on the disk, because a disk writes sectors in
    any order. A missing sector has its old bytes: zeros, or a part of the record (and of records before it) and then
    zeros, always up to the sector's end. Other data is known to begin at `end`: a record whose first bytes are zeros,
    too, so they may be in the missing sector.
    """
    size = SIZE.unpack_from(buffer, start)[0] if len(buffer) - start >= SIZE.size else 0
    record_end = start + (size if size >= RECORD_SIZE_BYTES_MIN else RECORD_HEAD_BYTES)
    return is_cut(buffer, start, min(record_end, end))


def is_cut(buffer: memoryview, start: int, end: int) -> bool:
    """Return whether a sector has bytes of [start, end), and only zeros from the last of these bytes on."""
    for sector_end in range(start - start % SECTOR_BYTES + SECTOR_BYTES, end + SECTOR_BYTES, SECTOR_BYTES):
        if not any(buffer[min(sector_end, end) - 1 : sector_end]):
            return True
    return False


def first_store_time_ms(segment: LogFile) -> int | None:
    """Return the store time of a segment's first record, or None without a whole record at its start."""
    segment.check_readable(0, RECORD_SIZE_BYTES_MIN)
    buffer = segment.buffer
    segment.check_readable(0, min(max(SIZE.unpack_from(buffer, 0)[0], 0), segment.size_bytes))
    if scan_cy.check_record(buffer, 0, segment.size_bytes, segment.base_physical_offset, True) <= 0:
        return None
    return _store_time_ms(buffer, 0)


def _is_item(buffer: memoryview, position: int, base_physical_offset: int, store_time_ms_min: int) -> bool:
    """Return whether a whole record that is not too old begins here, or a blank that reaches to the end."""
    left = len(buffer) - position
    if left >= BLANK.size and is_blank(buffer, position):
        return bool(SIZE.unpack_from(buffer, position)[0] == left)
    if (
        left < RECORD_SIZE_BYTES_MIN
        or scan_cy.check_record(buffer, position, len(buffer), base_physical_offset, True) <= 0
    ):
        return False
    return _store_time_ms(buffer, position) >= store_time_ms_min


def _store_time_ms(buffer: memoryview, position: int) -> int:
    return int(TIME.unpack_from(buffer, check_header(buffer, position).store_time_at)[0])
