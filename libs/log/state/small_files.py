# SPDX-License-Identifier: Apache-2.0
"""Small files without which a log can still be read, such as its checkpoint and the name of its history.

Invariants: a file always has a single complete content, old or new. A missing or damaged file is taken as unknown
content; only a damaged replica file is an error. The CommitLog writes the files, and reads them at its start. Programs
that work on the log's files without a CommitLog read them, too.
RocketMQ overwrites the page of its StoreCheckpoint in place. Reput and RocketMQ read each other's file.
Layouts: docs/formats/store_checkpoint.md; docs/formats/reput_files.md section 4.
"""

import logging
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from libs.formats import store_layout
from libs.formats.errors import FormatError
from libs.formats.state import log_history, store_checkpoint
from libs.formats.state.log_history import TopicBeginsFile
from libs.formats.state.replication import InSyncFile, ReplicaFile, RoleSetting
from libs.formats.state.store_checkpoint import StoreCheckpoint
from libs.log.errors import ReplicaFileDamaged
from libs.machine.fs import Fs

T = TypeVar("T")

_log = logging.getLogger(__name__)


def read(fs: Fs, path: Path, decode: Callable[[bytes], T], *, otherwise: str) -> T | None:
    """Read a file. Returns None if it is missing or damaged. Damage is logged, with the consequence `otherwise`."""
    try:
        return decode(fs.read(path)) if fs.exists(path) else None
    except FormatError as error:
        _log.warning("%s can't be read (%s): %s", path, error, otherwise)
        return None


def load_checkpoint(fs: Fs, data_dir: Path) -> StoreCheckpoint:
    """Return the checkpoint, zeros if it is unknown. Raises OSError."""
    path, otherwise = (
        data_dir / store_layout.CHECKPOINT,
        "nothing is known of what was on disk, and all of the log is scanned",
    )
    return read(fs, path, store_checkpoint.decode, otherwise=otherwise) or StoreCheckpoint()


def save_checkpoint(fs: Fs, data_dir: Path, checkpoint: StoreCheckpoint) -> None:
    """Replace the checkpoint, durably. The data below its offsets must be durable before. Raises OSError."""
    fs.write_atomic(data_dir / store_layout.CHECKPOINT, store_checkpoint.encode(checkpoint))


def load_history_id(fs: Fs, data_dir: Path) -> str:
    """Return the name of the log's history, empty if it is unknown. Raises OSError."""
    path, otherwise = data_dir / store_layout.HISTORY, "an Indexer of another log is told by its epoch alone"
    return read(fs, path, log_history.decode_name, otherwise=otherwise) or ""


def save_history_id(fs: Fs, data_dir: Path, history_id: str) -> None:
    """Replace the name, durably. Raises OSError."""
    path = data_dir / store_layout.HISTORY
    fs.make_directory(path.parent)
    fs.write_atomic(path, log_history.encode_name(history_id))


def load_topic_begins(fs: Fs, data_dir: Path) -> TopicBeginsFile:
    """Return where the messages of deleted topics begin, as far as known. Raises OSError."""
    path, otherwise = data_dir / store_layout.TOPIC_BEGINS, "messages of topics that were deleted may be read again"
    return read(fs, path, TopicBeginsFile.decode, otherwise=otherwise) or TopicBeginsFile()


def save_topic_begins(fs: Fs, data_dir: Path, file: TopicBeginsFile) -> None:
    """Replace where the messages of deleted topics begin, durably. Raises OSError."""
    path = data_dir / store_layout.TOPIC_BEGINS
    fs.make_directory(path.parent)
    fs.write_atomic(path, file.encode())


def load_replica(fs: Fs, data_dir: Path) -> ReplicaFile | None:
    """Return the replica file of a copy of a log. Raises ReplicaFileDamaged or OSError."""
    path = data_dir / store_layout.REPLICA
    try:
        return ReplicaFile.decode(fs.read(path)) if fs.exists(path) else None
    except FormatError as error:
        raise ReplicaFileDamaged(path=path, reason=error.reason) from error


def role_setting_of(fs: Fs, data_dir: Path, settings: RoleSetting) -> RoleSetting:
    """Return a log's role setting: the last assigned, unless the settings have changed since then."""
    file = load_replica(fs, data_dir)
    return file.seat if file is not None and file.seat is not None and file.instead_of == settings else settings


def save_replica(fs: Fs, data_dir: Path, file: ReplicaFile) -> None:
    """Replace the replica file of a copy, durably. Raises OSError."""
    path = data_dir / store_layout.REPLICA
    fs.make_directory(path.parent)
    fs.write_atomic(path, file.encode())


def load_in_sync(fs: Fs, data_dir: Path) -> InSyncFile | None:
    """Return the in-sync set of the time when the log last led. Raises OSError."""
    path, otherwise = data_dir / store_layout.IN_SYNC, "the log leads alone until replicas have caught up"
    return read(fs, path, InSyncFile.decode, otherwise=otherwise)


def save_in_sync(fs: Fs, data_dir: Path, file: InSyncFile) -> None:
    """Replace the in-sync set, durably. Raises OSError."""
    fs.write_atomic(data_dir / store_layout.IN_SYNC, file.encode())


def forget_in_sync(fs: Fs, data_dir: Path) -> None:
    """Remove the in-sync set, durably, because the log does not lead any more. Raises OSError."""
    path = data_dir / store_layout.IN_SYNC
    if fs.exists(path):
        fs.remove(path)
        fs.sync_directory(path.parent)
