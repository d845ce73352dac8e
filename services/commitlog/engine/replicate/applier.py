# SPDX-License-Identifier: Apache-2.0
"""Applier: appends the leader's chunks to a follower's log and updates the state of the log.

Invariants: the applier writes only whole, valid records, each at its own physical offset, and a writer's batch only as
a whole, so that the follower can lead at any time. Incomplete records and batches wait in memory, at most one segment.
The epoch file has an epoch before the log has its first byte. Invalid bytes end the stream before they are written;
nothing is skipped (RocketMQ's HAClient appends unchecked bytes).
Callers: the loop that owns the log.
"""

import contextlib
from collections.abc import Sequence

from libs.formats.epoch import Epoch
from libs.formats.errors import FormatError
from libs.formats.limits import BATCH_MESSAGE_COUNT_MAX
from libs.formats.records import writer_stamp
from libs.formats.records.writer_stamp import WriterStamp
from libs.kernel import layout
from libs.kernel.scan import scan_cy
from libs.kernel.scan.scan_columns import ScanColumns
from libs.log.end import STATUS_REASONS
from libs.requests.errors import RecordDamaged
from libs.segments.chain import SegmentChain
from services.commitlog.engine.keep.epochs import EpochHistory
from services.commitlog.engine.keep.small_files import SmallFiles
from services.commitlog.engine.replicate.steps import Chunk
from services.commitlog.engine.write.gate import WriteGate
from services.commitlog.engine.write.scanned import ScannedRecords
from services.commitlog.engine.write.state import LogState
from services.commitlog.engine.write.tail import LogTailWriter

_MORE_MAY_COME = (0, layout.S_FULL, layout.S_TRUNCATED)
"""Scan results for an incomplete record or full columns."""

RECORD_SIZE_BYTES = 4
"""A record begins with its size."""
JOINED_BYTES_MAX = 64 << 10
"""Up to this size a chunk is copied behind the bytes that wait for it: this costs less than another write."""


