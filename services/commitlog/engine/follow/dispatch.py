# SPDX-License-Identifier: Apache-2.0
"""DispatchTail: follows the log from an offset, and yields columns from which followers build indexes.

Invariants: steps are contiguous (each begins at the end of the step before it) and never pass the visible end. A record
that can't be read ends the tail with RecordDamaged and is never skipped (RocketMQ skips the rest of the file).
The tail wakes when more bytes are visible, and also at each heartbeat. The first record after a pause is sent at once.
On a follower, the columns of most steps are from the scan that the records had before they were appended.
Small appends in quick succession are collected for some milliseconds, because the cost of a step does not depend on its
size.
Callers: the loop that owns the log; a task for each tail. The columns of a step are reused for the next step.
Rules: docs/formats/commit_log.md section 9; RocketMQ's counterpart is ReputMessageService.
"""

import asyncio
import logging
from collections.abc import AsyncGenerator, Callable
from dataclasses import dataclass

from msgspec import Struct

from libs.kernel import layout
from libs.kernel.scan import scan_cy
from libs.kernel.scan.scan_columns import ScanColumns
from libs.log.end import STATUS_REASONS
from libs.log.watermark import Watermark
from libs.requests.errors import RecordDamaged, Stopping
from libs.segments.chain import SegmentChain
from libs.segments.segment import Segment, SegmentHold
from services.commitlog.config import CommitLogConfig
from services.commitlog.engine.keep.epochs import EpochHistory
from services.commitlog.engine.write.scanned import ScannedReader, ScannedRecords
from services.commitlog.errors import BelowMinOffset, StaleEpoch

_log = logging.getLogger(__name__)


class TailStep(Struct, frozen=True):
    """The records of [start, end): their columns, or the response with their columns. Neither if nothing is new."""

    start_physical_offset: int
    end_physical_offset: int
    columns: ScanColumns | None = None
    response: bytes = b""
    """A serialized DispatchResponse."""


@dataclass(slots=True, eq=False, weakref_slot=True)
class DispatchTail:
    """The stream of steps for a follower, at the physical offset `_at`."""

    _chain: SegmentChain
    _visible: Watermark
    _config: CommitLogConfig
    _at: int
    _columns: ScanColumns
    _on_damage: Callable[[], None]
    _epochs: EpochHistory
    _epoch: int
    _scanned: ScannedRecords
    _hold: SegmentHold | None = None
    _next_step_s: float = 0.0
    _more: asyncio.Future[None] | None = None
    _is_stopped: bool = False

    def stop(self) -> None:
        """End the stream with Stopping instead of its next step."""
        self._is_stopped = True
        self.wake()

    def wake(self) -> None:
        """Yield the next step at once, also without a record."""
        if self._more is not None:
            self._more.cancel()

    async def steps(self) -> AsyncGenerator[TailStep, None]:
        """Yield steps without an end.

        Raises Stopping, RecordDamaged, BelowMinOffset when the offset was deleted meanwhile, and StaleEpoch when the
        log has begun another epoch, as a follower of a new leader does.
        """
        reader = self._scanned.enter(self._at)
        try:
            while True:
                if self._at >= self._visible.value:
                    await self._wait()
                if self._is_stopped:
                    raise Stopping
                if self._epochs.number != self._epoch:
                    raise StaleEpoch(epoch=self._epochs.number)
                if self._at < self._visible.value:
                    await self._collect()
                    yield self._step(reader)
                else:
                    yield TailStep(self._at, self._at)
        finally:
            self._keep(None)
            self._scanned.leave(reader)

    async def _wait(self) -> None:
        """Wait until more bytes are visible, at most for a heartbeat."""
        self._more = self._visible.reached(self._at + 1)
        try:
            await asyncio.wait([self._more], timeout=self._config.dispatch_heartbeat_ms / 1000)
        finally:
            self._more.cancel()

    async def _collect(self) -> None:
        """Wait until the next step is due, unless it is already large."""
        now_s = asyncio.get_running_loop().time
        if self._visible.value - self._at < self._config.dispatch_size_bytes_min and self._next_step_s > now_s():
            await asyncio.sleep(self._next_step_s - now_s())
        self._next_step_s = now_s() + self._config.dispatch_interval_ms / 1000

    def _step(self, reader: ScannedReader) -> TailStep:
        if self._at < self._chain.min_physical_offset:
            raise BelowMinOffset(self._at, min_physical_offset=self._chain.min_physical_offset)
        segment = self._chain.find(self._at)
        self._keep(segment)
        base, start, columns, scanned = segment.base_physical_offset, self._at, self._columns, self._scanned
        end, count_max = min(self._visible.value, segment.end_physical_offset), len(columns.positions)
        if (piece := scanned.take(reader, start, end_max=end, record_count_max=count_max)) is not None:
            self._at = piece.end_physical_offset
            return TailStep(start, self._at, response=piece.response)
        readable = scanned.next_start(start, end) - base
        status = scan_cy.scan(segment.buffer, start - base, readable, base, False, columns)
        end_position = columns.end_position
        if status == layout.S_BLANK:
            end_position = segment.size_bytes
        elif columns.count == 0:
            reason = STATUS_REASONS[status]
            error = RecordDamaged(segment=segment.path.name, position=columns.error_position, reason=reason)
            _log.critical("dispatch stops at physical offset %d: %s", start, error)
            self._on_damage()
            raise error
        self._at = base + end_position
        return TailStep(start, self._at, columns)

    def _keep(self, segment: Segment | None) -> None:
        """Hold the segment that is being read, and release any other."""
        if self._hold is not None and (self._hold.segment is not segment or not self._hold.is_held):
            self._hold.let_go()
            self._hold = None
        if self._hold is None and segment is not None:
            self._hold = SegmentHold(segment)
