# SPDX-License-Identifier: Apache-2.0
"""A restore: a backup, or the part of it up to an offset or a time, becomes a store in an empty directory.

Invariants: everything is made in `restoring/` of the directory and moved at the end, the log last. Until then no
service starts there (libs/log/state/data_dir.py). A killed restore is begun again.
The store has a history of its own: no replica and no Indexer of the former store takes it for that store. A restore
for a follower keeps the history, and has no identity of a member: the leader takes it for a member from a copy.
"""

from __future__ import annotations

import os
import secrets
import shutil
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from msgspec import Struct

from cli.backup import state as states
from cli.backup.errors import BackupDamaged, BackupError
from cli.backup.plan import pieces_until, restored_epochs
from cli.backup.positions import read_positions
from libs.formats import store_layout
from libs.formats.config import consumer_offsets_json, topics_json
from libs.formats.state import epoch_file, log_history, store_checkpoint
from libs.formats.state.log_history import TopicBeginsFile
from libs.formats.state.store_checkpoint import StoreCheckpoint
from libs.formats.store_layout import file_name, segment_base
from libs.log.end import ScanEndKind
from libs.log.state.data_dir import OF_FILE_SYSTEMS, is_restoring
from libs.machine.posix_fs import PosixFs, open_private
from services.commitlog.engine.restored import read_restored

if TYPE_CHECKING:
    from collections.abc import Callable

    from cli.backup.cut import Cut
    from cli.backup.manifest import Manifest
    from cli.backup.repository import Repository
    from libs.formats.state.queue_snapshot import QueueSnapshot

HISTORY_ID_SIZE_BYTES = 16
FILES = (store_layout.EPOCHS, store_layout.CHECKPOINT, store_layout.CONFIG, store_layout.REPUT)
"""What is moved before the log."""


class Restored(NamedTuple):
    """The result of a restore."""

    backup_id: str
    end_physical_offset: int
    last_store_time_ms: int
    record_count: int
    epoch: int
    history_id: str
    group_count: int


class Restore(Struct):
    """A restore into an empty directory. `show` gets the bytes that are done, and their number in total."""

    repository: Repository
    manifest: Manifest
    cut: Cut
    data_dir: Path
    index_dir: Path
    show: Callable[[int, int], None]
    is_follower: bool = False

    def run(self) -> Restored:
        """Restore. Raises BackupError, BackupDamaged, PlaceFailed and OSError."""
        pieces_until(self.manifest, self.cut.end_physical_offset)
        if self.is_follower and not self.manifest.history_id:
            raise BackupError(f"backup {self.manifest.backup_id} is of a log without a name, which nobody can follow")
        claim(self.data_dir, self.index_dir)
        work = self.data_dir / store_layout.RESTORING
        log = work / store_layout.COMMIT_LOG
        PosixFs().make_directory(log)
        saved = states.decode(
            {name: self.repository.get(one.sha256, one.size_bytes) for name, one in self.manifest.files.items()}
        )
        if saved.snapshot.end_physical_offset != self.manifest.end_physical_offset:
            raise BackupDamaged(f"the queue offsets of backup {self.manifest.backup_id} are of another end of the log")
        end = self._write_log(log)
        found = read_restored(log, self.manifest.segment_size_bytes, end)
        if found.end.kind is ScanEndKind.DAMAGED or found.end.physical_offset > end:
            raise BackupDamaged(f"the restored log at {found.end.physical_offset}: {found.end.reason}")
        if found.end.physical_offset < end:
            self._clear(log, found.end.physical_offset, end)
            end = found.end.physical_offset
        snapshot = states.snapshot_at(saved, found.snapshot, self.manifest.min_physical_offset)
        begins = states.begins_at(saved, end)
        epochs = restored_epochs(self.manifest, end, is_follower=self.is_follower)
        history_id = self.manifest.history_id if self.is_follower else secrets.token_hex(HISTORY_ID_SIZE_BYTES)
        _write(work / store_layout.EPOCHS, epoch_file.encode(epochs))
        _write(work / store_layout.CHECKPOINT, _checkpoint(self.manifest, end, snapshot.last_store_time_ms))
        _write(work / store_layout.TOPICS, topics_json.dumps(states.topics_at(saved, snapshot, begins)).encode())
        _write(work / store_layout.TOPIC_BEGINS, TopicBeginsFile(begins=begins).encode())
        _write(work / store_layout.QUEUE_SNAPSHOT, snapshot.encode())
        _write(work / store_layout.HISTORY, log_history.encode_name(history_id))
        group_count = self._write_positions(log, saved, snapshot)
        _move(work, self.data_dir)
        return Restored(
            self.manifest.backup_id,
            end,
            snapshot.last_store_time_ms,
            self.cut.record_count,
            epochs[-1].number if epochs else 0,
            history_id,
            group_count,
        )

    def _write_positions(self, log: Path, saved: states.Saved, snapshot: QueueSnapshot) -> int:
        """Write the Indexer's files with the positions of groups. Returns the number of groups."""
        size, end = self.manifest.segment_size_bytes, snapshot.end_physical_offset
        found = read_positions(log, size, self.cut.state_offsets, end)
        positions = states.positions_at(saved, snapshot, found)
        if positions.offsets:
            target = self.data_dir / store_layout.RESTORING if self.index_dir == self.data_dir else self.index_dir
            _write(target / store_layout.CONSUMER_OFFSETS, consumer_offsets_json.dumps(positions).encode())
            _write(target / store_layout.SHARED_STATE, states.shared_state_at(snapshot).encode())
        return len({group for _, group in positions.offsets})

    def _write_log(self, directory: Path) -> int:
        """Write the segments. Returns the end of the records."""
        size, end = self.manifest.segment_size_bytes, self.manifest.min_physical_offset
        pieces = pieces_until(self.manifest, self.cut.end_physical_offset)
        total = sum(piece.size_bytes for piece in pieces)
        _make_segment(directory, end, size)
        for piece in pieces:
            data = self.repository.get(piece.sha256, piece.size_bytes)
            kept = self.cut.kept_bytes(piece.start_physical_offset, data, f"object {piece.sha256}")
            base = segment_base(piece.start_physical_offset, size)
            if kept:
                _make_segment(directory, base, size)
                _write_at(directory / file_name(base), piece.start_physical_offset - base, data[:kept])
            end = piece.start_physical_offset + kept
            self.show(end - self.manifest.min_physical_offset, total)
            if kept < piece.size_bytes:
                break
        return end

    def _clear(self, directory: Path, start: int, end: int) -> None:
        """Replace the bytes of an incomplete batch of a writer by zeros. The batch is in a single segment."""
        base = segment_base(start, self.manifest.segment_size_bytes)
        _write_at(directory / file_name(base), start - base, bytes(end - start))


