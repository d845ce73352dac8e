# SPDX-License-Identifier: Apache-2.0
"""LogTailWriter: appends bytes at the end of the log. Only it moves the end.

Invariants: `wrote` advances only after all bytes are in the page cache (or the pool). The blocks of the active segment
are reserved, so a write cannot lack space. A failed write sets the seal. With synchronous flushing, readers see only
synced bytes, so a sync is requested for all written bytes at once, also if no caller waits.
Nothing here waits, with a single exception: a new segment waits for a free buffer of the pool. RocketMQ would write the
new segment in place then. The file would hold later bytes than the pool, and a crash would leave a hole.
Callers: a single writer, in the loop that owns the log. Not handled: the content of the bytes.
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
"""For fewer bytes no early write to the disk is started."""
EARLY_BYTES_MAX = 16 * MIB


@dataclass(slots=True, eq=False)
class LogTailWriter:
    """The writer at the end of the log. Callers build the next bytes in a segment's room, and `put` appends them."""

    _chain: SegmentChain
    _state: LogState
    _marks: Marks
    _gate: WriteGate
    _seal: Seal
    roll_count: int = 0
    _begun_physical_offset: int = 0
    """End of the last early write to the disk."""

    async def segment(self, *, first_base_physical_offset: int = 0) -> Segment:
        """Return the segment for the next bytes. A log without segments begins at `first_base_physical_offset`.

        Raises `WriteGate.sealed`, StoreFull, or the errors of `WriteGate.check`.
        """
        return self.active() or await self._roll(first_base_physical_offset)

    def active(self) -> Segment | None:
        """Return the segment for the next bytes, or None if a new segment is needed. Raises `WriteGate.sealed`."""
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
        """Append the first bytes of the segment's room. Raises `WriteGate.sealed` before anything is appended.

        Followers learn together with the bytes whether a caller is about to wait for their disks.
        """
        if durability == DURABILITY_REPLICATED or self._marks.is_replicated_at_once:
            self._marks.replicated.hurry(segment.end_physical_offset + size_bytes)
        try:
            segment.put(size_bytes)
        except SyncFailed as error:
            raise self._sealed(error) from error
        self._moved(segment)

    def put_from(self, segment: Segment, data: memoryview) -> None:
        """Append bytes from outside of the segment's room. No caller waits for their durability. Raises as `put`."""
        try:
            segment.put_from(data)
        except SyncFailed as error:
            raise self._sealed(error) from error
        self._moved(segment)

    def close(self, segment: Segment) -> None:
        """Fill a segment that has no room for the next bytes. Raises `WriteGate.sealed`."""
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
        """Start to write bytes to the disk before the next sync, while the previous sync may still run.

        Otherwise the disk would be idle between two syncs. With more than EARLY_BYTES_MAX unsynced bytes nothing is
        started: the disk's queue would make the call wait.
        """
        start = max(self._begun_physical_offset, segment.base_physical_offset)
        if end - start >= EARLY_BYTES_MIN and end - self._marks.flushed.value <= EARLY_BYTES_MAX:
            self._begun_physical_offset = end
            segment.write_out(start - segment.base_physical_offset)

    async def _roll(self, first_base_physical_offset: int) -> Segment:
        """Return the next segment. Another batch may have begun it while this batch waited for a free buffer."""
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
