# SPDX-License-Identifier: Apache-2.0
"""CheckpointKeeper: writes the checkpoint from time to time, and when the log's beginning moves.

Invariants: it tells of what is durable alone, and after a failure nothing new.
Callers: the loop that owns the log.
"""

import logging

from libs.machine.loop import SupervisedLoop
from services.commitlog.config import CommitLogConfig
from services.commitlog.engine.durable.syncer import Syncer
from services.commitlog.engine.keep.progress import Progress
from services.commitlog.engine.keep.small_files import SmallFiles
from services.commitlog.engine.keep.store_time import StoreTimeWatch
from services.commitlog.engine.write.marks import Marks
from services.commitlog.engine.write.seal import Seal

_log = logging.getLogger(__name__)


class CheckpointKeeper:
    """Keeps the file of `progress`; says meanwhile when store time runs ahead."""

    def __init__(
        self,
        progress: Progress,
        flusher: Syncer,
        marks: Marks,
        seal: Seal,
        store_time: StoreTimeWatch,
        small_files: SmallFiles,
        config: CommitLogConfig,
    ) -> None:
        self._progress = progress
        self._flusher = flusher
        self._marks = marks
        self._seal = seal
        self._store_time = store_time
        self._small_files = small_files
        self.loop = SupervisedLoop("checkpoint", self._look_and_save, interval_ms=config.checkpoint_interval_ms)

    async def save(self) -> None:
        """Write it as of now, unless the log is sealed. Raises OSError."""
        if not self._seal.is_set:
            self._progress.note_confirmed(self._marks.visible.value)
            self._note_flushed()
            await self._small_files.write(self._progress.save)

    async def save_start(self, physical_offset: int) -> None:
        """Write that the log is about to begin here: then it is Reput that deletes what is below."""
        self._progress.note_start(physical_offset)
        self._note_flushed()
        try:
            await self._small_files.write_with_ballast(self._progress.save)
        except OSError as error:  # the deletion makes the room that it lacks; the next save comes within a second
            _log.warning("the checkpoint does not know yet that the log begins at %d: %s", physical_offset, error)

    async def _look_and_save(self) -> None:
        self._store_time.look()
        await self.save()

    def _note_flushed(self) -> None:
        self._progress.note_flushed(self._flusher.covered_time_ms, self._marks.flushed.value)
