# SPDX-License-Identifier: Apache-2.0
"""ProgressKeeper: what the indexes hold for certain, in memory and in `reput/index_progress`.

Invariants: written after the effect that it speaks of, so it may say too little, never too much; replaced atomically;
`is_clean` stands in the file only between an orderly stop and the next start.
A file that is missing or damaged means that nothing is certain: everything is built anew from the log.
Layout: docs/formats/reput_files.md; RocketMQ has no such file and goes by the checkpoint's times.
"""

import asyncio
import logging
from pathlib import Path

import msgspec

from libs.formats.errors import FormatError
from libs.formats.state import index_progress
from libs.formats.state.index_progress import IndexProgress
from libs.machine.fs import Fs

_log = logging.getLogger(__name__)


class ProgressFile:
    """Reads and replaces the file."""

    def __init__(self, fs: Fs, path: Path) -> None:
        self._fs = fs
        self._path = path

    def load(self) -> IndexProgress | None:
        """Return what the file says; None if there is none that can be believed, which is logged."""
        try:
            return index_progress.decode(self._fs.read(self._path))
        except FileNotFoundError:
            return None
        except FormatError as error:
            _log.error("%s is damaged, so all indexes are built anew: %s", self._path, error)
            return None

    def save(self, progress: IndexProgress) -> None:
        """Replace the file. Durable on return."""
        self._fs.write_atomic(self._path, index_progress.encode(progress))


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
