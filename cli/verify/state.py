# SPDX-License-Identifier: Apache-2.0
"""StoreState: the content of a store's small files, checked for its form, and the processes that use the store.

A small file that can't be read is a finding and counts as missing from then on. The content is compared with the log
later, in `small_files`. Formats: docs/formats/store_checkpoint.md, epoch_file.md, reput_files.md,
config_files.md.
"""

from __future__ import annotations

import fcntl
import os
import struct
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeVar

from msgspec import Struct

from cli.verify.findings import Report
from libs.formats import limits, store_layout
from libs.formats.config import consumer_offsets_json, delay_offsets_json, subscription_groups_json, topics_json
from libs.formats.config.consumer_offsets_json import ConsumerOffsetsFile
from libs.formats.config.delay_offsets_json import DelayOffsetsFile
from libs.formats.config.topics_json import TopicsFile
from libs.formats.epoch import Epoch
from libs.formats.errors import BadField, FormatError, NewerVersion
from libs.formats.state import abort_file, epoch_file, log_history, store_checkpoint, topic_journal
from libs.formats.state.index_progress import IndexProgress
from libs.formats.state.log_history import LogHistoryFile, TopicBeginsFile
from libs.formats.state.queue_snapshot import QueueSnapshot
from libs.formats.state.replication import InSyncFile, ReplicaFile, SharedStateFile, UnsentOffsetsFile
from libs.formats.state.store_checkpoint import StoreCheckpoint
from libs.log.state.set_apart import SetApart
from libs.machine.fs import TEMPORARY_SUFFIX
from libs.machine.posix_fs import PosixFs

LOCK_FILES = (store_layout.LOCK, store_layout.INDEXER_LOCK)

_FLOCK = struct.Struct("hhqqi4x")  # struct flock of Linux on 64 bits: type, whence, start, length, process
_T = TypeVar("_T")


class StoreState(Struct, frozen=True):
    """The content of the small files. A file that is missing or can't be read is empty, or None."""

    is_log_clean: bool
    checkpoint: StoreCheckpoint
    epochs: list[Epoch]
    snapshot: QueueSnapshot | None
    progress: IndexProgress | None
    topics: TopicsFile | None
    consumer_offsets: ConsumerOffsetsFile
    delay_offsets: DelayOffsetsFile
    dropped_ends: dict[tuple[str, int], int]
    """Ends of queues whose files the Indexer has dropped, by topic and queue id."""
    set_apart: SetApart
    """Topics that RocketMQ keeps in forms that Reput does not serve."""

    @property
    def known_end_physical_offset(self) -> int:
        """The offset below which the whole log was on the disk once, or 0 if it is not known."""
        snapshot = self.snapshot.end_physical_offset if self.snapshot is not None else 0
        return max(snapshot, self.checkpoint.durable_physical_offset)

    def is_end_known(self, end_physical_offset: int) -> bool:
        """Return whether Reput has stopped cleanly with the log ending here, so that only zeros may follow."""
        if not self.is_log_clean or self.snapshot is None or self.checkpoint.is_of_rocketmq:
            return False
        return self.snapshot.end_physical_offset == end_physical_offset

    @property
    def is_index_clean(self) -> bool:
        """Whether the queues and indexes were left clean, so that no part of them will be built again."""
        return self.progress.is_clean if self.progress is not None else self.is_log_clean

    @property
    def certain_units_end(self) -> int:
        """The physical offset below which every record must have its unit."""
        if self.progress is not None:
            return self.progress.queue_physical_offset
        return limits.INT64_MAX if self.is_log_clean else 0

    @property
    def certain_entries_end(self) -> int:
        """The physical offset below which every key must have its index entry."""
        if self.progress is None:
            return limits.INT64_MAX if self.is_log_clean else 0
        is_clean = self.progress.is_clean
        return self.progress.index_physical_offset if is_clean else self.progress.index_replay_physical_offset

    def has_finished_files(self, names: Sequence[str]) -> bool:
        """Return whether no finished index file is missing. The Indexer records a removal before it removes a file."""
        progress = self.progress
        if progress is None or progress.index_finished_count < 0:
            return False
        return sum(name <= progress.index_finished_file for name in names) >= progress.index_finished_count

    def is_index_file_doubtful(self, name: str) -> bool:
        """Return whether the next start drops this index file and builds it again."""
        if self.is_index_clean:
            return False
        return self.progress is None or name > self.progress.index_finished_file


