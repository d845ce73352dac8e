# SPDX-License-Identifier: Apache-2.0
"""Recovery: finds the end of the log at a start, in two steps.

`examine` only reads. It chooses the start of the scan, scans, and raises LogDamaged for damage that a person must
decide about. `settle` then changes the store accordingly: it copies a torn tail, begins an epoch, clears the tail and
syncs. Between the two the caller marks the store as in use (`abort`), so a crash in the middle of `settle` is an
unclean stop and the next start repeats it. Recovery is idempotent.
Callers: CommitLog.open, in a worker thread, before other code uses the chain.
Rules: docs/formats/commit_log.md section 9; RocketMQ's counterparts are CommitLog.recoverNormally and
recoverAbnormally.
"""

import logging
from collections.abc import Sequence

from msgspec import Struct
from msgspec.structs import replace

from libs.formats.epoch import Epoch
from libs.formats.state.queue_snapshot import QueueSnapshot
from libs.formats.state.store_checkpoint import MARGIN_MS, StoreCheckpoint
from libs.formats.store_layout import file_name, segment_base
from libs.log import end as log_end
from libs.log import tail_search
from libs.log.end import ScanEndKind
from libs.machine.failpoints import failpoint
from libs.machine.fs import Fs
from libs.segments.chain import SegmentChain
from services.commitlog.config import CommitLogConfig
from services.commitlog.engine.keep.epochs import ElectedEpoch, EpochHistory
from services.commitlog.engine.start.meter import RecoveryMeter
from services.commitlog.engine.start.scan import LogScan
from services.commitlog.engine.start.tail_copy import copy_tail
from services.commitlog.engine.write.state import LogState
from services.commitlog.errors import LogDamaged

CLEAN_SCAN_SEGMENT_COUNT = 3
"""Number of segments that a start after a clean stop scans, as RocketMQ's recoverNormally does."""

_log = logging.getLogger(__name__)


class RecoveryReport(Struct, frozen=True):
    """The findings and changes of a start."""

    was_clean_stop: bool
    scan_end: ScanEndKind
    end_physical_offset: int
    scan_start_physical_offset: int
    durable_physical_offset: int
    """All bytes below were certainly on the disk, not only in the page cache."""
    scanned_record_count: int
    are_queue_offsets_unknown: bool = False
    """Whether lost records may have had queue offsets that are unknown here. Appends would assign them again."""
    snapshot_physical_offset: int | None = None
    """End of the snapshot of the queue offsets, None without a fitting snapshot."""
    truncated_bytes: int = 0
    truncated_copy_path: str = ""
    duration_ms: int = 0
    missing_bytes: int = 0
    """Bytes that another program removed from the log's start since the last run."""


def examine(
    chain: SegmentChain,
    state: LogState,
    config: CommitLogConfig,
    meter: RecoveryMeter,
    *,
    was_clean_stop: bool,
    checkpoint: StoreCheckpoint,
    snapshot: QueueSnapshot | None,
    epochs: Sequence[Epoch],
) -> RecoveryReport:
    """Find the end of the log. Fills its state and the segments' store times. Raises LogDamaged, SegmentUnreadable."""
    known_end = max(
        snapshot.end_physical_offset if snapshot else 0,
        checkpoint.durable_physical_offset,
        epochs[-1].start_physical_offset if epochs and not config.is_follower else 0,
    )
    if not chain.segments and known_end > 0:
        base = segment_base(known_end, config.segment_size_bytes)
        raise LogDamaged(segment=file_name(base), position=0, reason="the log has no file, although it had records")
    if snapshot is not None and not _fits(snapshot, chain):
        snapshot = None
    if snapshot is not None:
        state.restore(snapshot)
        _restore_times(snapshot, chain)
    start = _scan_start(chain, checkpoint, snapshot, was_clean_stop=was_clean_stop)
    durable = log_end.known_durable(checkpoint, has_epochs=bool(epochs))
    if snapshot is not None:
        durable = replace(
            durable,
            physical_offset=max(snapshot.end_physical_offset, durable.physical_offset),
            is_end=was_clean_stop and not checkpoint.is_of_rocketmq,
        )
    times_before_ms = [s.last_store_time_ms for s in chain.segments if s.base_physical_offset < start]
    state.last_store_time_ms = max(times_before_ms, default=0)
    scan = LogScan(chain, state, durable, meter, config)
    end = scan.run(start)
    if end.kind is ScanEndKind.DAMAGED:
        base = segment_base(end.physical_offset, config.segment_size_bytes)
        raise LogDamaged(segment=file_name(base), position=end.physical_offset - base, reason=end.reason)
    state.last_store_time_ms = max(state.last_store_time_ms, snapshot.last_store_time_ms if snapshot else 0)
    return RecoveryReport(
        was_clean_stop=was_clean_stop,
        scan_end=end.kind,
        end_physical_offset=end.physical_offset,
        scan_start_physical_offset=start,
        durable_physical_offset=max(durable.physical_offset, start),
        scanned_record_count=scan.record_count,
        are_queue_offsets_unknown=snapshot is None
        and chain.min_physical_offset > 0
        and not config.accept_scanned_queue_offsets,
        snapshot_physical_offset=snapshot.end_physical_offset if snapshot else None,
    )


