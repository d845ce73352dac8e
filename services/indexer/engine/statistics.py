# SPDX-License-Identifier: Apache-2.0
"""The values of an Indexer for the telemetry room."""

from dataclasses import dataclass

from services.indexer.engine.follow.reput_state import ReputState
from services.indexer.engine.indexer import Indexer
from services.indexer.engine.log.local_records import LocalRecords


@dataclass(frozen=True, slots=True)
class IndexerStatistics:
    """A snapshot of the counters. Offsets are in bytes of the log."""

    state: int
    indexed_physical_offset: int
    flushed_physical_offset: int
    confirmed_physical_offset: int
    lag_bytes: int
    min_physical_offset: int
    epoch: int
    queue_count: int
    index_file_count: int
    consumer_offset_count: int
    waiting_pull_count: int
    running_scan_count: int
    stopped: int
    is_other_log: int
    """1 while nothing is indexed because the log is not the indexed log."""
    applied_records_total: int
    locally_read_records_total: int
    scanned_rows_total: int
    scanned_frames_bytes_total: int
    sync_rounds_total: int
    gaps_total: int
    history_changes_total: int
    removed_queues_total: int
    stepped_over_record_count: int
    log_silent_ms: int
    """Milliseconds since the log was last heard."""
    damaged_record_count: int
    """Damaged places of the log that answers needed since the start."""
    is_log_away: int
    """1 while calls that wait for new records are refused because the log is silent."""


def statistics(indexer: Indexer) -> IndexerStatistics:
    """Return a snapshot. Quick, and may be called from any thread."""
    indexes, follow, answers = indexer.indexes, indexer.follow, indexer.answers
    reached, confirmed = indexes.reached, follow.reput.confirmed_physical_offset
    return IndexerStatistics(
        state=follow.reput.state,
        indexed_physical_offset=reached.indexed_physical_offset,
        flushed_physical_offset=follow.flush.flushed_physical_offset,
        confirmed_physical_offset=confirmed,
        lag_bytes=max(0, confirmed - reached.indexed_physical_offset),
        min_physical_offset=indexes.queues.min_physical_offset,
        epoch=reached.epoch,
        queue_count=indexes.queues.sums.queue_count,
        index_file_count=indexes.index.file_count,
        consumer_offset_count=indexer.groups.count,
        waiting_pull_count=follow.polls.count,
        running_scan_count=answers.scanner.count,
        stopped=int(follow.reput.state is ReputState.STOPPED),
        is_other_log=int(follow.reput.state is ReputState.OTHER_LOG),
        applied_records_total=indexes.applied_record_count,
        locally_read_records_total=answers.records.read_count if isinstance(answers.records, LocalRecords) else 0,
        scanned_rows_total=answers.scanner.row_count,
        scanned_frames_bytes_total=answers.scanner.frame_bytes,
        sync_rounds_total=follow.flush.sync_round_count,
        gaps_total=follow.reput.gap_count,
        history_changes_total=follow.reput.history_change_count,
        removed_queues_total=indexer.upkeep.removal.removed_queue_count,
        stepped_over_record_count=indexes.queues.stepped_over.record_count,
        log_silent_ms=follow.live.silent_ms,
        damaged_record_count=answers.damage.count,
        is_log_away=int(follow.live.is_away),
    )
