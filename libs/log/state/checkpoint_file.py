# SPDX-License-Identifier: Apache-2.0
"""The file `checkpoint`: RocketMQ's StoreCheckpoint page, read and replaced as a whole.

Invariants: the file always holds one complete page, old or new. Callers: one writer per store directory.
RocketMQ overwrites the page in place; both read each other's files. Layout: docs/formats/store_checkpoint.md.
"""

from pathlib import Path

from libs.formats.errors import FormatError
from libs.formats.state.store_checkpoint import StoreCheckpoint, decode, encode
from libs.log.errors import CheckpointDamaged
from libs.machine.fs import Fs


def load(fs: Fs, path: Path) -> StoreCheckpoint:
    """Read the checkpoint. A missing file reads as zeros: nothing is known. Raises CheckpointDamaged."""
    if not fs.exists(path):
        return StoreCheckpoint()
    try:
        return decode(fs.read(path))
    except FormatError as error:
        raise CheckpointDamaged(path=path, reason=error.reason) from error


def save(fs: Fs, path: Path, checkpoint: StoreCheckpoint) -> None:
    """Replace the checkpoint, durably. What it promises must be durable before. Raises OSError."""
    fs.write_atomic(path, encode(checkpoint))
