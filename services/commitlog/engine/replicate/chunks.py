# SPDX-License-Identifier: Apache-2.0
"""ChunkReader: reads the log as chunks of raw bytes, each serialized for its followers.

Invariants: a chunk has exactly the bytes of the files, blank records and padding included, so that segments are equal
on all members; it lies in a single segment and a single epoch. New data is in the page cache and is copied at once.
Old data is first read from the disk in a thread, so that cold segments do not block the event loop; a read error names
the segment and the position.
Callers: the loop that owns the log.
"""

import asyncio
from dataclasses import dataclass, field, replace

from libs.formats import fields
from libs.formats.crc import crc32
from libs.formats.epoch import Epoch
from libs.formats.protobuf_wire import FIXED32, LENGTH_DELIMITED, int_field, tag, varint
from libs.requests.errors import RecordDamaged
from libs.segments.chain import SegmentChain
from libs.segments.errors import OffsetTrimmed, SegmentUnreadable
from libs.segments.segment import Segment
from services.commitlog.engine.keep.epochs import EpochHistory
from services.commitlog.engine.replicate.steps import Chunk
from services.commitlog.engine.write.marks import Marks

CHUNK_SIZE_BYTES_MAX = 4 << 20
"""Of new data. A large chunk costs both sides less than four small chunks, and ends where a batch ends."""
COLD_CHUNK_SIZE_BYTES_MAX = 1 << 20
"""Of old data: a follower that catches up leaves time for the others."""
NEW_BYTES = 256 << 20
"""The last bytes of the log that are assumed to be in the page cache."""
READ_AHEAD_BYTES = 8 << 20
"""Size of a read of old data from the disk."""


@dataclass(slots=True, eq=False)
class ChunkReader:
    """The reader of a stream."""

    _chain: SegmentChain
    _epochs: EpochHistory
    _marks: Marks
    _written_from: int = field(init=False)
    """Bytes from here on were written after the stream began."""
    _read_to: int = 0
    """End of the data that was already read from the disk."""

    def __post_init__(self) -> None:
        self._written_from = self._marks.committed.value

    def is_new(self, start: int) -> bool:
        """Return whether the bytes at `start` are new data."""
        return start >= max(self._written_from, self._marks.committed.value - NEW_BYTES)

    async def read(self, start: int, size_bytes_max: int, *, is_hurried: bool) -> Chunk:
        """Return at most `size_bytes_max` bytes from `start` on, serialized. The log must have bytes there.

        `is_hurried` asks for an fsync of the chunk's own bytes.

        Raises OffsetTrimmed if they were deleted, and RecordDamaged if the disk cannot read them.
        """
        segment, is_new = self._chain.find(start), self.is_new(start)
        epoch, epoch_end = self._epoch_at(start)
        base = segment.base_physical_offset
        chunk_size_bytes_max = CHUNK_SIZE_BYTES_MAX if is_new else COLD_CHUNK_SIZE_BYTES_MAX
        end = min(
            start + min(chunk_size_bytes_max, size_bytes_max),
            base + segment.size_bytes,
            epoch_end,
            self._marks.committed.value,
        )
        try:
            if not segment.hold():
                raise OffsetTrimmed(value=start, min_offset=self._chain.min_physical_offset)
            try:
                if not is_new and end > self._read_to:
                    await self._read_ahead(segment, start)
                return self._serialized(start, segment.buffer[start - base : end - base], epoch, is_hurried=is_hurried)
            finally:
                segment.release()
        except SegmentUnreadable as error:
            raise RecordDamaged(segment=segment.path.name, position=error.position, reason=error.reason) from error

    def _serialized(self, start: int, data: memoryview, epoch: Epoch, *, is_hurried: bool) -> Chunk:
        sync_to = start + len(data) if is_hurried else self._marks.replicated.wanted
        chunk = Chunk(start, data, epoch, self._marks.visible.value, sync_to)
        response = chunk_response(chunk)
        return replace(chunk, data=memoryview(response)[-len(data) :], response=response)

    async def _read_ahead(self, segment: Segment, start: int) -> None:
        """Read the next bytes of a segment into the page cache. Raises SegmentUnreadable."""
        base = segment.base_physical_offset
        end = min(start + READ_AHEAD_BYTES, base + segment.wrote_position)
        await asyncio.to_thread(segment.check_readable, start - base, end - base)
        self._read_to = end

    def _epoch_at(self, physical_offset: int) -> tuple[Epoch, int]:
        """Return the epoch of the byte at an offset, and the end of that epoch's part of the log."""
        epochs = self._epochs.epochs
        later = next((epoch for epoch in epochs if epoch.start_physical_offset > physical_offset), None)
        earlier = [epoch for epoch in epochs if epoch.start_physical_offset <= physical_offset]
        epoch = earlier[-1] if earlier else epochs[0]
        return epoch, self._marks.committed.value if later is None else later.start_physical_offset


def chunk_response(chunk: Chunk) -> bytes:
    """Return a serialized ReplicateResponse. Its data are the last bytes of it, and are copied once."""
    head = b"".join(
        (
            int_field(fields.REPLICATE_CHUNK_START_PHYSICAL_OFFSET, chunk.start_physical_offset),
            int_field(fields.REPLICATE_CHUNK_EPOCH, chunk.epoch.number),
            int_field(fields.REPLICATE_CHUNK_CONFIRMED_PHYSICAL_OFFSET, chunk.confirmed_physical_offset),
            int_field(fields.REPLICATE_CHUNK_EPOCH_START_PHYSICAL_OFFSET, chunk.epoch.start_physical_offset),
            int_field(fields.REPLICATE_CHUNK_SYNC_TO_PHYSICAL_OFFSET, chunk.sync_to_physical_offset),
            tag(fields.REPLICATE_CHUNK_CHECKSUM, FIXED32) + crc32(chunk.data).to_bytes(4, "little"),
            tag(fields.REPLICATE_CHUNK_DATA, LENGTH_DELIMITED) + varint(len(chunk.data)),
        )
    )
    size_bytes = varint(len(head) + len(chunk.data))
    return b"".join((tag(fields.REPLICATE_RESPONSE_CHUNK, LENGTH_DELIMITED), size_bytes, head, chunk.data))
