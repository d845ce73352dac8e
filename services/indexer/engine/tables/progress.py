# SPDX-License-Identifier: Apache-2.0
"""IndexProgress: what the indexes hold for certain, in `reput/index_progress`.

Invariants: written after the effect that it speaks of, so it may say too little, never too much; replaced atomically;
`is_clean` stands in the file only between an orderly stop and the next start.
A file that is missing or damaged means that nothing is certain: everything is built anew from the log.
Layout: docs/formats/reput_files.md; RocketMQ has no such file and goes by the checkpoint's times.
"""

import asyncio
import logging
from pathlib import Path
from typing import NamedTuple

import msgspec

from libs.formats.errors import FormatError
from libs.formats.state import checksummed
from libs.machine.fs import Fs
from services.indexer.engine.tables.stepped_over import Stepped

KIND = "index-progress"

_log = logging.getLogger(__name__)


class QueueBegin(NamedTuple):
    """A queue that begins again, with the record that ends here."""

    topic: str
    queue_id: int
    end_physical_offset: int


class IndexProgress(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Where to go on. Offsets are exclusive ends; times are milliseconds since 1970, 0 if unknown."""

    epoch: int = 0
    """Epoch of the log that was followed; 0 if none was."""

    is_clean: bool = False
    """True if the process stopped orderly: then everything below the two offsets is there, and nothing else."""

    queue_physical_offset: int = 0
    """Every unit of records below this is synced."""

    index_physical_offset: int = 0
    """Every index entry of records below this is synced; after an unclean stop only those in finished files count."""

    index_replay_physical_offset: int = 0
    """Where the unfinished index file begins: from here an unclean start fills a new one."""

    index_finished_file: str = ""
    """Name of the newest index file that is full and synced; an unclean start drops all later ones."""

    queue_end_sum: int = -1
    """Sum of the ends of all queues, counting only records below `queue_physical_offset`; -1 if unknown."""

    queue_start_sum: int = -1
    """Sum of the queue offsets with which the first files of all queues begin; -1 if unknown."""

    queue_file_count: int = -1
    """Files of all queues at a clean stop; -1 if unknown."""

    index_finished_count: int = -1
    """Index files up to `index_finished_file`; -1 if unknown."""

    index_newest_file: str = ""
    """Name of the newest index file at a clean stop; empty if there was none."""

    index_newest_entry: int = -1
    """The entry that comes next in it, 0 without a file; -1 if unknown."""

    queue_time_ms: int = 0
    """Store time of the last record whose unit is synced."""

    stepped_over: list[Stepped] = []
    """Records below `queue_physical_offset` that are in no queue although they name one."""

    queue_begins: list[QueueBegin] = []
    """Queues that began again, and with which record; said before the units of their older generation go."""

    index_time_ms: int = 0
    """Store time of the last record in `index_finished_file`: all entries up to it are in full files and synced."""


class ProgressFile:
    """Reads and replaces the file."""

    def __init__(self, fs: Fs, path: Path) -> None:
        self._fs = fs
        self._path = path

    def load(self) -> IndexProgress | None:
        """Return what the file says; None if there is none that can be believed, which is logged."""
        try:
            payload = checksummed.unwrap(KIND, self._fs.read(self._path))
            return msgspec.json.decode(payload, type=IndexProgress)
        except FileNotFoundError:
            return None
        except (FormatError, msgspec.DecodeError) as error:
            _log.error("%s is damaged, so all indexes are built anew: %s", self._path, error)
            return None

    def save(self, progress: IndexProgress) -> None:
        """Replace the file. Durable on return."""
        self._fs.write_atomic(self._path, checksummed.wrap(KIND, msgspec.json.encode(progress)))


class ProgressKeeper:
    """The progress as the file has it. Whoever writes it, or takes back what it speaks of, holds `turn` meanwhile."""

    def __init__(self, file: ProgressFile) -> None:
        self.value = IndexProgress()
        self.turn = asyncio.Lock()
        self._file = file

    def load(self) -> IndexProgress:
        """Read the file; without a believable one nothing is certain. Blocks."""
        self.value = self._file.load() or IndexProgress()
        return self.value

    def forget(self) -> IndexProgress:
        """Take everything back, durably: nothing is certain. Blocks. Raises OSError."""
        self.value = IndexProgress()
        self._file.save(self.value)
        return self.value

    def mark_running(self) -> None:
        """Take the mark of a clean stop away. Blocks. Raises OSError."""
        if self.value.is_clean:
            self.value = msgspec.structs.replace(self.value, is_clean=False)
            self._file.save(self.value)

    async def save(self, value: IndexProgress) -> None:
        """Replace the file if the value is another. Durable on return. Raises OSError."""
        assert self.turn.locked()
        if value != self.value:
            await asyncio.to_thread(self._file.save, value)
            self.value = value
