# SPDX-License-Identifier: Apache-2.0
"""RecordReader: finds records by physical offset and checks them before it returns them.

Invariants: no byte at or past the visible end is ever read. A record is returned whole and checked (magic, lengths,
checksums, stored physical offset) or not at all. Answers are views into the mapped segments. The caller must use them
before it lets the event loop run again, because a deleted segment is unmapped.
Callers: the loop that owns the log. Layout: docs/formats/commit_log.md.
"""

from __future__ import annotations

import bisect
from array import array
from collections.abc import Generator, Sequence

from msgspec import Struct

from libs.formats.records.record import INT as INT32
from libs.formats.records.record import LONG as INT64
from libs.formats.records.record import MAGIC_AT, MAGIC_V1, MAGIC_V2, PHYSICAL_OFFSET_AT
from libs.kernel import layout
from libs.kernel.scan import scan_cy
from libs.log.answer_sizes import answer_sizes
from libs.log.end import STATUS_REASONS
from libs.log.watermark import Watermark
from libs.requests.errors import RecordDamaged
from libs.segments.chain import SegmentChain
from libs.segments.segment import Segment, SegmentHold
from services.commitlog.errors import BelowMinOffset, BeyondMaxOffset, NotARecord

STREAM_RECORD_COUNT_MAX = 8_192


class RecordRun(Struct, frozen=True):
    """The records of a segment. `positions` (64 bits) and `sizes` (32 bits) count bytes in `buffer`."""

    buffer: memoryview
    positions: array[int]
    sizes: array[int]

    def raw(self) -> list[memoryview]:
        """Return the bytes of the records. Neighbours are joined."""
        pieces: list[memoryview] = []
        start = end = 0
        for position, size in zip(self.positions, self.sizes, strict=True):
            if position != end:
                if end > start:
                    pieces.append(self.buffer[start:end])
                start = position
            end = position + size
        return [*pieces, self.buffer[start:end]] if end > start else pieces


class RecordBatch(Struct, frozen=True):
    """The answer of `read`: the size of each record in request order (0: no longer in the log), and the records."""

    sizes: list[int]
    runs: list[RecordRun]


class RecordStretch(Struct, frozen=True):
    """Neighbouring records of a segment. The next stretch begins at the end."""

    start_physical_offset: int
    end_physical_offset: int
    run: RecordRun


