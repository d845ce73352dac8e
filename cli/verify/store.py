# SPDX-License-Identifier: Apache-2.0
"""verify_store: the whole check of a store, from its directories to a summary.

Reads only. The indexes may lie in another directory than the log, and either may be missing; then the other part is
checked by itself. Callers: the command, tests. Never raises for a fault in a file.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import closing
from pathlib import Path

from msgspec import Struct

from cli.verify.files import Files
from cli.verify.findings import Report
from cli.verify.index.check import IndexCheck
from cli.verify.index.filters import check_filters
from cli.verify.log.check import LogCheck
from cli.verify.log.comparison import Comparison
from cli.verify.log.files import LogFiles
from cli.verify.queues.check import QueueCheck
from cli.verify.queues.files import list_queues
from cli.verify.small_files import check_small_files, check_snapshot_counters
from cli.verify.state import check_left_files, load_state
from libs.formats import store_layout
from libs.formats.records.delay_level import DELAY_LEVELS_MS

FOREIGN_DIRECTORIES = (
    *(store_layout.QUEUE_EXTENSIONS, store_layout.BATCH_QUEUES, store_layout.TIMER_LOG, store_layout.COMPACTION),
)
"""RocketMQ's directories, whose content is not checked, only named."""


class Summary(Struct, frozen=True):
    """The checked part of the store."""

    record_count: int
    unit_count: int
    index_entry_count: int
    segment_count: int
    queue_count: int
    size_bytes: int
    start_physical_offset: int
    end_physical_offset: int
    compared_bytes: int = 0
    """Bytes that were compared with another log."""


def is_store(directory: Path) -> bool:
    """Return whether a directory holds a log, queues or index files."""
    names = (store_layout.COMMIT_LOG, store_layout.QUEUES, store_layout.INDEX)
    return any((directory / name).is_dir() for name in names) or (directory / store_layout.LOG_DIRECTORIES).exists()


def verify_store(
    data_dir: Path,
    report: Report,
    *,
    index_dir: Path | None = None,
    index_slot_count: int | None = None,
    delay_levels_ms: Sequence[int] = DELAY_LEVELS_MS,
    against: Path | None = None,
    progress: Callable[[int], None] = lambda _done: None,
) -> Summary:
    """Check all areas that the report includes.

    `index_dir` is the Indexer's directory if it is another; `index_slot_count` is needed for index files whose size
    does not show it. `delay_levels_ms` are the services' delay levels. `against` is the directory of a store whose log
    should be the same. `progress` is called with the bytes done.
    """
    indexes = index_dir or data_dir
    state = load_state(data_dir, indexes, report)
    for directory in {data_dir: None, indexes: None}:
        check_left_files(directory, report)
        for name in FOREIGN_DIRECTORIES:
            if (directory / name).is_dir() and any((directory / name).iterdir()):
                report.add("NOT_CHECKED", name, "a directory that is RocketMQ's alone")
    with closing(Files()) as files:
        log = LogFiles(files, data_dir, report)
        walk = LogCheck(files, log, state, report, delay_levels_ms=delay_levels_ms)
        facts = walk.facts
        queue_files = list_queues(files, indexes, state.set_apart, report)
        queues = QueueCheck(queue_files, log, facts, state, report)
        index = IndexCheck(files, indexes, log, facts, state, report, slot_count=index_slot_count)
        if not log.segments:
            report.add("NO_LOG", store_layout.COMMIT_LOG, "there is no log; queues and index are checked by themselves")
        size_bytes = log.size_bytes + sum(queue.size_bytes for queue in (queue_files or {}).values()) + index.size_bytes
        mark = state.snapshot.end_physical_offset if state.snapshot is not None else -1
        for batch in walk.batches():
            if 0 <= mark <= batch.physical_offsets[-1]:
                before, batch = batch.split(mark)
                queues.check(before)
                index.check(before)
                check_snapshot_counters(state, facts, queues.states, report)
                mark = -1
            queues.check(batch)
            index.check(batch)
            progress(facts.end_physical_offset - log.min_physical_offset)
        if 0 <= mark <= facts.end_physical_offset:
            check_snapshot_counters(state, facts, queues.states, report)
        queues.finish()
        index.finish()
        check_filters(files, indexes, index.slot_count, report)
        check_small_files(indexes, log, facts, state, queues.states, report)
        compared_bytes = 0 if against is None else Comparison(files, log, facts, state, report).run(against, progress)
    report.add_tallies()
    progress(size_bytes)
    return Summary(
        record_count=facts.record_count,
        unit_count=queues.unit_count,
        index_entry_count=index.entry_count,
        segment_count=len(log.segments),
        queue_count=len(queues.states),
        size_bytes=size_bytes,
        start_physical_offset=log.min_physical_offset,
        end_physical_offset=facts.end_physical_offset,
        compared_bytes=compared_bytes,
    )
