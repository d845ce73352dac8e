# SPDX-License-Identifier: Apache-2.0
"""`rebuild`: drops all indexes of a directory and builds them anew from the log's files, without any service.

Invariants: before the first file is dropped the progress file says that nothing is certain, so after a crash at any
moment a later start or rebuild completes the indexes; consumer offsets, configuration and the log stay unchanged. At
its end the indexes are as after a clean stop: the next start requests no indexed record again.
Callers: `reput index rebuild`, and tests that compare indexes. The caller locks the log's directory; `rebuild` locks
the directory of the indexes.
"""

import contextlib
from collections.abc import Callable
from pathlib import Path

from msgspec import Struct
from msgspec.structs import replace

from libs.formats import store_layout
from libs.formats.limits import MIB
from libs.formats.records.dispatch_columns import Heartbeat
from libs.formats.state import epoch_file
from libs.log import end as log_end
from libs.log.end import KnownDurable, ScanEndKind
from libs.log.state import small_files
from libs.machine.clock import Clock
from libs.machine.fs import Fs
from services.indexer.config import IndexerConfig
from services.indexer.engine.build import build
from services.indexer.engine.indexer import Indexer
from services.indexer.engine.log.files import LogFiles

SYNC_BYTES = 256 * MIB
"""Bytes of the log that are indexed between two syncs: memory stays bounded, and a later start continues there."""


class RebuildProgress(Struct, frozen=True):
    """The progress of a rebuild. Offsets are in bytes of the log. The target is an estimate until the rebuild ends."""

    start_physical_offset: int
    indexed_physical_offset: int
    target_physical_offset: int
    record_count: int


class RebuildReport(Struct, frozen=True):
    """The result of a rebuild, and the end of the log."""

    start_physical_offset: int
    end_physical_offset: int
    log_end: ScanEndKind
    log_end_reason: str
    record_count: int
    queue_count: int
    index_file_count: int
    index_entry_count: int
    epoch: int
    duration_ms: int = 0


async def rebuild(
    fs: Fs,
    config: IndexerConfig,
    *,
    log_data_dir: Path,
    segment_size_bytes: int,
    clock: Clock,
    on_progress: Callable[[RebuildProgress], None] = lambda _: None,
    end_physical_offset: int | None = None,
) -> RebuildReport:
    """Fill the indexes of `config.data_dir` from the log of `log_data_dir`, which may be another directory.

    With `end_physical_offset` a log that is still written may be read up to there. The indexed records are durable on
    return, also when it ends with an error. Raises RecordDamaged, Inapplicable, StoreLocked, StoreError, FormatError
    (the epoch file) and OSError.
    """
    started_s = clock.monotonic_s()
    epoch = _epoch(fs, log_data_dir / store_layout.EPOCHS)
    log = LogFiles(
        fs,
        log_data_dir,
        segment_size_bytes=segment_size_bytes,
        end_physical_offset=end_physical_offset,
        epoch=epoch,
        durable=_durable(fs, log_data_dir, end_physical_offset, has_epochs=epoch > 0),
        delay_levels_ms=config.delay_levels_ms(),
    )
    indexer = build(config, fs, clock, source=log, records=log, on_failure=lambda _: None)
    try:
        indexer.open(anew=True)
        await _fill(indexer, log, on_progress)
        report = _report(indexer, log)
    finally:
        log.close()
        await indexer.close()
    return replace(report, duration_ms=round((clock.monotonic_s() - started_s) * 1000))


async def _fill(indexer: Indexer, log: LogFiles, on_progress: Callable[[RebuildProgress], None]) -> None:
    indexes, reput, flush = indexer.indexes, indexer.follow.reput, indexer.follow.flush
    synced = log.min_physical_offset
    async with contextlib.aclosing(log.follow(0, log.epoch)) as steps:
        async for step in steps:
            await reput.apply(step)
            at, target = indexes.reached.indexed_physical_offset, log.estimated_end_physical_offset
            target = at if isinstance(step, Heartbeat) else max(at, target)
            on_progress(RebuildProgress(log.min_physical_offset, at, target, indexes.applied_record_count))
            if isinstance(step, Heartbeat):
                return
            if at - synced >= SYNC_BYTES:
                await flush.flush(is_thorough=True)
                synced = at


def _report(indexer: Indexer, log: LogFiles) -> RebuildReport:
    assert log.end is not None
    return RebuildReport(
        start_physical_offset=log.min_physical_offset,
        end_physical_offset=log.end.physical_offset,
        log_end=log.end.kind,
        log_end_reason=log.end.reason,
        record_count=indexer.indexes.applied_record_count,
        queue_count=indexer.indexes.queues.sums.queue_count,
        index_file_count=indexer.indexes.index.file_count,
        index_entry_count=indexer.indexes.index.entry_count,
        epoch=log.epoch,
    )


def _epoch(fs: Fs, path: Path) -> int:
    """Return the number of the log's epoch. It is 0 for a log without epochs, such as RocketMQ's."""
    epochs = epoch_file.decode(fs.read(path)) if fs.exists(path) else []
    return epochs[-1].number if epochs else 0


def _durable(fs: Fs, directory: Path, end_physical_offset: int | None, *, has_epochs: bool) -> KnownDurable:
    if end_physical_offset is not None:
        return KnownDurable(physical_offset=end_physical_offset)
    checkpoint = small_files.load_checkpoint(fs, directory)
    return log_end.known_durable(checkpoint, has_epochs=has_epochs)
