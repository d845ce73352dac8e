# SPDX-License-Identifier: Apache-2.0
"""ChunkReader: the log as slices of raw bytes.

Invariants: a chunk is what the files have, byte by byte, blanks and what is behind them included, so that segments are
the same on all sides; it lies in one segment and in one epoch. What was written a moment ago is in memory and is shown
as it is; all else is read from the disk first, in a thread, so that cold segments hold nobody up, and one that can't be
read is an error with a place.
Callers: the loop that owns the log.
"""

import asyncio
from dataclasses import dataclass, field

from libs.formats.epoch import Epoch
from libs.requests.errors import RecordDamaged
from libs.segments.chain import SegmentChain
from libs.segments.errors import OffsetTrimmed, SegmentUnreadable
from libs.segments.segment import Segment
from services.commitlog.engine.keep.epochs import EpochHistory
from services.commitlog.engine.replicate.steps import Chunk
from services.commitlog.engine.write.marks import Marks

CHUNK_SIZE_BYTES_MAX = 4 << 20
"""Of what is new. It costs both sides less by the byte than four chunks of a quarter, and ends where a batch ends."""
COLD_CHUNK_SIZE_BYTES_MAX = 1 << 20
"""Of all else, so that who catches up leaves time to others."""
NEW_BYTES = 256 << 20
"""So much of what the log has written last is taken to be in memory."""
READ_AHEAD_BYTES = 8 << 20
"""So much of all else is read from the disk at a time."""


@dataclass(slots=True, eq=False)
class ChunkReader:
    """For one stream."""

    _chain: SegmentChain
    _epochs: EpochHistory
    _marks: Marks
    _written_from: int = field(init=False)
    """What is behind this was written since the stream began."""
    _read_to: int = 0
    """End of what was read from the disk already."""

    def __post_init__(self) -> None:
        self._written_from = self._marks.committed.value

    def is_new(self, start: int) -> bool:
        """Return whether the bytes there were written a moment ago."""
        return start >= max(self._written_from, self._marks.committed.value - NEW_BYTES)

    async def read(self, start: int, size_bytes_max: int) -> Chunk:
        """Return the next bytes of what is in the files, as a view, so many at most. There must be some.

        Raises OffsetTrimmed when they are gone, and RecordDamaged when the disk can't read them.
        """
        segment, is_new = self._chain.find(start), self.is_new(start)
        epoch, epoch_end = self._epoch_at(start)
        base = segment.base_physical_offset
        most = CHUNK_SIZE_BYTES_MAX if is_new else COLD_CHUNK_SIZE_BYTES_MAX
        end = min(start + min(most, size_bytes_max), base + segment.size_bytes, epoch_end, self._marks.committed.value)
        try:
            if not segment.hold():
                raise OffsetTrimmed(value=start, min_offset=self._chain.min_physical_offset)
            try:
                if not is_new and end > self._read_to:
                    await self._read_ahead(segment, start)
                data = segment.buffer[start - base : end - base]
            finally:
                segment.release()
        except SegmentUnreadable as error:
            raise RecordDamaged(segment=segment.path.name, position=error.position, reason=error.reason) from error
        return Chunk(start, data, epoch, self._marks.visible.value, self._marks.replicated.wanted)

    async def _read_ahead(self, segment: Segment, start: int) -> None:
        """Have the next bytes of a segment in memory. Raises SegmentUnreadable."""
        base = segment.base_physical_offset
        end = min(start + READ_AHEAD_BYTES, base + segment.wrote_position)
        await asyncio.to_thread(segment.check_readable, start - base, end - base)
        self._read_to = end

    def _epoch_at(self, physical_offset: int) -> tuple[Epoch, int]:
        """Return the epoch that wrote the byte at an offset, and where its part of the log ends at the latest."""
        epochs = self._epochs.epochs
        later = next((one for one in epochs if one.start_physical_offset > physical_offset), None)
        earlier = [one for one in epochs if one.start_physical_offset <= physical_offset]
        epoch = earlier[-1] if earlier else epochs[0]
        return epoch, self._marks.committed.value if later is None else later.start_physical_offset