def claim(data_dir: Path, index_dir: Path) -> None:
    """Make the directories, or take empty ones, or begin a killed restore again. Raises BackupError otherwise.

    A kill at any moment leaves a directory with the mark of a restore, or the directories as they were.
    """
    if not data_dir.exists():
        _make_marked(data_dir)
    PosixFs().make_directory(index_dir)
    mark = data_dir / store_layout.RESTORING
    if is_restoring(PosixFs(), data_dir):
        _clear_all(data_dir, {*FILES, store_layout.COMMIT_LOG} & _names(data_dir))
        if (left := _names(index_dir)) <= {store_layout.CONFIG, store_layout.REPUT}:
            _clear_all(index_dir, left)
        _clear_all(mark, _names(mark))
    for directory in (data_dir, index_dir):
        if names := sorted(_names(directory) - {store_layout.RESTORING}):
            raise BackupError(f"{directory} is not empty: it has {names[0]}; a restore needs an empty directory")
    PosixFs().make_directory(mark)


def _make_marked(data_dir: Path) -> None:
    """Make a directory that has the mark of a restore from its first moment."""
    PosixFs().make_directory(data_dir.parent)
    with tempfile.TemporaryDirectory(prefix=f".{data_dir.name}-", dir=data_dir.parent) as folder:
        made = Path(folder) / data_dir.name
        PosixFs().make_directory(made / store_layout.RESTORING)
        made.rename(data_dir)


def _names(directory: Path) -> set[str]:
    return {path.name for path in directory.iterdir()} - OF_FILE_SYSTEMS


def _clear_all(directory: Path, names: set[str]) -> None:
    """Remove what a killed restore left."""
    for name in names:
        path = directory / name
        if path.is_dir():
            shutil.rmtree(path)
        else:
            path.unlink()


def _checkpoint(manifest: Manifest, end_physical_offset: int, last_store_time_ms: int) -> bytes:
    checkpoint = StoreCheckpoint(
        commit_log_time_ms=last_store_time_ms,
        confirmed_physical_offset=end_physical_offset,
        flushed_physical_offset=end_physical_offset,
        start_physical_offset=manifest.min_physical_offset,
    )
    return store_checkpoint.encode(checkpoint.of_reput())


def _make_segment(directory: Path, base: int, size_bytes: int) -> None:
    """Make a segment of its full size, unless it is there."""
    path = directory / file_name(base)
    if not path.exists():
        with open(path, "xb", opener=open_private) as file:
            file.truncate(size_bytes)


def _write_at(path: Path, position: int, data: bytes) -> None:
    with path.open("r+b") as file:
        file.seek(position)
        file.write(data)
        file.flush()
        os.fsync(file.fileno())


def _write(path: Path, data: bytes) -> None:
    PosixFs().make_directory(path.parent)
    PosixFs().write_atomic(path, data)


def _move(work: Path, data_dir: Path) -> None:
    """Move everything to its place, the log last, durably."""
    fs = PosixFs()
    for folder in (work / store_layout.COMMIT_LOG, work / store_layout.REPUT, work / store_layout.CONFIG, work):
        fs.sync_directory(folder)
    for name in (*FILES, store_layout.COMMIT_LOG):
        (work / name).replace(data_dir / name)
        fs.sync_directory(data_dir)
    work.rmdir()
    fs.sync_directory(data_dir)
