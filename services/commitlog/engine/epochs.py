# SPDX-License-Identifier: Apache-2.0
"""EpochHistory: the epochs of the log and the file that keeps them, `epochFileCheckpoint`.

Invariants: numbers ascend from 1; an epoch begins where the one before it ended; a change is durable before it counts.
Callers: recovery and the segment keeper, one at a time. Layout: docs/formats/epoch_file.md.
"""

from pathlib import Path
from typing import Self

from libs.formats import epoch_file
from libs.formats.epoch_file import Epoch
from libs.machine.fs import Fs

EPOCH_FILE_NAME = "epochFileCheckpoint"


class EpochHistory:
    """The epochs, oldest first. Make it with `open`."""

    def __init__(self, fs: Fs, path: Path, epochs: list[Epoch]) -> None:
        self._fs = fs
        self._path = path
        self._epochs = epochs

    @classmethod
    def open(cls, fs: Fs, data_dir: Path) -> Self:
        """Read the file; a store without one has no epoch yet. Raises FormatError for a damaged file."""
        path = data_dir / EPOCH_FILE_NAME
        return cls(fs, path, epoch_file.decode(fs.read(path)) if fs.exists(path) else [])

    @property
    def epochs(self) -> list[Epoch]:
        """All epochs that still have a record, oldest first."""
        return self._epochs

    @property
    def number(self) -> int:
        """The current epoch; 0 before the first one."""
        return self._epochs[-1].number if self._epochs else 0

    def begin(self, start_physical_offset: int) -> None:
        """Start the next epoch, durably. Those that began past this offset have lost all that they wrote."""
        kept = [Epoch(number, min(start, start_physical_offset)) for number, start in self._epochs]
        self._save([*kept, Epoch(self.number + 1, start_physical_offset)])

    def trim(self, min_physical_offset: int) -> None:
        """Forget, durably, the epochs that ended before the first byte that is kept."""
        kept = self._epochs
        while len(kept) > 1 and kept[1].start_physical_offset <= min_physical_offset:
            kept = kept[1:]
        if len(kept) < len(self._epochs):
            self._save(kept)

    def _save(self, epochs: list[Epoch]) -> None:
        self._fs.write_atomic(self._path, epoch_file.encode(epochs))
        self._epochs = epochs
