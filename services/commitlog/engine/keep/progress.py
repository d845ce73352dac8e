# SPDX-License-Identifier: Apache-2.0
"""Progress: how far the Indexer is, and the checkpoint file that RocketMQ keeps of such facts.

Invariants: what the Indexer reported never goes back within an epoch; a time in the checkpoint is the store time of a
record that is durable. Callers: the loop that owns the log; `save` may run in a worker thread, one at a time.
Layout: docs/formats/store_checkpoint.md.
"""

from dataclasses import dataclass, replace
from pathlib import Path

from libs.formats import store_layout
from libs.formats.limits import INT64_MAX
from libs.formats.state.store_checkpoint import StoreCheckpoint
from libs.log import checkpoint_file
from libs.machine.clock import Clock
from libs.machine.fs import Fs
from services.commitlog.errors import BadArgument, BeyondMaxOffset


@dataclass(frozen=True, slots=True)
class IndexerReport:
    """What the Indexer says. Offsets are exclusive ends; times in milliseconds, 0 if there is no such record."""

    indexed_physical_offset: int
    flushed_physical_offset: int
    queue_flushed_time_ms: int
    index_flushed_time_ms: int
    epoch: int
    history_id: str = ""


class Progress:
    """The Indexer's last report and the checkpoint."""

    def __init__(
        self, fs: Fs, data_dir: Path, clock: Clock, checkpoint: StoreCheckpoint, *, is_queue_time_kept: bool = False
    ) -> None:
        """With `is_queue_time_kept` the queues' time does not pass the checkpoint's: RocketMQ goes on there."""
        self.indexed_physical_offset = 0
        self.indexed_flushed_physical_offset = 0
        self.reported_at_ms: int | None = None
        self.checkpoint = checkpoint
        self._fs = fs
        self._path = data_dir / store_layout.CHECKPOINT
        self._clock = clock
        self._saved = checkpoint
        self._queue_time_ms_max = checkpoint.consume_queue_time_ms if is_queue_time_kept else INT64_MAX

    def report(self, report: IndexerReport, *, max_physical_offset: int) -> None:
        """Take note of a report of the current epoch. Raises BadArgument or BeyondMaxOffset."""
        self._check(report, max_physical_offset)
        self.indexed_physical_offset = max(self.indexed_physical_offset, report.indexed_physical_offset)
        self.indexed_flushed_physical_offset = max(self.indexed_flushed_physical_offset, report.flushed_physical_offset)
        self.reported_at_ms = self._clock.now_ms()
        was_own = not self.checkpoint.is_of_rocketmq
        noted = replace(
            self.checkpoint,
            # These do go back: whoever recovers by the checkpoint must begin where an Indexer that rebuilds is.
            consume_queue_time_ms=min(report.queue_flushed_time_ms, self._queue_time_ms_max),
            index_time_ms=report.index_flushed_time_ms,
        )
        self.checkpoint = noted.of_reput() if was_own else noted

    def note_flushed(self, store_time_ms: int, physical_offset: int) -> None:
        """Take note that all records up to this store time, and all bytes below this offset, are durable."""
        self.checkpoint = replace(
            self.checkpoint,
            commit_log_time_ms=max(self.checkpoint.commit_log_time_ms, store_time_ms),
            flushed_physical_offset=physical_offset,
        ).of_reput()

    def note_confirmed(self, physical_offset: int) -> None:
        """Take note of the confirmed offset, which RocketMQ hands to its log at the next start."""
        self.checkpoint = replace(self.checkpoint, confirmed_physical_offset=physical_offset)

    def note_start(self, physical_offset: int) -> None:
        """Take note that the log begins here, or is about to: what is below may be missing at the next start."""
        self.checkpoint = replace(self.checkpoint, start_physical_offset=physical_offset)

    def save(self) -> None:
        """Write the checkpoint, durably, if it changed. Blocks; raises OSError."""
        checkpoint = self.checkpoint
        if checkpoint != self._saved:
            checkpoint_file.save(self._fs, self._path, checkpoint)
            self._saved = checkpoint

    @staticmethod
    def _check(report: IndexerReport, max_physical_offset: int) -> None:
        for field in (
            "indexed_physical_offset",
            "flushed_physical_offset",
            "queue_flushed_time_ms",
            "index_flushed_time_ms",
        ):
            value = getattr(report, field)
            if value < 0:
                raise BadArgument("the value is negative", field=field, value=value, limit=0)
        if report.indexed_physical_offset > max_physical_offset:
            raise BeyondMaxOffset(
                report.indexed_physical_offset, max_physical_offset=max_physical_offset, field="indexed_physical_offset"
            )
        if report.flushed_physical_offset > report.indexed_physical_offset:
            raise BadArgument(
                "more is flushed than indexed",
                field="flushed_physical_offset",
                value=report.flushed_physical_offset,
                limit=report.indexed_physical_offset,
            )
