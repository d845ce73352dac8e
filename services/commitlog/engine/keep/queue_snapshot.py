# SPDX-License-Identifier: Apache-2.0
"""The file `reput/queue_offsets`: the last snapshot of queue counters, segments' times and writers.

SnapshotKeeper writes it from time to time, after each new segment, and before the records go that alone tell what it
covers. A snapshot that is missing or damaged is no loss: the start then scans the log from its beginning.
Invariants: all bytes of the log below its `end_physical_offset` were synced before it was written; there is none while
the queue offsets are not known.
Callers: a start; the loop that owns the log. Layout: libs/formats/state/queue_snapshot.py.
"""

from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path

from libs.formats import store_layout
from libs.formats.state import queue_snapshot
from libs.formats.state.queue_snapshot import QueueSnapshot, SegmentTimes
from libs.kernel.append.topic_table import Counter
from libs.machine.fs import Fs
from libs.machine.loop import SupervisedLoop
from libs.segments.chain import SegmentChain
from services.commitlog.config import CommitLogConfig
from services.commitlog.engine.keep.small_files import SmallFiles
from services.commitlog.engine.write.gate import Reason, WriteGate
from services.commitlog.engine.write.marks import Marks
from services.commitlog.engine.write.state import LogState
from services.commitlog.errors import StoreSealed

Write = Callable[[Callable[[], None]], Awaitable[None]]


def load(fs: Fs, data_dir: Path) -> QueueSnapshot | None:
    """Read the snapshot; None if there is none. Raises FormatError for a damaged one."""
    path = data_dir / store_layout.QUEUE_SNAPSHOT
    return queue_snapshot.decode(fs.read(path)) if fs.exists(path) else None


def save(fs: Fs, data_dir: Path, snapshot: QueueSnapshot, counters: Iterator[Counter]) -> None:
    """Write the snapshot with these counters, durably. The caller has synced the log up to its end before. Blocks."""
    fs.write_atomic(data_dir / store_layout.QUEUE_SNAPSHOT, queue_snapshot.encode(snapshot, counters))


class SnapshotKeeper:
    """`end_physical_offset` is the end of what the file covers; None without one that fits the log."""

    def __init__(
        self,
        fs: Fs,
        chain: SegmentChain,
        state: LogState,
        marks: Marks,
        gate: WriteGate,
        small_files: SmallFiles,
        config: CommitLogConfig,
        *,
        end_physical_offset: int | None,
    ) -> None:
        self.end_physical_offset = end_physical_offset
        self._revision = state.revision
        self._fs = fs
        self._chain = chain
        self._state = state
        self._marks = marks
        self._gate = gate
        self._small_files = small_files
        self._data_dir = config.data_dir
        self.loop = SupervisedLoop(
            "queue offset snapshot", self.save, interval_ms=config.snapshot_interval_ms, wakes=state.is_worth_saving
        )

    async def save(self) -> None:
        """Write the counters as of now, once everything that they count is durable, unless it would be the same again.

        Raises OSError.
        """
        await self._save(self._small_files.write)

    async def cover(self, physical_offset: int) -> None:
        """Have a snapshot of all records below an offset, unless the queue offsets are lost anyway.

        Raises StoreSealed or OSError.
        """
        if self._gate.holds(Reason.QUEUE_OFFSETS_UNKNOWN) or self._covers(physical_offset):
            return
        await self._save(self._small_files.write_with_ballast)
        if not self._covers(physical_offset):
            raise StoreSealed

    def _covers(self, physical_offset: int) -> bool:
        return (self.end_physical_offset or 0) >= physical_offset

    async def _save(self, write: Write) -> None:
        end, revision = self._marks.wrote.value, self._state.revision
        is_same = end == self.end_physical_offset and revision == self._revision
        if is_same or self._gate.holds(Reason.SEALED) or self._gate.holds(Reason.QUEUE_OFFSETS_UNKNOWN):
            return
        counters = self._state.table.frozen_counters()
        snapshot = QueueSnapshot(
            end,
            self._state.last_store_time_ms,
            self._segment_times(),
            [],
            self._state.writers.batches(),
            self._state.writers.next_sequences(),
        )
        try:
            await self._marks.flushed.soon(end)
        except StoreSealed:
            return
        await write(lambda: save(self._fs, self._data_dir, snapshot, counters))
        self.end_physical_offset, self._revision = end, revision

    def _segment_times(self) -> list[SegmentTimes]:
        return [
            SegmentTimes(s.base_physical_offset, s.first_store_time_ms, s.last_store_time_ms)
            for s in self._chain.segments
            if s.wrote_position > 0
        ]
