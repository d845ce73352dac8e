# SPDX-License-Identifier: Apache-2.0
"""From a data directory to an open store: claims it, reads the small files, recovers the log. Blocks; runs in a thread.

Invariants: whoever fails leaves the directory unlocked and, unless the log was already being settled, unchanged.
RocketMQ's counterpart is DefaultMessageStore.load.
"""

import contextlib
import logging
from dataclasses import dataclass

from libs.formats.store_checkpoint import StoreCheckpoint
from libs.machine.clock import Clock
from libs.machine.fs import Fs
from libs.store import checkpoint_file
from libs.store.errors import CheckpointDamaged
from libs.store.segment_chain import SegmentChain
from libs.store.transient_store_pool import TransientStorePool
from services.commitlog.config import CommitLogConfig
from services.commitlog.engine import queue_snapshot, recovery
from services.commitlog.engine.ballast import Ballast
from services.commitlog.engine.epochs import EpochHistory
from services.commitlog.engine.progress import Progress
from services.commitlog.engine.queue_snapshot import QueueSnapshot
from services.commitlog.engine.recovery import RecoveryReport
from services.commitlog.engine.recovery_progress import RecoveryProgress
from services.commitlog.engine.store_files import StoreFiles
from services.commitlog.engine.topics import TopicRegistry
from services.commitlog.engine.writers import WriterTable

COMMIT_LOG_DIRECTORY = "commitlog"

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class OpenStore:
    """What an open store consists of."""

    files: StoreFiles
    chain: SegmentChain
    topics: TopicRegistry
    writers: WriterTable
    epochs: EpochHistory
    progress: Progress
    recovery: RecoveryReport


def open_store(fs: Fs, config: CommitLogConfig, clock: Clock, progress: RecoveryProgress) -> OpenStore:
    """Open the store of `config.data_dir`.

    Raises StoreLocked, SegmentSizeWrong, SegmentMissing, SegmentUnreadable, LogDamaged, FormatError (topics or epochs)
    or OSError.
    """
    files = StoreFiles(fs, config.data_dir)
    was_clean_stop = files.claim()
    ballast = Ballast(
        fs, config.data_dir, size_bytes=config.disk_ballast_bytes, reserve_bytes=config.disk_reserve_bytes
    )
    try:
        with ballast.given_way():
            return _open_claimed(fs, config, clock, progress, files, was_clean_stop=was_clean_stop)
    except BaseException:
        files.release()
        raise


def _open_claimed(
    fs: Fs,
    config: CommitLogConfig,
    clock: Clock,
    progress: RecoveryProgress,
    files: StoreFiles,
    *,
    was_clean_stop: bool,
) -> OpenStore:
    with contextlib.ExitStack() as undo:
        chain = SegmentChain.open(
            fs,
            config.data_dir / COMMIT_LOG_DIRECTORY,
            config.segment_size_bytes,
            preallocates=config.preallocate,
            warms=config.warm_segments,
            pool=_take_pool(config),
            is_clean=was_clean_stop,
        )
        undo.callback(chain.close)
        if not was_clean_stop:  # a segment whose removal is not durable yet must not come back once it was missed
            fs.sync_directory(chain.directory)
        epochs = EpochHistory.open(fs, config.data_dir)
        topics = TopicRegistry(
            fs,
            config.data_dir,
            clock,
            default_queue_count=config.default_queue_count,
            topic_count_max=config.topic_count_max,
            delay_level_count=len(config.delay_levels_ms()),
        )
        writers = WriterTable(config.writer_batch_count_max)
        checkpoint = _load_checkpoint(fs, config)
        if files.is_of_rocketmq:
            checkpoint = checkpoint.of_rocketmq()
        finding = recovery.examine(
            chain,
            topics.table,
            writers,
            config,
            clock,
            progress,
            was_clean_stop=was_clean_stop,
            checkpoint=checkpoint,
            snapshot=_load_snapshot(fs, config),
            epochs=epochs.epochs,
        )
        fs.make_directory(config.data_dir / "config")
        fs.make_directory(config.data_dir / "reput")
        topics.load()
        files.mark_in_use()
        report = recovery.settle(fs, config, chain, epochs, clock, finding)
        undo.pop_all()
    store_progress = Progress(fs, config.data_dir, clock, checkpoint)
    store_progress.note_flushed(report.last_store_time_ms, report.end_physical_offset)
    return OpenStore(files, chain, topics, writers, epochs, store_progress, report)


def _take_pool(config: CommitLogConfig) -> TransientStorePool | None:
    if not config.transient_store_pool:
        return None
    return TransientStorePool(config.transient_store_pool_segment_count, config.segment_size_bytes)


def _load_checkpoint(fs: Fs, config: CommitLogConfig) -> StoreCheckpoint:
    try:
        return checkpoint_file.load(fs, config.data_dir / checkpoint_file.FILE_NAME)
    except CheckpointDamaged as error:
        _log.warning("%s: all of the log is scanned", error)
        return StoreCheckpoint()


def _load_snapshot(fs: Fs, config: CommitLogConfig) -> QueueSnapshot | None:
    try:
        return queue_snapshot.load(fs, config.data_dir)
    except queue_snapshot.DAMAGE_ERRORS as error:
        _log.warning("the snapshot of the queue offsets can't be read (%s): all of the log is scanned", error)
        return None