class RecordReader:
    """The reader of the visible records of a chain."""

    def __init__(self, chain: SegmentChain, visible: Watermark) -> None:
        self._chain = chain
        self._visible = visible

    @property
    def min_physical_offset(self) -> int:
        """First byte of the log."""
        return self._chain.min_physical_offset

    @property
    def end_physical_offset(self) -> int:
        """End of the readable bytes: the confirmed offset."""
        return self._visible.value

    def read(self, physical_offsets: Sequence[int], sizes: Sequence[int], *, size_bytes_max: int) -> RecordBatch:
        """Find records. `sizes` is empty or has the expected size of each record.

        The answer ends before the record that would exceed `size_bytes_max`; the first record is always included. It
        also ends before an offset with a damaged record or without a record, so the records before it can be read.
        Raises BeyondMaxOffset, and NotARecord or RecordDamaged for the first offset.
        """
        found_sizes: list[int] = []
        runs: list[RecordRun] = []
        total = 0
        last: Segment | None = None
        for index, physical_offset in enumerate(physical_offsets):
            segment = self._segment_of(physical_offset, f"physical_offsets[{index}]")
            if segment is None:
                found_sizes.append(0)
                continue
            position = physical_offset - segment.base_physical_offset
            try:
                size = self._check(segment, position, sizes[index] if sizes else 0, f"physical_offsets[{index}]")
            except (NotARecord, RecordDamaged):
                if not index:
                    raise
                break
            if total and total + size > size_bytes_max:
                break
            if segment is not last:
                runs.append(RecordRun(segment.buffer, array("q"), array("i")))
                last = segment
            runs[-1].positions.append(position)
            runs[-1].sizes.append(size)
            found_sizes.append(size)
            total += size
        return RecordBatch(found_sizes, runs)

    def stretches(self, start: int, end: int, *, size_bytes_max: int) -> Generator[RecordStretch, None, None]:
        """Yield all records that begin in [start, end), in stretches of at most `size_bytes_max` bytes, or a record.

        The first stretches are smaller (answer_sizes).
        The current segment is held between two stretches, so it is not deleted meanwhile. If it is deleted all the
        same, the walk ends with BelowMinOffset. Raises BelowMinOffset, BeyondMaxOffset, NotARecord (only for the start)
        or RecordDamaged.
        """
        self._check_start(start)
        columns = scan_cy.ScanColumns(STREAM_RECORD_COUNT_MAX, 1)
        sizes_bytes = answer_sizes(size_bytes_max)
        at = start
        while at < end:
            segment = self._segment_of(at, "start_physical_offset")
            if segment is None:
                raise self._below_min(at)
            hold = SegmentHold(segment)
            try:
                segment_end = segment.base_physical_offset + segment.size_bytes
                while at < min(end, segment_end):
                    if not hold.is_held:
                        raise self._below_min(at)
                    stretch = self._stretch(segment, at, min(end, segment_end), next(sizes_bytes), columns)
                    at = stretch.end_physical_offset
                    yield stretch
            finally:
                hold.let_go()

    def _below_min(self, physical_offset: int) -> BelowMinOffset:
        return BelowMinOffset(physical_offset, min_physical_offset=self._chain.min_physical_offset)

    def check_boundary(self, physical_offset: int) -> None:
        """Raise NotARecord unless a record, a blank, a segment or the unreadable end begins at this offset."""
        ends = self._visible.value, self._chain.max_physical_offset
        if physical_offset in ends or physical_offset % self._chain.segment_size_bytes == 0:
            return
        segment = self._chain.find(physical_offset)
        position = physical_offset - segment.base_physical_offset
        status = scan_cy.check_record(
            segment.buffer, position, segment.wrote_position, segment.base_physical_offset, False
        )
        if status <= 0 and status != -layout.S_BLANK and not _looks_like_record(segment, position):
            raise NotARecord(physical_offset, field="start_physical_offset")

    def _check_start(self, start: int) -> None:
        if start < self._chain.min_physical_offset:
            raise self._below_min(start)
        if start > self._visible.value:
            raise BeyondMaxOffset(start, max_physical_offset=self._visible.value, field="start_physical_offset")
        self.check_boundary(start)

    def _segment_of(self, physical_offset: int, field: str) -> Segment | None:
        """Return the segment of an offset, or None if it is no longer in the log. Raises BeyondMaxOffset."""
        if physical_offset >= self._visible.value:
            raise BeyondMaxOffset(physical_offset, max_physical_offset=self._visible.value, field=field)
        return None if physical_offset < self._chain.min_physical_offset else self._chain.find(physical_offset)

    @staticmethod
    def _check(segment: Segment, position: int, size: int, field: str) -> int:
        end = segment.wrote_position
        found = scan_cy.check_record(segment.buffer, position, end, segment.base_physical_offset, True)
        physical_offset = segment.base_physical_offset + position
        if found > 0 and size in (0, found):
            return found
        if found > 0 or found == -layout.S_BLANK or not _looks_like_record(segment, position):
            raise NotARecord(physical_offset, field=field)
        raise RecordDamaged(segment=segment.path.name, position=position, reason=STATUS_REASONS[-found])

    def _stretch(
        self, segment: Segment, at: int, end: int, size_bytes_max: int, columns: scan_cy.ScanColumns
    ) -> RecordStretch:
        """Return the next records of a segment that begin below `end`. The first record is included at any size."""
        base, buffer = segment.base_physical_offset, segment.buffer
        start, readable = at - base, min(self._visible.value - base, segment.wrote_position)
        size = scan_cy.check_record(buffer, start, readable, base, True)
        if size == -layout.S_BLANK:
            return RecordStretch(at, base + segment.size_bytes, RecordRun(buffer, array("q"), array("i")))
        if size <= 0:
            raise RecordDamaged(segment=segment.path.name, position=start, reason=STATUS_REASONS[-size])
        # A record that ends behind the window, or is damaged, is left to the next stretch.
        window_end = max(start + size, min(start + size_bytes_max, readable))
        scan_cy.scan(buffer, start, window_end, base, True, columns)
        count = bisect.bisect_left(columns.positions, end - base, 0, columns.count)
        positions = array("q", columns.positions[:count].tobytes())  # copies: the next scan writes into the columns
        sizes = array("i", columns.record_sizes[:count].tobytes())
        return RecordStretch(at, base + positions[-1] + sizes[-1], RecordRun(buffer, positions, sizes))


def _looks_like_record(segment: Segment, position: int) -> bool:
    """Return whether the bytes have a record's magic and this physical offset, even if they are damaged."""
    if segment.wrote_position - position < PHYSICAL_OFFSET_AT + INT64.size:
        return False
    magic = INT32.unpack_from(segment.buffer, position + MAGIC_AT)[0]
    stored = INT64.unpack_from(segment.buffer, position + PHYSICAL_OFFSET_AT)[0]
    return magic in (MAGIC_V1, MAGIC_V2) and stored == segment.base_physical_offset + position
