# SPDX-License-Identifier: Apache-2.0
"""CheckpointKeeper: keeps the Indexer's progress, and the checkpoint file that RocketMQ keeps for such facts.

Invariants: the Indexer's reported offsets never decrease within an epoch. The checkpoint contains only durable facts,
and does not change after a failure. Each time in it is the store time of a durable record.
Callers: the loop that owns the log. Layout: docs/formats/store_checkpoint.md.
"""

import logging
from dataclasses import dataclass, field

from msgspec import Struct
from msgspec.structs import replace

from libs.formats.state.store_checkpoint import StoreCheckpoint
from libs.log.state import small_files
from libs.machine.clock import Clock
from libs.machine.fs import Fs
from libs.machine.loop import SupervisedLoop
from libs.requests.errors import BadArgument
from services.commitlog.config import CommitLogConfig
from services.commitlog.engine.durable.syncer import Syncer
from services.commitlog.engine.keep.identity import Identity
from services.commitlog.engine.keep.small_files import SmallFiles
from services.commitlog.engine.keep.store_time import StoreTimeWatch
from services.commitlog.engine.write.marks import Marks
from services.commitlog.engine.write.seal import Seal
from services.commitlog.errors import BeyondMaxOffset

_log = logging.getLogger(__name__)


class IndexerReport(Struct, frozen=True):
    """A report of the Indexer. Offsets are exclusive ends. Times are in milliseconds, 0 without such a record."""

    indexed_physical_offset: int
    flushed_physical_offset: int
    queue_flushed_time_ms: int
    index_flushed_time_ms: int
    epoch: int
    history_id: str = ""


@dataclass(slots=True, eq=False)
class CheckpointKeeper:
    """The keeper of the Indexer's last report and of the checkpoint. It also watches store time."""

    _fs: Fs
    _clock: Clock
    _config: CommitLogConfig
    value: StoreCheckpoint
    """The checkpoint that the next save writes."""
    _flusher: Syncer
    _marks: Marks
    _seal: Seal
    _store_time: StoreTimeWatch
    _small_files: SmallFiles
    _identity: Identity
    _queue_time_ms_max: int
    """Upper bound of the queues' time in the checkpoint: RocketMQ continues there."""
    indexed_physical_offset: int = 0
    indexed_flushed_physical_offset: int = 0
    reported_at_ms: int | None = None
    loop: SupervisedLoop = field(init=False)
    _handed_over: StoreCheckpoint = field(init=False)
    """The checkpoint of the last write that was begun. It may still run after its caller has gone."""
    _saved: StoreCheckpoint = field(init=False)

    def __post_init__(self) -> None:
        self._saved = self._handed_over = self.value
        interval_ms = self._config.checkpoint_interval_ms
        self.loop = SupervisedLoop("checkpoint", self._look_and_save, interval_ms=interval_ms)

    def report(self, report: IndexerReport) -> None:
        """Record a report of the current epoch. Raises BadArgument or BeyondMaxOffset."""
        _check(report, self._marks.committed.value)
        self.indexed_physical_offset = max(self.indexed_physical_offset, report.indexed_physical_offset)
        self.indexed_flushed_physical_offset = max(self.indexed_flushed_physical_offset, report.flushed_physical_offset)
        self.reported_at_ms = self._clock.now_ms()
        was_own = not self.value.is_of_rocketmq
        noted = replace(
            self.value,
            # These may decrease: a recovery by the checkpoint must begin at the place of a rebuilding Indexer.
            consume_queue_time_ms=min(report.queue_flushed_time_ms, self._queue_time_ms_max),
            index_time_ms=report.index_flushed_time_ms,
        )
        self.value = noted.of_reput() if was_own else noted

    @property
    def are_queues_behind(self) -> bool:
        """Whether the queues of this store have units on disk, but not of all records, as far as the reports tell."""
        has_queues = self.value.consume_queue_time_ms > 0
        return has_queues and self.indexed_flushed_physical_offset < self._marks.flushed.value

    def note_start(self, physical_offset: int) -> None:
        """Record that the log begins here, or soon will. Bytes below may be missing at the next start.

        Also records the durable and the confirmed offset. RocketMQ passes the latter to its log at the next start.
        """
        self.value = replace(self.value, start_physical_offset=physical_offset)
        self._note_marks()

    async def save(self) -> None:
        """Write the current checkpoint if it changed, unless the log is sealed. Raises OSError."""
        if not self._seal.is_set:
            self._note_marks()
            await self._identity.save()  # first: an elected copy trusts the confirmed offset if it was replicated
            if not self.value == self._handed_over == self._saved:
                await self._hand_over()

    async def save_start(self, physical_offset: int) -> None:
        """Write that the log is about to begin here. The file then shows that Reput itself deletes the bytes below."""
        self.note_start(physical_offset)
        try:
            await self._hand_over(with_ballast=True)
        except OSError as error:  # the deletion frees the missing space; the next save comes within a second
            _log.warning("the checkpoint does not know yet that the log begins at %d: %s", physical_offset, error)

    async def _look_and_save(self) -> None:
        self._store_time.look()
        await self.save()

    def _note_marks(self) -> None:
        self.value = replace(
            self.value,
            commit_log_time_ms=max(self.value.commit_log_time_ms, self._flusher.covered_time_ms),
            flushed_physical_offset=self._marks.flushed.value,
            confirmed_physical_offset=self._marks.visible.value,
        ).of_reput()

    async def _hand_over(self, *, with_ballast: bool = False) -> None:
        self._handed_over = self.value
        await self._small_files.write(self._write, with_ballast=with_ballast)

    def _write(self) -> None:
        checkpoint = self.value
        if checkpoint != self._saved:
            small_files.save_checkpoint(self._fs, self._config.data_dir, checkpoint)
            self._saved = checkpoint


def _check(report: IndexerReport, max_physical_offset: int) -> None:
    for name in (
        "indexed_physical_offset",
        "flushed_physical_offset",
        "queue_flushed_time_ms",
        "index_flushed_time_ms",
    ):
        value = getattr(report, name)
        if value < 0:
            raise BadArgument("the value is negative", field=name, value=value, limit=0)
    indexed, flushed = report.indexed_physical_offset, report.flushed_physical_offset
    if indexed > max_physical_offset:
        raise BeyondMaxOffset(indexed, max_physical_offset=max_physical_offset, field="indexed_physical_offset")
    if flushed > indexed:
        raise BadArgument("more is flushed than indexed", field="flushed_physical_offset", value=flushed, limit=indexed)
