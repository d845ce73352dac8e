# SPDX-License-Identifier: Apache-2.0
"""The file `checkpoint`: RocketMQ's StoreCheckpoint page, read and replaced as a whole.

Invariants: the file always holds one complete page, old or new. Callers: one writer per store directory.
RocketMQ overwrites the page in place; both read each other's files. Layout: docs/formats/store_checkpoint.md.
"""

import logging
from pathlib import Path

from libs.formats.errors import FormatError
from libs.formats.state.store_checkpoint import StoreCheckpoint, decode, encode
from libs.machine.fs import Fs

_log = logging.getLogger(__name__)


def load(fs: Fs, path: Path) -> StoreCheckpoint:
    """Read the checkpoint. A missing file, or a damaged one, which is logged, reads as zeros: nothing is known."""
    if not fs.exists(path):
        return StoreCheckpoint()
    try:
        return decode(fs.read(path))
    except FormatError as error:
        _log.warning("%s: %s: nothing is known of what was on disk", path, error.reason)
        return StoreCheckpoint()


def save(fs: Fs, path: Path, checkpoint: StoreCheckpoint) -> None:
    """Replace the checkpoint, durably. What it promises must be durable before. Raises OSError."""
    fs.write_atomic(path, encode(checkpoint))