def users_of(data_dir: Path) -> list[str]:
    """Return the lock files that a process holds: a CommitLog, a RocketMQ broker, an Indexer. Locks nothing."""
    return [name for name in LOCK_FILES if (data_dir / name).is_file() and _is_locked(data_dir / name)]


def load_state(log_dir: Path, index_dir: Path, report: Report) -> StoreState:
    """Read the small files of a store whose indexes may lie in another directory."""
    log, index = _SmallFiles(log_dir, report), _SmallFiles(index_dir, report)
    log.load(store_layout.HISTORY, "HISTORY_DAMAGED", log_history.decode_name)
    log.load(store_layout.REPLICA, "REPLICA_DAMAGED", ReplicaFile.decode)
    log.load(store_layout.IN_SYNC, "IN_SYNC_DAMAGED", InSyncFile.decode)
    log.load(store_layout.TOPIC_BEGINS, "TOPIC_BEGINS_DAMAGED", TopicBeginsFile.decode)
    topics = _topics(log)
    offsets = index.load(store_layout.CONSUMER_OFFSETS, "CONSUMER_OFFSETS_DAMAGED", _text(consumer_offsets_json.loads))
    delays = index.load(store_layout.DELAY_OFFSETS, "DELAY_OFFSETS_DAMAGED", _text(delay_offsets_json.loads))
    index.load(store_layout.GROUP_CONFIGS, "GROUP_CONFIGS_DAMAGED", _text(subscription_groups_json.loads))
    history = index.load(store_layout.LOG_HISTORY, "LOG_HISTORY_DAMAGED", LogHistoryFile.decode) or LogHistoryFile()
    index.load(store_layout.SHARED_STATE, "SHARED_STATE_DAMAGED", SharedStateFile.decode)
    index.load(store_layout.UNSENT_OFFSETS, "UNSENT_OFFSETS_DAMAGED", UnsentOffsetsFile.decode)
    return StoreState(
        is_log_clean=_check_abort(log),
        checkpoint=_checkpoint(log),
        epochs=log.load(store_layout.EPOCHS, "EPOCHS_DAMAGED", epoch_file.decode) or [],
        snapshot=log.load(store_layout.QUEUE_SNAPSHOT, "SNAPSHOT_DAMAGED", QueueSnapshot.decode),
        progress=index.load(store_layout.INDEX_PROGRESS, "PROGRESS_DAMAGED", IndexProgress.decode),
        topics=topics,
        consumer_offsets=offsets or ConsumerOffsetsFile(),
        delay_offsets=delays or DelayOffsetsFile(),
        dropped_ends={(kept.topic, kept.queue_id): kept.end_queue_offset for kept in history.ends},
        set_apart=_set_apart(log_dir, index_dir, topics),
    )


def _topics(files: _SmallFiles) -> TopicsFile | None:
    """Return the topics, with the changes that topics.json lacks."""
    file = files.load(store_layout.TOPICS, "TOPICS_DAMAGED", _text(topics_json.loads))
    content = files.read(store_layout.TOPIC_JOURNAL) or b""
    journal = files.load(store_layout.TOPIC_JOURNAL, "TOPIC_JOURNAL_DAMAGED", topic_journal.decode)
    if journal is not None and journal.end < len(content):
        message = f"its last {len(content) - journal.end} bytes are a change that was not finished"
        files.report.add("TOPIC_JOURNAL_TORN", store_layout.TOPIC_JOURNAL, message, position=journal.end)
    if file is None or journal is None:
        return file
    return topic_journal.applied(file, topic_journal.missing(file, journal.changes))


def _set_apart(log_dir: Path, index_dir: Path, topics: TopicsFile | None) -> SetApart:
    listed = topics.topics.values() if topics is not None else ()
    found = SetApart.load(PosixFs(), log_dir, listed)
    found.learn(SetApart.load(PosixFs(), index_dir, listed).reasons)
    return found


