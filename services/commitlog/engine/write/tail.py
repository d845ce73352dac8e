# SPDX-License-Identifier: Apache-2.0
"""LogTailWriter: the end of the log, and the one place that moves it.

Invariants: `wrote` moves only after all bytes are in the page cache (or the pool); the segment that takes bytes has its
blocks reserved, so that a write can't lack space; after a write that failed the seal is set. With synchronous flushing
readers see what is synced, so whatever is written is asked to be synced at once, whether somebody waits for it or not.
Nothing here waits, except at a new segment for a free buffer of the pool. RocketMQ would write the new segment in place
then; the file would hold later bytes than the pool, and a crash would leave a hole.
Callers: one writer, in the loop that owns the log. Not handled: what the bytes are.
"""

from dataclasses import dataclass

from libs.formats.limits import KIB, MIB
from libs.formats.records.record import encode_blank
from libs.requests.errors import ServiceError
from libs.segments.chain import SegmentChain
from libs.segments.errors import SyncFailed
from libs.segments.segment import Segment
from services.commitlog.engine.write.gate import WriteGate
from services.commitlog.engine.write.marks import DURABILITY_REPLICATED, DURABILITY_STORE, Marks
from services.commitlog.engine.write.seal import Seal
from services.commitlog.engine.write.state import LogState

EARLY_BYTES_MIN = 256 * KIB
"""For less the disk is not told to begin."""
EARLY_BYTES_MAX = 16 * MIB


@dataclass(slots=True, eq=False)
class LogTailWriter:
    """The bytes of the next piece are made in the room of a segment, and `put` adds them to the log."""

    _chain: SegmentChain
    _state: LogState
    _marks: Marks
    _gate: WriteGate
    _seal: Seal
    roll_count: int = 0
    _begun_physical_offset: int = 0
    """Up to where the disk was told to begin."""

    async def segment(self, *, first_base_physical_offset: int = 0) -> Segment:
        """Return the segment for the next piece. A log without any begins at `first_base_physical_offset`.

        Raises `WriteGate.sealed`, StoreFull, or what the gate raises meanwhile.
        """
        return self.active() or await self._roll(first_base_physical_offset)

    def active(self) -> Segment | None:
        """Return the segment for the next piece, or None if one has to be made. Raises `WriteGate.sealed`."""
        active = self._chain.active
        if active is None or active.is_full:
            return None
        if active.reserved_position < active.size_bytes:
            try:
                active.reserve(active.size_bytes)
            except SyncFailed as error:
                raise self._sealed(error) from error
        return active

    def put(self, segment: Segment, size_bytes: int, durability: int = DURABILITY_STORE) -> None:
        """Add the first bytes of the segment's room. Raises `WriteGate.sealed`, and then nothing was added.

        Those that follow hear with the bytes whether somebody is about to wait for their disks.
        """
        if durability == DURABILITY_REPLICATED or self._marks.is_replicated_at_once:
            self._marks.replicated.hurry(segment.end_physical_offset + size_bytes)
        try:
            segment.put(size_bytes)
        except SyncFailed as error:
            raise self._sealed(error) from error
        self._moved(segment)

    def put_from(self, segment: Segment, data: memoryview) -> None:
        """Add bytes that are not in the segment's room, for which nobody waits. Raises as `put`."""
        try:
            segment.put_from(data)
        except SyncFailed as error:
            raise self._sealed(error) from error
        self._moved(segment)

    def close(self, segment: Segment) -> None:
        """Fill a segment that has no room for the next piece. Raises `WriteGate.sealed`."""
        try:
            segment.fill(encode_blank(segment.size_bytes - segment.wrote_position))
        except SyncFailed as error:
            raise self._sealed(error) from error
        self._moved(segment)

    def _moved(self, segment: Segment) -> None:
        end = segment.end_physical_offset
        self._marks.wrote.advance(end)
        if self._marks.is_synced_at_once:
            self._marks.flushed.hurry(end)
            self._begin_early(segment, end)

    def _begin_early(self, segment: Segment, end: int) -> None:
        """Let the disk begin with what the next sync will wait for, while the one before is still under way.

        Otherwise it does nothing between two syncs. Not for more than its queue takes without a wait.
        """
        start = max(self._begun_physical_offset, segment.base_physical_offset)
        if end - start >= EARLY_BYTES_MIN and end - self._marks.flushed.value <= EARLY_BYTES_MAX:
            self._begun_physical_offset = end
            segment.write_out(start - segment.base_physical_offset)

    async def _roll(self, first_base_physical_offset: int) -> Segment:
        """Return the next segment, which another batch may have begun while this one waited for a free buffer."""
        while not self._chain.can_roll:
            await self._marks.committed.soon(self._marks.wrote.value)
            self._gate.check()
            if (segment := self.active()) is not None:
                return segment
        segment = self._chain.roll(first_base_physical_offset=first_base_physical_offset)
        self.roll_count += 1
        self._state.is_worth_saving.set()
        return segment

    def _sealed(self, error: SyncFailed) -> ServiceError:
        self._seal.set(error)
        return self._gate.sealed()
