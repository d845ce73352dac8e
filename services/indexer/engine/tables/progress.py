# SPDX-License-Identifier: Apache-2.0
"""ProgressFile: the durable content of the indexes, in memory and in `reput/index_progress`.

Invariants: written after the effect that it describes, so it may state too little, never too much; replaced atomically;
`is_clean` is set in the file only between an orderly stop and the next start.
If the file is missing or damaged, nothing is certain: all indexes are built anew from the log.
Layout: docs/formats/reput_files.md; RocketMQ has no such file and uses the checkpoint's times.
"""

import asyncio
import logging
from pathlib import Path

import msgspec

from libs.formats.errors import FormatError
from libs.formats.state.index_progress import IndexProgress
from libs.machine.fs import Fs

_log = logging.getLogger(__name__)


class ProgressFile:
    """The progress as the file has it. A caller that writes it, or undoes entered records, holds `lock` meanwhile."""

    def __init__(self, fs: Fs, path: Path) -> None:
        self.value = IndexProgress()
        self.lock = asyncio.Lock()
        self._fs = fs
        self._path = path

    def load(self) -> IndexProgress:
        """Read the file. If it is missing or damaged, nothing is certain. A damaged file is logged. Blocks."""
        self.value = IndexProgress()
        try:
            self.value = IndexProgress.decode(self._fs.read(self._path))
        except FileNotFoundError:
            pass
        except FormatError as error:
            _log.error("%s is damaged, so all indexes are built anew: %s", self._path, error)
        return self.value

    def forget(self) -> IndexProgress:
        """Save durably that nothing is certain, and return this progress. Blocks. Raises OSError."""
        self._replace(IndexProgress())
        return self.value

    def mark_running(self) -> None:
        """Remove the mark of a clean stop. Blocks. Raises OSError."""
        if self.value.is_clean:
            self._replace(msgspec.structs.replace(self.value, is_clean=False))

    async def save(self, value: IndexProgress) -> None:
        """Replace the file if the value differs. Durable on return. Raises OSError."""
        assert self.lock.locked()
        if value != self.value:
            await asyncio.to_thread(self._replace, value)

    def _replace(self, value: IndexProgress) -> None:
        self._fs.write_atomic(self._path, value.encode())
        self.value = value
