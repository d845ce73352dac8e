# SPDX-License-Identifier: Apache-2.0
"""The file `reput/queue_offsets`: the last snapshot of queue counters, segments' times and writers.

SnapshotKeeper writes it periodically, after each new segment, and before records are deleted that the last snapshot
does not cover. A missing or damaged snapshot loses nothing: the start then scans the whole log.
Invariants: all bytes of the log below its `end_physical_offset` were synced before it was written. No snapshot exists
while the queue offsets are unknown.
Callers: a start; the loop that owns the log. Layout: libs/formats/state/queue_snapshot.py.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from libs.formats import store_layout
from libs.formats.state.queue_snapshot import QueueSnapshot, SegmentTimes
from libs.kernel.append.topic_table import Counter
from libs.log.state import small_files
from libs.machine.fs import Fs
from libs.machine.loop import SupervisedLoop
from libs.segments.chain import SegmentChain
from services.commitlog.config import CommitLogConfig
from services.commitlog.engine.keep.small_files import SmallFiles
from services.commitlog.engine.write.gate import Reason, WriteGate
from services.commitlog.engine.write.marks import Marks
from services.commitlog.engine.write.state import LogState
from services.commitlog.errors import StoreSealed


def load(fs: Fs, data_dir: Path) -> QueueSnapshot | None:
    """Read the snapshot. Returns None if it is missing or damaged. Damage is logged."""
    path = data_dir / store_layout.QUEUE_SNAPSHOT
    return small_files.read(fs, path, QueueSnapshot.decode, otherwise="all of the log is scanned")


def save(fs: Fs, data_dir: Path, snapshot: QueueSnapshot, counters: Iterator[Counter]) -> None:
    """Write the snapshot with these counters, durably. The caller has already synced the log up to its end. Blocks."""
    fs.write_atomic(data_dir / store_layout.QUEUE_SNAPSHOT, snapshot.encode_with(counters))


def remove(fs: Fs, data_dir: Path) -> None:
    """Remove the snapshot, durably, if it exists. Blocks."""
    path = data_dir / store_layout.QUEUE_SNAPSHOT
    if fs.exists(path):
        fs.remove(path)
        fs.sync_directory(path.parent)


@dataclass(slots=True, eq=False)
class SnapshotKeeper:
    """The keeper of the snapshot. `end_physical_offset` is the snapshot's end, None without a snapshot of this log."""

    _fs: Fs
    _chain: SegmentChain
    _state: LogState
    _marks: Marks
    _gate: WriteGate
    _small_files: SmallFiles
    _config: CommitLogConfig
    end_physical_offset: int | None
    loop: SupervisedLoop = field(init=False)

    def __post_init__(self) -> None:
        interval_ms, wakes = self._config.snapshot_interval_ms, self._state.is_worth_saving
        self.loop = SupervisedLoop("queue offset snapshot", self.save, interval_ms=interval_ms, wakes=wakes)

    async def save(self) -> None:
        """Write the current counters after all their records are durable. Does nothing if the snapshot is current.

        Raises OSError.
        """
        await self._save(with_ballast=False)

    def read(self) -> bytes:
        """Return the file. There is one if `end_physical_offset` is not None. Blocks. Raises OSError."""
        return self._fs.read(self._config.data_dir / store_layout.QUEUE_SNAPSHOT)

    async def cover(self, physical_offset: int) -> None:
        """Ensure that a snapshot covers all records below an offset. Does nothing while the queue offsets are unknown.

        Raises StoreSealed or OSError.
        """
        if self._gate.holds(Reason.QUEUE_OFFSETS_UNKNOWN) or self._covers(physical_offset):
            return
        await self._save(with_ballast=True)
        if not self._covers(physical_offset):
            raise StoreSealed

    def _covers(self, physical_offset: int) -> bool:
        return (self.end_physical_offset or 0) >= physical_offset

    async def _save(self, *, with_ballast: bool) -> None:
        end = self._marks.wrote.value
        if end < self._state.counted_physical_offset:
            return  # the counters include records that the leader has not sent yet
        reasons = Reason.SEALED, Reason.QUEUE_OFFSETS_UNKNOWN
        if end == self.end_physical_offset or any(map(self._gate.holds, reasons)):
            return
        counters = self._state.table.frozen_counters()
        segment_times = [
            SegmentTimes(s.base_physical_offset, s.first_store_time_ms, s.last_store_time_ms)
            for s in self._chain.segments
            if s.wrote_position > 0
        ]
        snapshot = QueueSnapshot(
            end,
            self._state.last_store_time_ms,
            segment_times,
            [],
            self._state.writers.batches(),
            self._state.writers.next_sequences(),
        )
        try:
            await self._marks.flushed.soon(end)
        except StoreSealed:
            return
        await self._small_files.write(
            lambda: save(self._fs, self._config.data_dir, snapshot, counters), with_ballast=with_ballast
        )
        self.end_physical_offset = end
