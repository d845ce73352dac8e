# SPDX-License-Identifier: Apache-2.0
"""Opening: claims a data directory, reads the small files and recovers the log. Blocks.

Invariants: a failed opening leaves the directory unlocked. It also leaves it unchanged, unless recovery had already
begun to settle the log.
RocketMQ's counterpart is DefaultMessageStore.load.
"""

import contextlib
import logging
from pathlib import Path
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from libs.formats import store_layout
from libs.formats.errors import FormatError
from libs.formats.state.replication import InSyncFile
from libs.formats.state.store_checkpoint import StoreCheckpoint
from libs.log.errors import LogDirectoryLeftOut, LogDirectoryMissing
from libs.log.state import directories as log_directories
from libs.log.state import small_files
from libs.machine.clock import Clock
from libs.machine.fs import Fs
from libs.segments.chain import SegmentChain
from libs.segments.directories import SegmentDirectories
from libs.segments.pool import TransientStorePool
from services.commitlog.config import CommitLogConfig
from services.commitlog.engine.keep import queue_snapshot
from services.commitlog.engine.keep.epochs import ElectedEpoch, EpochHistory
from services.commitlog.engine.keep.identity import Identity
from services.commitlog.engine.keep.small_files import SmallFiles
from services.commitlog.engine.start import recovery
from services.commitlog.engine.start.cut import Cut
from services.commitlog.engine.start.meter import RecoveryMeter
from services.commitlog.engine.start.recovery import RecoveryReport
from services.commitlog.engine.start.store_files import StoreFiles
from services.commitlog.engine.write.state import LogState
from services.commitlog.engine.write.topics import TopicRegistry
from services.commitlog.engine.write.writers import WriterTable

_log = logging.getLogger(__name__)


class RecoveredStore(Struct, frozen=True):
    """The store after its recovery from the files."""

    small_files: SmallFiles
    identity: Identity
    directories: SegmentDirectories
    """Directories of the segments."""
    files: StoreFiles
    chain: SegmentChain
    topics: TopicRegistry
    state: LogState
    epochs: EpochHistory
    checkpoint: StoreCheckpoint
    in_sync: InSyncFile | None
    """The in-sync set that this log recorded as a leader. None for a follower, and after an election."""
    recovery: RecoveryReport


def recover_store(
    fs: Fs,
    config: CommitLogConfig,
    clock: Clock,
    meter: RecoveryMeter,
    *,
    cut: Cut | None = None,
    elected: ElectedEpoch | None = None,
) -> RecoveredStore:
    """Claim and recover the store of `config.data_dir`, after a `cut` if any.

    A new epoch is newer than the epoch that the store has promised. After an election it is the epoch of `elected`.
    Raises ReplicaFileDamaged, StoreLocked, SegmentSizeWrong, SegmentMissing, SegmentTwice, SegmentUnreadable,
    LogDirectoryMissing, LogDirectoryLeftOut, LogDamaged, ConfigFileDamaged, FormatError (epochs) or OSError.
    """
    writer = SmallFiles(config.ballast(fs))
    identity = Identity.open(fs, config, writer)
    files, directories = StoreFiles(fs, config.data_dir), config.segment_directories()
    was_clean_stop = files.claim()
    with contextlib.ExitStack() as undo:
        undo.callback(files.release)
        with writer.ballast.given_way():
            _claim_directories(fs, config, directories, files)
            epochs = EpochHistory.open(fs, config.data_dir)
            cut_off = {} if cut is None else _cut_off(fs, config, directories, epochs, cut)
            chain = _open_chain(fs, config, directories, is_clean=was_clean_stop)
            undo.callback(chain.close)
            # A removed segment must not reappear after it was found missing or was created elsewhere, so sync first.
            if not was_clean_stop or len(directories.all) > 1:
                for directory in chain.directory_paths:
                    fs.sync_directory(directory)
            topics = TopicRegistry(fs, config, clock)
            state = LogState(topics.table, WriterTable.of(config))
            checkpoint = small_files.load_checkpoint(fs, config.data_dir)
            if files.is_of_rocketmq:
                checkpoint = checkpoint.of_rocketmq()
            started_s = clock.monotonic_s()
            finding = recovery.examine(
                chain,
                state,
                config,
                meter,
                was_clean_stop=was_clean_stop,
                checkpoint=checkpoint,
                snapshot=queue_snapshot.load(fs, config.data_dir),
                epochs=epochs.epochs,
            )
            fs.make_directory(config.data_dir / store_layout.CONFIG)
            fs.make_directory(config.data_dir / store_layout.REPUT)
            topics.load()
            files.is_owed = files.is_owed and topics.set_apart.has_files
            log_directories.save(fs, config.data_dir, directories.used)
            files.mark_in_use(follows=config.is_follower or files.has_followed)
            report = recovery.settle(
                fs, config, chain, epochs, finding,
                has_followed=files.has_followed, promised_epoch=identity.promised_epoch, elected=elected,
            )  # fmt: skip
            if files.has_followed and not config.is_follower:
                files.mark_in_use()
            elif config.is_follower:
                small_files.forget_in_sync(fs, config.data_dir)
            in_sync = None if config.is_follower or elected else small_files.load_in_sync(fs, config.data_dir)
        undo.pop_all()
    duration_ms = round((clock.monotonic_s() - started_s) * 1000)
    report = replace(report, duration_ms=duration_ms, missing_bytes=_missing_bytes(chain, checkpoint), **cut_off)
    _tell(report)
    return RecoveredStore(
        writer, identity, directories, files, chain, topics, state, epochs, checkpoint, in_sync, report
    )


