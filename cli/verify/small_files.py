# SPDX-License-Identifier: Apache-2.0
"""Compares the small files with the log: checkpoint, epochs, snapshot, progress, topics, offsets.

Run after the walk, except for the snapshot's counters, which are compared at their own place of the log.
Without a log nothing is compared. Formats: docs/formats/store_checkpoint.md, epoch_file.md, reput_files.md,
config_files.md.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from cli.verify.findings import Report
from cli.verify.log.check import LogFacts
from cli.verify.log.files import LogFiles
from cli.verify.queues.files import QueueState
from cli.verify.state import StoreState
from libs.formats import store_layout
from libs.formats.limits import INT64_MAX
from libs.formats.records.delay_level import SCHEDULE_TOPIC
from libs.formats.state.store_checkpoint import OWN_FIELDS_AT
from libs.formats.state.system_topics import (
    DELIVERY_GROUP,
    DELIVERY_LEFT_QUEUE_ID,
    DELIVERY_QUEUE_ID,
    DELIVERY_TOPIC,
    is_made_by_store,
)

States = Mapping[tuple[str, int], QueueState]


def check_snapshot_counters(state: StoreState, facts: LogFacts, states: States, report: Report) -> None:
    """Compare the snapshot's counters with the queues as they are when the walk has reached the snapshot's end."""
    if state.snapshot is None:
        return
    end = state.snapshot.end_physical_offset
    known = {(counter.topic, counter.queue_id): counter.next_queue_offset for counter in state.snapshot.counters}
    for (topic, queue_id), queue in states.items():
        is_known = queue.first is not None and queue.is_checked
        if not is_known or facts.has_damage_between(queue.last_physical_offset, end):
            continue
        counted = known.get((topic.encode().decode("latin-1"), queue_id), 0)
        if counted not in (0, queue.next):  # 0: the log has dropped it with the queue of a deleted topic
            message = f"{topic} queue {queue_id} goes on at {counted}, but after the log's records {queue.next} follows"
            report.add("SNAPSHOT_COUNTER", store_layout.QUEUE_SNAPSHOT, message)


def check_small_files(
    data_dir: Path, log: LogFiles, facts: LogFacts, state: StoreState, states: States, report: Report
) -> None:
    """Compare all small files with the log."""
    _check_topics(state, states, report)
    _check_read_offsets(log, state, states, report)
    _check_finished_file(data_dir, state, report)
    _check_snapshot(log, facts, state, report)
    if log.segments:
        _check_checkpoint(log, facts, state, report)
        _check_epochs(facts, state, report)
        _check_progress(facts, state, report)


def _check_topics(state: StoreState, states: States, report: Report) -> None:
    if state.topics is None:
        return
    for topic in sorted({queue.topic for queue in states.values() if queue.is_checked}):
        if topic not in state.topics.topics and not is_made_by_store(topic):
            message = f"there are queues or records of {topic[:80]!r}, which is not among the topics"
            report.add("TOPIC_UNKNOWN", store_layout.TOPICS, f"{message}; it was deleted or lost")


def _check_read_offsets(log: LogFiles, state: StoreState, states: States, report: Report) -> None:
    if not (log.segments or states):
        return
    for (topic, group), queues in state.consumer_offsets.offsets.items():
        for queue_id, queue_offset in queues.items():
            is_left = (topic, group, queue_id) == (DELIVERY_TOPIC, DELIVERY_GROUP, DELIVERY_LEFT_QUEUE_ID)
            checked_id = DELIVERY_QUEUE_ID if is_left else queue_id
            if (outside := _outside(state, states, topic, checked_id, queue_offset)) is not None:
                message = f"group {group} is {outside}"
                report.add("CONSUMER_OFFSET_OUTSIDE", store_layout.CONSUMER_OFFSETS, message)
    for level, queue_offset in state.delay_offsets.offsets.items():
        if (outside := _outside(state, states, SCHEDULE_TOPIC, level - 1, queue_offset)) is not None:
            report.add("DELAY_OFFSET_OUTSIDE", store_layout.DELAY_OFFSETS, f"delay level {level} is {outside}")


def _outside(state: StoreState, states: States, topic: str, queue_id: int, queue_offset: int) -> str | None:
    """Return a text with the place of a queue offset, if it is not in its queue."""
    if state.set_apart.why(topic):
        return None
    queue = states.get((topic, queue_id))
    end = 0 if queue is None else max(queue.next, queue.files.end_unit)
    end = max(end, state.dropped_ends.get((topic, queue_id), 0))  # of a queue that was removed, and continues there
    if 0 <= queue_offset <= end or (queue is not None and not queue.is_checked):
        return None
    return f"at {queue_offset} of {topic} queue {queue_id}, which ends at {end}"


def _check_finished_file(data_dir: Path, state: StoreState, report: Report) -> None:
    name = state.progress.index_finished_file if state.progress is not None else ""
    directory = data_dir / store_layout.INDEX
    if name and directory.is_dir() and not (directory / name).exists():
        message = f"the finished index file {name} is gone; all index files will be built again"
        report.add("PROGRESS_FILE_GONE", store_layout.INDEX_PROGRESS, message)


def _check_snapshot(log: LogFiles, facts: LogFacts, state: StoreState, report: Report) -> None:
    snapshot = state.snapshot
    if snapshot is None or not log.is_there:
        return
    end = facts.end_physical_offset
    if snapshot.end_physical_offset > end:
        message = f"the log ended at {snapshot.end_physical_offset} once, now it ends at {end}: records are lost"
        report.add("SNAPSHOT_BEYOND_LOG", store_layout.QUEUE_SNAPSHOT, message, physical_offset=end)
        return
    for times in snapshot.segment_times:
        base = times.base_physical_offset
        if base not in facts.spans or facts.has_damage_between(base, base + log.segment_size_bytes):
            continue
        first, last = times.first_store_time_ms, times.last_store_time_ms
        is_final = base + log.segment_size_bytes <= snapshot.end_physical_offset or snapshot.end_physical_offset == end
        actual_first, actual_last = facts.spans[base]
        if first != actual_first or (is_final and last != actual_last):
            actual_last = actual_last if is_final else last
            message = f"segment {base} has store times {first} to {last} there, {actual_first} to {actual_last} in fact"
            report.add("SNAPSHOT_TIMES", store_layout.QUEUE_SNAPSHOT, message, physical_offset=base)


def _check_checkpoint(log: LogFiles, facts: LogFacts, state: StoreState, report: Report) -> None:
    checkpoint = state.checkpoint
    if missing_bytes := checkpoint.missing_before(log.min_physical_offset):
        start = checkpoint.start_physical_offset
        message = f"the log began at {start}: {missing_bytes} bytes before its first segment"
        report.add("LOG_START_MISSING", store_layout.CHECKPOINT, message, physical_offset=start)
    last_ms, end = facts.last_store_time_ms, facts.end_physical_offset
    is_end_known = facts.record_count and not facts.has_damage_between(end - 1, end)
    of_times, of_ends = f"but the log's last record is of {last_ms}", f"the log ends at {end}"
    for position, name, value, least, most, bound in (
        (0, "log time", checkpoint.commit_log_time_ms, 0, last_ms if is_end_known else INT64_MAX, of_times),
        (8, "queue time", checkpoint.consume_queue_time_ms, 0, last_ms if is_end_known else INT64_MAX, of_times),
        (16, "index time", checkpoint.index_time_ms, 0, last_ms if is_end_known else INT64_MAX, of_times),
        (24, "flushed physical offset", checkpoint.master_flushed_physical_offset, -1, end, of_ends),
        (32, "confirmed physical offset", checkpoint.confirmed_physical_offset, -1, end, of_ends),
        (OWN_FIELDS_AT, "synced physical offset", checkpoint.durable_physical_offset, -1, end, of_ends),
    ):
        if not least <= value <= most:
            message = f"the {name} is {value}, {bound}"
            report.add("CHECKPOINT_AHEAD", store_layout.CHECKPOINT, message, position=position)


def _check_epochs(facts: LogFacts, state: StoreState, report: Report) -> None:
    for epoch in state.epochs:
        if epoch.start_physical_offset > facts.end_physical_offset:
            message = f"epoch {epoch.number} begins at {epoch.start_physical_offset}, behind the end of the log"
            offset = epoch.start_physical_offset
            report.add("EPOCH_BEYOND_LOG", store_layout.EPOCHS, message, physical_offset=offset)


def _check_progress(facts: LogFacts, state: StoreState, report: Report) -> None:
    progress = state.progress
    if progress is None:
        return
    for name in ("queue_physical_offset", "index_physical_offset", "index_replay_physical_offset"):
        physical_offset = getattr(progress, name)
        if not 0 <= physical_offset <= facts.end_physical_offset:
            message = f"{name} is {physical_offset}, the log ends at {facts.end_physical_offset}"
            report.add("PROGRESS_BEYOND_LOG", store_layout.INDEX_PROGRESS, message, physical_offset=physical_offset)
    newest = state.epochs[-1].number if state.epochs else None
    if newest is not None and progress.epoch > newest:
        message = f"the Indexer has followed epoch {progress.epoch}, the log's newest is {newest}"
        report.add("PROGRESS_EPOCH", store_layout.INDEX_PROGRESS, message)
