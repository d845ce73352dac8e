# SPDX-License-Identifier: Apache-2.0
"""ScannedRecords: the columns of appended records that were scanned already, kept for the tails that reach them.

A follower scans each chunk of its leader before it appends it. Its tails need the same columns when the bytes become
visible, a moment later. Without this class each tail scans the records again, from pages that it first has to map.
The columns are kept as the response that a tail sends, some 60 bytes a record.
Invariants: a piece begins and ends with a record of the log, and has all records between; its response is equal, byte
by byte, to the response of a scan. Pieces are in the order of the log. At most SCANNED_BYTES_MAX bytes are kept, and
none that all tails have passed; without tails nothing is kept. Bytes of an open log never change, so a piece is never
stale; a truncated log is opened anew, with other ScannedRecords.
Callers: the loop that owns the log. Decision: docs/decisions/0070-a-follower-scans-once.md.
"""

import bisect
from collections.abc import Sequence
from dataclasses import dataclass, field
from operator import attrgetter
from typing import Final

from msgspec import Struct

from libs.formats.records import dispatch_columns
from libs.kernel.scan.scan_columns import ScanColumns

SCANNED_BYTES_MAX: Final = 8 << 20
"""Bytes of all kept pieces: the records of some 150 MB of messages of 1 KiB, more than arrive between two syncs."""
PIECE_OVERHEAD_BYTES: Final = 200
"""Counted for the objects of a piece."""

_START = attrgetter("start_physical_offset")


class ScannedPiece(Struct, frozen=True):
    """The records of [start, end)."""

    start_physical_offset: int
    end_physical_offset: int
    record_count: int
    response: bytes
    """The serialized DispatchResponse."""

    @property
    def held_bytes(self) -> int:
        """Size in memory."""
        return len(self.response) + PIECE_OVERHEAD_BYTES


@dataclass(slots=True, eq=False)
class ScannedReader:
    """The position of a tail. Pieces that begin at this offset or later are kept for it."""

    at: int


@dataclass(slots=True, eq=False)
class ScannedRecords:
    """The scanned records of an open log.

    Columns of fewer than `size_bytes_min` bytes of the log are not kept: a tail collects them to a larger step.
    """

    size_bytes_min: int
    delay_levels_ms: Sequence[int]
    """The columns must be scanned with these delays."""
    held_bytes: int = 0
    """Bytes of the kept pieces."""
    _pieces: list[ScannedPiece] = field(default_factory=list)
    _readers: list[ScannedReader] = field(default_factory=list)

    def enter(self, physical_offset: int) -> ScannedReader:
        """Keep pieces for a tail at this offset, until it leaves."""
        reader = ScannedReader(physical_offset)
        self._readers.append(reader)
        return reader

    def leave(self, reader: ScannedReader) -> None:
        """Keep nothing more for a tail."""
        self._readers.remove(reader)
        self._drop_passed()

    def note(self, columns: ScanColumns, start: int, end: int) -> None:
        """Keep the columns of the appended records of [start, end), if a tail may want them. Copies the columns."""
        if not self._readers or not columns.count or end - start < self.size_bytes_min:
            return
        piece = ScannedPiece(start, end, columns.count, dispatch_columns.encode(columns, start, end))
        self._pieces.append(piece)
        self.held_bytes += piece.held_bytes
        self._drop_passed()
        count, held_bytes = 0, self.held_bytes
        while held_bytes > SCANNED_BYTES_MAX:
            held_bytes -= self._pieces[count].held_bytes
            count += 1
        self._drop(count)

    def take(self, reader: ScannedReader, at: int, *, end_max: int, record_count_max: int) -> ScannedPiece | None:
        """Return the piece that begins at an offset, which the tail has reached, unless it exceeds a limit."""
        reader.at = at
        self._drop_passed()
        index = bisect.bisect_left(self._pieces, at, key=_START)
        piece = self._pieces[index] if index < len(self._pieces) else None
        if piece is None or piece.start_physical_offset != at:
            return None
        is_within = piece.end_physical_offset <= end_max and piece.record_count <= record_count_max
        return piece if is_within else None

    def next_start(self, at: int, end: int) -> int:
        """Return where the next piece behind `at` begins, at most `end`: a tail's own scan ends there."""
        index = bisect.bisect_right(self._pieces, at, key=_START)
        return min(end, self._pieces[index].start_physical_offset) if index < len(self._pieces) else end

    def _drop_passed(self) -> None:
        """Drop the pieces that all tails have passed."""
        if not self._pieces:
            return
        if not self._readers:
            self._drop(len(self._pieces))
        elif self._pieces[0].start_physical_offset < (lowest := min(reader.at for reader in self._readers)):
            self._drop(bisect.bisect_left(self._pieces, lowest, key=_START))

    def _drop(self, count: int) -> None:
        self.held_bytes -= sum(piece.held_bytes for piece in self._pieces[:count])
        del self._pieces[:count]
