# SPDX-License-Identifier: Apache-2.0
"""EpochHistory: the epochs of the log, their file `epochFileCheckpoint`, and the name of their history.

Invariants: numbers ascend from 1. An epoch begins at the end of the epoch before it. A change is durable before it is
effective. A log without an epoch file numbers its epochs anew under a new name. So its epoch 3 is not mistaken for the
epoch 3 of another log, or of this log before the file was lost. The name is in `reput/history`. If only this file is
lost, the name stays unknown, and followers are compared by epochs alone.
Callers: recovery, the segment keeper and the follower, one at a time.
Layouts: docs/formats/epoch_file.md and reput_files.md.
"""

import logging
import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple, Self

from libs.formats import store_layout
from libs.formats.epoch import Epoch
from libs.formats.errors import FormatError
from libs.formats.state import epoch_file
from libs.log.state import small_files
from libs.machine.fs import Fs
from services.commitlog.errors import EpochsDamaged

HISTORY_ID_SIZE_BYTES = 16
LEAP_MAX = 1 << 16
"""Largest leap. After 32,767 takeovers in a row, RocketMQ can still read the epoch's number."""

_log = logging.getLogger(__name__)


class ElectedEpoch(NamedTuple):
    """The result of an election for the elected log: the number of its epoch, and the name of the history."""

    epoch: int
    history_id: str


def new_history_id() -> str:
    """Return a name that no other history has."""
    return secrets.token_hex(HISTORY_ID_SIZE_BYTES)


@dataclass(slots=True, eq=False)
class EpochHistory:
    """The epochs of a log that still have a record, oldest first. Create it with `open`."""

    _fs: Fs
    _data_dir: Path
    epochs: list[Epoch]
    history_id: str
    """Random name of the history, empty if unknown."""

    @classmethod
    def open(cls, fs: Fs, data_dir: Path) -> Self:
        """Read the files. A store without an epoch file has no epoch yet. Raises EpochsDamaged."""
        path = data_dir / store_layout.EPOCHS
        if not fs.exists(path):
            if fs.exists(data_dir / store_layout.HISTORY):
                _log.warning("%s is missing, so the log counts as another one: delayed messages come once more", path)
            return cls(fs, data_dir, [], "")
        try:
            epochs = epoch_file.decode(fs.read(path))
        except FormatError as error:
            raise EpochsDamaged(path=path, reason=error.reason) from error
        return cls(fs, data_dir, epochs, small_files.load_history_id(fs, data_dir))

    @property
    def number(self) -> int:
        """The current epoch, 0 before the first one."""
        return self.epochs[-1].number if self.epochs else 0

    def begin(
        self,
        start_physical_offset: int,
        *,
        takes_over: bool = False,
        promised_epoch: int = 0,
        elected: ElectedEpoch | None = None,
    ) -> None:
        """Start the next epoch, durably, with a number above the promised epoch.

        Epochs that began past this offset have lost all their records.

        A log that takes over (`takes_over`) leaps to a number that no other log uses. Other logs may have begun epochs
        since this log last heard from the leader, and two epochs with the same number would be mistaken for the same
        epoch. An elected log uses the number of its election.
        """
        if not self.epochs:  # the name is saved first: after a crash in between, it only changes again
            self.history_id = elected.history_id if elected else new_history_id()
            small_files.save_history_id(self._fs, self._data_dir, self.history_id)
        kept = [Epoch(number, min(start, start_physical_offset)) for number, start in self.epochs]
        step = 1 + secrets.randbelow(LEAP_MAX) if takes_over else 1
        number = elected.epoch if elected else max(self.number, promised_epoch) + step
        assert number > self.number
        self._save([*kept, Epoch(number, start_physical_offset)])

    def adopt(self, history_id: str, epochs: Sequence[Epoch]) -> None:
        """Adopt a leader's history, durably, up to the offset at which its log continues here."""
        if history_id != self.history_id:
            small_files.save_history_id(self._fs, self._data_dir, history_id)
            self.history_id = history_id
        self._save(list(epochs))

    def follow(self, epochs: Sequence[Epoch]) -> None:
        """Append the leader's next epochs, durably."""
        self._save([*self.epochs, *epochs])

    def trim(self, min_physical_offset: int) -> None:
        """Remove, durably, the epochs that ended before the first byte of the log."""
        kept = self.epochs
        while len(kept) > 1 and kept[1].start_physical_offset <= min_physical_offset:
            kept = kept[1:]
        if len(kept) < len(self.epochs):
            self._save(kept)

    def _save(self, epochs: list[Epoch]) -> None:
        self._fs.write_atomic(self._data_dir / store_layout.EPOCHS, epoch_file.encode(epochs))
        self.epochs = epochs