def _cut_off(
    fs: Fs, config: CommitLogConfig, directories: SegmentDirectories, epochs: EpochHistory, cut: Cut
) -> dict[str, Any]:
    """Cut the log. Returns the fields of the report that describe the cut."""
    with contextlib.closing(_open_chain(fs, config, directories, is_clean=False)) as uncut:
        copied_bytes, path = cut.apply(fs, config, uncut, epochs)
    return {"truncated_bytes": copied_bytes, "truncated_copy_path": path}


def _open_chain(fs: Fs, config: CommitLogConfig, directories: SegmentDirectories, *, is_clean: bool) -> SegmentChain:
    pool = None
    if config.has_pool:
        pool = TransientStorePool(config.transient_store_pool_segment_count, config.segment_size_bytes)
    return SegmentChain(
        fs,
        directories.writable[0],
        config.segment_size_bytes,
        preallocates=config.preallocate,
        warms=config.warm_segments,
        pool=pool,
        directories=directories,
    ).open(is_clean=is_clean)


def _tell(report: RecoveryReport) -> None:
    _log.info(
        "the log ends at %d (%s), %d records scanned from %d in %d ms, %d bytes cut off",
        report.end_physical_offset,
        report.scan_end.value,
        report.scanned_record_count,
        report.scan_start_physical_offset,
        report.duration_ms,
        report.truncated_bytes,
    )


def _claim_directories(fs: Fs, config: CommitLogConfig, directories: SegmentDirectories, files: StoreFiles) -> None:
    """Compare the settings with the directories, so that a missing disk is noticed. Locks the directories."""
    named = {log_directories.real(directory) for directory in directories.all}
    listed = _listed_directories(fs, config.data_dir, directories)
    for directory in dict.fromkeys((config.data_dir / store_layout.COMMIT_LOG, *listed)):
        is_there = fs.exists(directory)
        if directory in listed and not is_there:
            raise LogDirectoryMissing(path=directory)
        is_named = log_directories.real(directory) in named
        if is_there and not is_named and log_directories.segment_paths(fs, [directory]):
            raise LogDirectoryLeftOut(path=directory)
    for directory in directories.all:
        fs.make_directory(directory)
        if not log_directories.real(directory).is_relative_to(log_directories.real(config.data_dir)):
            files.claim_directory(directory)


def _listed_directories(fs: Fs, data_dir: Path, directories: SegmentDirectories) -> list[Path]:
    """Return the directories of the log's last run. The list is empty if it used only the default directory."""
    try:
        return log_directories.load(fs, data_dir) if fs.exists(data_dir / store_layout.LOG_DIRECTORIES) else []
    except FormatError as error:
        _log.warning(
            "%s can't be read (%s): written anew, if all directories are there", store_layout.LOG_DIRECTORIES, error
        )
        return list(directories.all)


def _missing_bytes(chain: SegmentChain, checkpoint: StoreCheckpoint) -> int:
    """Return the number of bytes missing at the log's start that neither Reput nor RocketMQ deleted."""
    missing_bytes = checkpoint.missing_before(chain.min_physical_offset)
    if missing_bytes:
        _log.error(
            "segments from physical offset %d to %d are missing, %d bytes, and it was not Reput that deleted them: "
            "their messages are lost unless the files are put back while the CommitLog does not run",
            checkpoint.start_physical_offset,
            chain.min_physical_offset,
            missing_bytes,
        )
    return missing_bytes