def check_left_files(data_dir: Path, report: Report) -> None:
    """Report lock files of another content, copies of cut tails, files that were never finished."""
    for name in LOCK_FILES:
        content = _SmallFiles(data_dir, report).read(name)
        if content not in (None, b"", store_layout.LOCK_CONTENT):
            message = f"it begins with {content[:16]!r}, not {store_layout.LOCK_CONTENT!r}"
            report.add("LOCK_CONTENT", name, message, position=0)
    if (data_dir / store_layout.CUT).is_dir():
        for path in sorted((data_dir / store_layout.CUT).iterdir()):
            physical_offset = store_layout.cut_offset(path.name)
            where = "" if physical_offset is None else f" from physical offset {physical_offset} on"
            message = f"recovery cut off {path.stat().st_size} bytes of the log{where} and kept this copy of them"
            report.add("CUT_COPY", str(path.relative_to(data_dir)), message, physical_offset=physical_offset)
    for folder in ("", store_layout.CONFIG, store_layout.REPUT, store_layout.COMMIT_LOG, store_layout.INDEX):
        for path in sorted((data_dir / folder).glob(f"*{TEMPORARY_SUFFIX}")):
            report.add("TEMPORARY_FILE", str(path.relative_to(data_dir)), "a file that was never finished")


class _SmallFiles(Struct, frozen=True):
    """The small files of a directory."""

    directory: Path
    report: Report

    def read(self, name: str) -> bytes | None:
        """Return the content of a file, None if there is none or it can't be read, which is a finding."""
        path = self.directory / name
        try:
            if not path.exists():
                return None
            if path.stat().st_size <= limits.CONFIG_FILE_SIZE_BYTES_MAX:
                return path.read_bytes()
            self.report.add("FILE_UNREADABLE", name, f"{path.stat().st_size} bytes are too many for this file")
        except OSError as error:
            self.report.add("FILE_UNREADABLE", name, error.strerror or str(error))
        return None

    def load(self, name: str, code: str, decode: Callable[[bytes], _T]) -> _T | None:
        """Return the decoded file, None if there is none or it can't be decoded, which is a finding."""
        content = self.read(name)
        try:
            return None if content is None else decode(content)
        except (FormatError, NewerVersion) as error:
            self.report.add(code, name, f"{error.field or 'content'}: {error.reason}", position=error.position)
        except UnicodeDecodeError as error:
            self.report.add(code, name, f"content: {error}")
        return None


def _check_abort(files: _SmallFiles) -> bool:
    """Return whether there is no `abort`. Its content must be a process id or nothing."""
    if not (files.directory / store_layout.ABORT).exists():
        return True
    abort = abort_file.decode(files.read(store_layout.ABORT) or b"")
    if abort.is_clean:
        return True
    how = "follows another one" if abort.follows else "was not stopped in order"
    message = f"the store {how}; what the next start puts right by itself is a note here"
    files.report.add("STORE_NOT_CLEAN", store_layout.ABORT, message)
    if abort.noise:
        files.report.add("ABORT_CONTENT", store_layout.ABORT, f"{abort.noise[:16]!r} is no process id", position=0)
    return False


def _checkpoint(files: _SmallFiles) -> StoreCheckpoint:
    def decode(data: bytes) -> StoreCheckpoint:
        checkpoint = store_checkpoint.decode(data)
        if len(data) != store_checkpoint.FILE_SIZE_BYTES:
            reason = f"{len(data)} bytes, not {store_checkpoint.FILE_SIZE_BYTES}"
            raise BadField(position=store_checkpoint.FILE_SIZE_BYTES, reason=reason, field="size")
        if (position := store_checkpoint.stray_position(data)) is not None:
            message = "a byte that belongs to no value is not zero"
            files.report.add("CHECKPOINT_DAMAGED", store_layout.CHECKPOINT, message, position=position)
        return checkpoint

    return files.load(store_layout.CHECKPOINT, "CHECKPOINT_DAMAGED", decode) or StoreCheckpoint()


def _text(loads: Callable[[str], _T]) -> Callable[[bytes], _T]:
    return lambda data: loads(data.decode())


def _is_locked(path: Path) -> bool:
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        asked = _FLOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, 0, 1, 0)
        kind: int = _FLOCK.unpack(fcntl.fcntl(descriptor, fcntl.F_OFD_GETLK, asked))[0]
        return kind != fcntl.F_UNLCK
    finally:
        os.close(descriptor)
