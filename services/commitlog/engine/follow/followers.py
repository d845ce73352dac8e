# SPDX-License-Identifier: Apache-2.0
"""Followers: handshakes with followers on the common history, their dispatch tails, and their reports.

Invariant: after `drain`, no stream of this log continues. The log may be opened anew, with other Followers.

Callers: the loop that owns the log. Not handled: the streams themselves (rpc).
"""

import weakref
from collections.abc import Sequence
from dataclasses import dataclass, field

from msgspec import Struct

from libs.formats.epoch import Epoch
from libs.kernel.scan.scan_columns import ScanColumns
from libs.log.common_history import assumed, common_end
from libs.requests.errors import BadArgument, Stopping
from libs.segments.chain import SegmentChain
from services.commitlog.config import CommitLogConfig
from services.commitlog.engine.follow.dispatch import DispatchTail
from services.commitlog.engine.follow.reader import RecordReader
from services.commitlog.engine.keep.checkpoint import CheckpointKeeper, IndexerReport
from services.commitlog.engine.keep.epochs import EpochHistory
from services.commitlog.engine.write.marks import Marks
from services.commitlog.engine.write.scanned import ScannedRecords
from services.commitlog.errors import StaleEpoch

KEYS_PER_RECORD = 4
"""Room for the keys of an average record. A step with more keys ends earlier."""


class Handshake(Struct, frozen=True):
    """The end of the common history of a follower and the log, and the start of its stream."""

    common_end_physical_offset: int
    epoch: int
    history_id: str
    min_physical_offset: int
    confirmed_physical_offset: int
    start_physical_offset: int
    epochs: Sequence[Epoch]


@dataclass(slots=True, eq=False)
class Followers:
    """The followers of a log with known epochs."""

    _chain: SegmentChain
    _epochs: EpochHistory
    _marks: Marks
    _reader: RecordReader
    _checkpoint: CheckpointKeeper
    _config: CommitLogConfig
    scanned: ScannedRecords = field(init=False)
    """Records that were scanned before they were appended, for the tails."""
    damage_count: int = 0
    """Number of tails that ended because a record can't be read."""
    _tails: weakref.WeakSet[DispatchTail] = field(default_factory=weakref.WeakSet)
    _is_draining: bool = False

    def __post_init__(self) -> None:
        self.scanned = ScannedRecords(self._config.dispatch_size_bytes_min, self._config.delay_levels_ms())

    def drain(self) -> None:
        """End all streams with Stopping, and refuse new ones."""
        self._is_draining = True
        for tail in self._tails:
            tail.stop()

    def wake(self) -> None:
        """Make all streams yield their next step at once."""
        for tail in self._tails:
            tail.wake()

    def check_draining(self) -> None:
        """Raise Stopping after `drain`. For streams without a tail."""
        if self._is_draining:
            raise Stopping

    def handshake(self, physical_offset: int, epoch: int, epochs: Sequence[Epoch] = ()) -> Handshake:
        """Return the offset at which a follower continues. It holds the log up to an offset, and is in an epoch.

        `epochs` are all its epochs up to this epoch; without them it knows only the number. Raises NotARecord when it
        would continue in the middle of a record.
        """
        mine = self._epochs.epochs
        end = common_end(mine, self._marks.committed.value, epochs or assumed(mine, epoch), physical_offset)
        start = max(end, self._chain.min_physical_offset)
        self._reader.check_boundary(start)
        return Handshake(
            common_end_physical_offset=end,
            epoch=self._epochs.number,
            history_id=self._epochs.history_id,
            min_physical_offset=self._chain.min_physical_offset,
            confirmed_physical_offset=self._marks.visible.value,
            start_physical_offset=start,
            epochs=mine,
        )

    def tail(self, *, start_physical_offset: int, record_count_max: int) -> DispatchTail:
        """Follow the log from the first byte of a record. Raises Stopping after `drain`."""
        self.check_draining()
        key_count_max = KEYS_PER_RECORD * record_count_max
        columns = ScanColumns(record_count_max, key_count_max, self.scanned.delay_levels_ms)
        tail = DispatchTail(
            self._chain, self._marks.visible, self._config, start_physical_offset, columns, self._count_damage,
            self._epochs, self._epochs.number, self.scanned,
        )  # fmt: skip
        self._tails.add(tail)
        return tail

    def check(self, epoch: int, history_id: str) -> None:
        """Raise StaleEpoch or BadArgument for a follower of another epoch, or of another history (empty: unknown)."""
        mine = self._epochs
        if history_id and mine.history_id and history_id != mine.history_id:
            raise StaleEpoch(epoch=mine.number, field="history_id")
        if 0 < epoch < mine.number:
            raise StaleEpoch(epoch=mine.number)
        if epoch != mine.number:
            raise BadArgument("the log has no such epoch", field="epoch", value=epoch, limit=mine.number)

    def report(self, report: IndexerReport) -> None:
        """Pass a report to `CheckpointKeeper.report`. Also raises the errors of `check`."""
        self.check(report.epoch, report.history_id)
        self._checkpoint.report(report)

    def _count_damage(self) -> None:
        self.damage_count += 1