class Applier:
    """The applier of one log."""

    def __init__(
        self,
        chain: SegmentChain,
        tail: LogTailWriter,
        state: LogState,
        epochs: EpochHistory,
        small_files: SmallFiles,
        gate: WriteGate,
        scanned: ScannedRecords,
    ) -> None:
        self._chain = chain
        self._tail = tail
        self._state = state
        self._epochs = epochs
        self._small_files = small_files
        self._gate = gate
        self._scanned = scanned
        self._columns = ScanColumns(BATCH_MESSAGE_COUNT_MAX, 4 * BATCH_MESSAGE_COUNT_MAX, scanned.delay_levels_ms)
        self._start = chain.max_physical_offset
        self._rest = b""
        self._leader_epochs: Sequence[Epoch] = ()

    @property
    def received_physical_offset(self) -> int:
        """End of the received bytes. Bytes behind the end of the log wait for the rest of their record or batch."""
        return self._start + len(self._rest)

    def begin(self, physical_offset: int, leader_epochs: Sequence[Epoch]) -> None:
        """Continue at the end of the log. An empty log begins where the leader's log begins.

        The log has the leader's epochs up to this offset, and takes over the later epochs as their bytes arrive.
        """
        assert not self._chain.segments or physical_offset == self._chain.max_physical_offset
        self._start, self._rest, self._leader_epochs = physical_offset, b"", leader_epochs

    async def apply(self, chunk: Chunk) -> None:
        """Write the records that the chunk completes.

        Raises RecordDamaged for invalid or misplaced bytes, AppendsRefused and StoreFull on a full disk, and
        StoreSealed.
        """
        if chunk.start_physical_offset != self.received_physical_offset:
            raise self._damaged(len(self._rest), f"the next chunk begins at {chunk.start_physical_offset}")
        if chunk.epoch.number != self._epochs.number:
            reason = f"these bytes are of epoch {chunk.epoch.number}, the log is in {self._epochs.number} there"
            raise self._damaged(len(self._rest), reason)
        self._gate.check_room()
        former, self._rest = self._rest, b""  # the remainder is stored below; an error ends the stream
        data = memoryview(chunk.data)
        if former:
            data = await self._continue(former, data)
        self._rest = bytes(data[await self._write_whole(data) :])
        await self._follow_epochs()

    async def _continue(self, former: bytes, data: memoryview) -> memoryview:
        """Return the bytes that come next, of a chunk and of the bytes that wait for it.

        A single incomplete record is completed and written first, so that a large chunk need not be copied behind it.
        """
        missing_bytes = int.from_bytes(former[:RECORD_SIZE_BYTES], "big") - len(former)
        if len(data) > JOINED_BYTES_MAX and len(former) >= RECORD_SIZE_BYTES and 0 < missing_bytes < len(data):
            record = b"".join((former, data[:missing_bytes]))
            if await self._write_whole(memoryview(record)):
                return data[missing_bytes:]
        return memoryview(b"".join((former, data)))

    async def _write_whole(self, data: memoryview) -> int:
        """Write the records at the beginning of the data that can be written now. Returns their bytes."""
        written = 0
        while size_bytes := self._whole_size(data, written):
            await self._write(data[written : written + size_bytes])
            written += size_bytes
        return written

    async def _follow_epochs(self) -> None:
        """Begin all epochs that the leader began up to the end of the log, including epochs without bytes."""
        number, end = self._epochs.number, self._start
        begun = [epoch for epoch in self._leader_epochs if epoch.number > number and epoch.start_physical_offset <= end]
        if begun:
            await self._small_files.write(lambda: self._epochs.follow(begun), with_ballast=True)

    def _whole_size(self, rest: memoryview, at: int) -> int:
        """Return how many bytes of the rest can be written now, and scan them into the columns.

        Returns 0 if more bytes must arrive first.
        """
        columns, start, arrived_end = self._columns, self._start, self._start + len(rest) - at
        segment_end = start - start % self._chain.segment_size_bytes + self._chain.segment_size_bytes
        status = scan_cy.scan(rest, at, len(rest), start - at, True, columns)
        if status == layout.S_BLANK and columns.count == 0:
            return segment_end - start if arrived_end == segment_end else 0
        claimed_size_bytes = int.from_bytes(rest[columns.end_position : columns.end_position + 4], "big")
        has_no_end = status == layout.S_TRUNCATED and (
            start - at + columns.end_position + claimed_size_bytes > segment_end or arrived_end == segment_end
        )
        if has_no_end or status not in (*_MORE_MAY_COME, layout.S_BLANK):
            raise self._damaged(columns.error_position - at, STATUS_REASONS[status])
        end = start - at + columns.end_position
        if status != layout.S_BLANK and (batch := self._last_batch()) is not None:
            has_before, has_arrived = batch.start_physical_offset > start, batch.end_physical_offset <= arrived_end
            if end < batch.end_physical_offset < segment_end and (has_before or not has_arrived):
                end = batch.start_physical_offset
                scan_cy.scan(rest, at, end - start + at, start - at, False, columns)
        return end - start

    def _last_batch(self) -> WriterStamp | None:
        """Return the stamp of the last batch of a writer that begins among the scanned records."""
        for index, value in reversed(self._columns.stamps):
            with contextlib.suppress(FormatError):
                stamp = writer_stamp.decode(value)
                if stamp.start_physical_offset == self._columns.physical_offsets[index]:
                    return stamp
        return None

    async def _write(self, data: memoryview) -> None:
        segment = await self._tail.segment(first_base_physical_offset=self._start)
        self._tail.put_from(segment, data)
        self._state.note(self._columns, segment, has_writers=True)
        end = self._start + len(data)
        self._scanned.note(self._columns, self._start, end)
        self._start = end

    def _damaged(self, position: int, reason: str) -> RecordDamaged:
        return RecordDamaged(segment="of the leader", position=self._start + position, reason=reason)
