# SPDX-License-Identifier: Apache-2.0
"""ChunkReader: the log as slices of raw bytes.

Invariants: a chunk is what the files have, byte by byte, blanks and what is behind them included, so that segments are
the same on all sides; it lies in one segment and in one epoch; the disk is read in a thread, so that cold segments hold
nobody up, and one that can't be read is an error with a place.
Callers: the loop that owns the log.
"""

import asyncio
from dataclasses import dataclass

from libs.formats.epoch import Epoch
from libs.requests.errors import RecordDamaged
from libs.segments.chain import SegmentChain
from libs.segments.errors import OffsetTrimmed, SegmentUnreadable
from libs.segments.segment import Segment
from services.commitlog.engine.keep.epochs import EpochHistory
from services.commitlog.engine.replicate.steps import Chunk
from services.commitlog.engine.write.marks import Marks

CHUNK_SIZE_BYTES_MAX = 1 << 20


@dataclass(frozen=True, slots=True, eq=False)
class ChunkReader:
    """Of one log."""

    _chain: SegmentChain
    _epochs: EpochHistory
    _marks: Marks

    async def read(self, start: int) -> Chunk:
        """Return the next bytes of what is in the files. There must be some.

        Raises OffsetTrimmed when they are gone, and RecordDamaged when the disk can't read them.
        """
        segment = self._chain.find(start)
        epoch, epoch_end = self._epoch_at(start)
        base = segment.base_physical_offset
        end = min(start + CHUNK_SIZE_BYTES_MAX, base + segment.size_bytes, epoch_end, self._marks.committed.value)
        try:
            data = await asyncio.to_thread(_read, segment, start - base, end - base)
        except SegmentUnreadable as error:
            raise RecordDamaged(segment=segment.path.name, position=error.position, reason=error.reason) from error
        if not data:
            raise OffsetTrimmed(value=start, min_offset=self._chain.min_physical_offset)
        return Chunk(start, data, epoch, self._marks.visible.value, self._marks.replicated.wanted)

    def _epoch_at(self, physical_offset: int) -> tuple[Epoch, int]:
        """Return the epoch that wrote the byte at an offset, and where its part of the log ends at the latest."""
        epochs = self._epochs.epochs
        later = next((one for one in epochs if one.start_physical_offset > physical_offset), None)
        earlier = [one for one in epochs if one.start_physical_offset <= physical_offset]
        epoch = earlier[-1] if earlier else epochs[0]
        return epoch, self._marks.committed.value if later is None else later.start_physical_offset


def _read(segment: Segment, start: int, end: int) -> bytes:
    """Return bytes of a segment, none if it was deleted meanwhile."""
    if not segment.hold():
        return b""
    try:
        segment.check_readable(start, end)
        return bytes(segment.buffer[start:end])
    finally:
        segment.release()