def settle(
    fs: Fs,
    config: CommitLogConfig,
    chain: SegmentChain,
    epochs: EpochHistory,
    report: RecoveryReport,
    *,
    has_followed: bool,
    promised_epoch: int,
    elected: ElectedEpoch | None,
) -> RecoveryReport:
    """End the store, durably, at the end that `examine` found. Raises OSError or SyncFailed. Blocks.

    `has_followed`: whether the log was a copy of another log until now. `promised_epoch`: the newest epoch that it
    certainly knew then. An `elected` log begins its epoch after any kind of stop.
    """
    end = report.end_physical_offset
    is_torn = report.scan_end is ScanEndKind.TORN_TAIL
    truncated_bytes, copy_path = copy_tail(fs, config, chain, end, epochs.number + 1) if is_torn else (0, "")
    is_unseen = epochs.number == 0 and end == 0
    leads = not config.is_follower  # a follower has the epochs of its leader
    if leads and epochs.number == 0 and not elected:
        epochs.begin(0)
    if elected:
        epochs.begin(end, elected=elected)
    elif leads and ((not report.was_clean_stop and not is_unseen) or is_torn):
        # After an unclean stop the log may once have been longer: a power cut leaves zeros.
        failpoint("settle.before_epoch")
        epochs.begin(end, takes_over=has_followed, promised_epoch=promised_epoch)
        failpoint("settle.after_epoch")
    if chain.segments:
        failpoint("settle.before_truncate")
        chain.truncate_after(end, clear_rest=is_torn)
        if not report.was_clean_stop:
            _write_again(chain, report.durable_physical_offset)
        chain.sync()
        failpoint("settle.after_truncate")
    return replace(report, truncated_bytes=truncated_bytes, truncated_copy_path=copy_path)


def _write_again(chain: SegmentChain, durable_physical_offset: int) -> None:
    """Make the bytes after the last known sync durable, also if later syncs have failed.

    The bytes below are durable, so their segments need not stay mapped for a sync.
    """
    for segment in chain.segments:
        position = max(durable_physical_offset - segment.base_physical_offset, 0)
        if position < segment.size_bytes:
            segment.write_again(position)
        else:
            segment.flushed_position = segment.wrote_position


def _fits(snapshot: QueueSnapshot, chain: SegmentChain) -> bool:
    """Return whether the snapshot has every segment of the chain below its end, and its end is still in the log."""
    end = snapshot.end_physical_offset
    known = {times.base_physical_offset for times in snapshot.segment_times}
    below = {segment.base_physical_offset for segment in chain.segments if segment.base_physical_offset < end}
    if below <= known and chain.min_physical_offset <= end:
        return True
    _log.warning("the snapshot of the queue offsets does not fit the log; all of the log is scanned")
    return False


def _restore_times(snapshot: QueueSnapshot, chain: SegmentChain) -> None:
    times_by_base = {times.base_physical_offset: times for times in snapshot.segment_times}
    for segment in chain.segments:
        times = times_by_base.get(segment.base_physical_offset)
        if times is not None:
            segment.first_store_time_ms = times.first_store_time_ms
            segment.last_store_time_ms = times.last_store_time_ms


def _scan_start(
    chain: SegmentChain, checkpoint: StoreCheckpoint, snapshot: QueueSnapshot | None, *, was_clean_stop: bool
) -> int:
    """Return the first byte of the first segment to scan.

    It is early enough for the counters and for all bytes that may not be on the disk.
    """
    first, size = chain.min_physical_offset, chain.segment_size_bytes
    if snapshot is None:
        return first
    # A snapshot is written after a sync, so all bytes below it are durable. The scan must cover the bytes above.
    start = min(segment_base(snapshot.end_physical_offset, size), max(chain.max_physical_offset - size, first))
    if was_clean_stop:
        return max(start - (CLEAN_SCAN_SEGMENT_COUNT - 1) * size, first)
    if checkpoint.durable_physical_offset >= snapshot.end_physical_offset:
        return max(start, first)
    return max(min(start, _first_doubtful(chain, checkpoint)), first)


def _first_doubtful(chain: SegmentChain, checkpoint: StoreCheckpoint) -> int:
    """Return the first byte of the newest segment that began before the last sync of the checkpoint's times.

    It serves a checkpoint without an offset of the log. It uses only the log's own time. RocketMQ also uses the
    queues' time, because it dispatches again from here.
    """
    durable_time_ms = checkpoint.commit_log_time_ms - MARGIN_MS
    for segment in reversed(chain.segments):
        first_time_ms = tail_search.first_store_time_ms(segment)
        if first_time_ms is not None and first_time_ms <= durable_time_ms:
            return segment.base_physical_offset
    return chain.min_physical_offset
