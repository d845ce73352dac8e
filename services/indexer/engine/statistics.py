# SPDX-License-Identifier: Apache-2.0
"""The values of an Indexer for the telemetry room."""

from msgspec import Struct

from services.indexer.engine.follow.reput_state import ReputState
from services.indexer.engine.indexer import Indexer
from services.indexer.engine.log.local_records import LocalRecords


class IndexerStatistics(Struct, frozen=True):
    """A snapshot of the counters. Offsets are in bytes of the log."""

    state: int
    """State of the reput loop, as its number in ReputState."""
    indexed_physical_offset: int
    """Offset behind the last record that is indexed."""
    flushed_physical_offset: int
    """Offset behind the last record whose index is on the disk."""
    confirmed_physical_offset: int
    """Offset behind the last byte that the log lets readers see."""
    lag_bytes: int
    """Bytes of the log that are not indexed yet."""
    min_physical_offset: int
    """Offset of the first record that is indexed."""
    epoch: int
    """Epoch of the last record that is indexed."""
    queue_count: int
    """Queues that have an index."""
    index_file_count: int
    """Files of the index by key."""
    index_filter_count: int
    """Files of the index by key whose filter is in use."""
    consumer_offset_count: int
    """Consumer offsets of groups that keep offsets."""
    waiting_pull_count: int
    """Pulls that wait for a message."""
    running_scan_count: int
    """Scans that run."""
    stopped: int
    """1 while indexing is stopped by an error."""
    is_other_log: int
    """1 while nothing is indexed because the log is not the indexed log."""
    applied_records_total: int
    """Records that were indexed."""
    locally_read_records_total: int
    """Records that were read from the log's files without the CommitLog."""
    scanned_rows_total: int
    """Rows that scans sent."""
    scanned_frames_bytes_total: int
    """Bytes of frames that scans sent."""
    index_files_searched_total: int
    """Files of the index by key that look-ups read, counted for each key."""
    index_files_skipped_total: int
    """Files of the index by key that look-ups did not read, because their filters deny the key."""
    sync_rounds_total: int
    """Rounds of syncs of the indexes to the disk."""
    gaps_total: int
    """Places where records of the log were gone before they were indexed."""
    history_changes_total: int
    """How often the log's history changed and indexes were cut."""
    removed_queues_total: int
    """Queues that were removed."""
    stepped_over_record_count: int
    """Records that fit no queue, which the indexes leave out."""
    log_silent_ms: int
    """Time since the log was last heard."""
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
        index_filter_count=indexer.upkeep.filters.filter_count,
        consumer_offset_count=indexer.groups.count,
        waiting_pull_count=follow.polls.count,
        running_scan_count=answers.scanner.count,
        stopped=int(follow.reput.state is ReputState.STOPPED),
        is_other_log=int(follow.reput.state is ReputState.OTHER_LOG),
        applied_records_total=indexes.applied_record_count,
        locally_read_records_total=answers.records.read_count if isinstance(answers.records, LocalRecords) else 0,
        scanned_rows_total=answers.scanner.row_count,
        scanned_frames_bytes_total=answers.scanner.frame_bytes,
        index_files_searched_total=indexes.index.searched_count,
        index_files_skipped_total=indexes.index.skipped_count,
        sync_rounds_total=follow.flush.sync_round_count,
        gaps_total=follow.reput.gap_count,
        history_changes_total=follow.reput.history_change_count,
        removed_queues_total=indexer.upkeep.removal.removed_queue_count,
        stepped_over_record_count=indexes.queues.stepped_over.record_count,
        log_silent_ms=follow.live.silent_ms,
        damaged_record_count=answers.damage.count,
        is_log_away=int(follow.live.is_away),
    )
