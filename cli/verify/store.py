# SPDX-License-Identifier: Apache-2.0
"""verify_store: the whole check of one store, from its directories to a summary.

Reads only. The indexes may lie in another directory than the log, and either may be missing; then what is there is
checked by itself. Callers: the command, tests. Never raises for what is wrong in a file.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from cli.verify.codes import Area
from cli.verify.files import Files
from cli.verify.findings import Report
from cli.verify.index.check import IndexCheck
from cli.verify.log.check import LogBatch, LogCheck
from cli.verify.log.files import LogFiles
from cli.verify.queues.check import QueueCheck
from cli.verify.queues.files import QueueFiles, list_queues
from cli.verify.small_files import check_small_files, check_snapshot_counters
from cli.verify.state import StoreState, check_left_files, load_state
from libs.formats import store_layout
from libs.formats.records.delay_level import DELAY_LEVELS_MS

FOREIGN_DIRECTORIES = (
    *(store_layout.QUEUE_EXTENSIONS, store_layout.BATCH_QUEUES, store_layout.TIMER_LOG, store_layout.COMPACTION),
)
"""What RocketMQ keeps there is only named."""


@dataclass(frozen=True, slots=True)
class Summary:
    """What was looked at."""

    record_count: int
    unit_count: int
    index_entry_count: int
    segment_count: int
    queue_count: int
    size_bytes: int
    start_physical_offset: int
    end_physical_offset: int


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
    progress: Callable[[int, int], None] = lambda _done, _total: None,
) -> Summary:
    """Check everything that the report wants to hear of.

    `index_dir` is the Indexer's directory where it is another; `index_slot_count` is needed for index files whose size
    does not tell. `delay_levels_ms` are those of the services. `progress` hears of bytes done and bytes in all.
    """
    indexes = index_dir or data_dir
    state = load_state(data_dir, indexes, report)
    for directory in {data_dir: None, indexes: None}:
        check_left_files(directory, report)
        for name in FOREIGN_DIRECTORIES:
            if (directory / name).is_dir() and any((directory / name).iterdir()):
                report.add("NOT_CHECKED", name, "a directory that is RocketMQ's alone")
    with Files() as files:
        log = LogFiles(files, data_dir, report)
        return _Run(files, log, state, report, indexes, index_slot_count, delay_levels_ms, progress).run()


class _Run:
    """One check, with its parts."""

    def __init__(
        self,
        files: Files,
        log: LogFiles,
        state: StoreState,
        report: Report,
        index_dir: Path,
        index_slot_count: int | None,
        delay_levels_ms: Sequence[int],
        progress: Callable[[int, int], None],
    ) -> None:
        self._log = log
        self._state = state
        self._report = report
        self._index_dir = index_dir
        self._progress = progress
        is_log_wanted = Area.LOG in report.areas
        self._walk = LogCheck(files, log, state, report, check_crc=is_log_wanted, delay_levels_ms=delay_levels_ms)
        queues = self._list_queues(files)
        self._queues = QueueCheck(queues, log, self._walk.facts, state, report)
        self._index = self._open_index(files, index_slot_count)
        self._size_bytes = log.size_bytes + sum(queue.size_bytes for queue in (queues or {}).values())
        self._size_bytes += self._index.size_bytes if self._index is not None else 0
        if not log.segments:
            report.add("NO_LOG", store_layout.COMMIT_LOG, "there is no log; queues and index are checked by themselves")

    def run(self) -> Summary:
        """Walk the log, then look at what the walk did not ask for."""
        facts, is_marked = self._walk.facts, False
        mark = self._state.snapshot.end_physical_offset if self._state.snapshot is not None else -1
        for batch in self._walk.batches():
            before = int(batch.physical_offsets.searchsorted(mark))
            if not is_marked and mark >= 0 and before < len(batch.physical_offsets):
                self._check(batch.part(0, before))
                check_snapshot_counters(self._state, facts, self._queues.states, self._report)
                is_marked = True
                batch = batch.part(before, len(batch.physical_offsets))
            self._check(batch)
            self._progress(facts.end_physical_offset - self._log.min_physical_offset, self._size_bytes)
        if not is_marked and mark <= facts.end_physical_offset:
            check_snapshot_counters(self._state, facts, self._queues.states, self._report)
        self._queues.finish()
        if self._index is not None:
            self._index.finish()
        states = self._queues.states
        check_small_files(self._index_dir, self._log, facts, self._state, states, self._report)
        self._progress(self._size_bytes, self._size_bytes)
        return Summary(
            record_count=facts.record_count,
            unit_count=self._queues.unit_count,
            index_entry_count=self._index.entry_count if self._index is not None else 0,
            segment_count=len(self._log.segments),
            queue_count=len(states),
            size_bytes=self._size_bytes,
            start_physical_offset=self._log.min_physical_offset,
            end_physical_offset=facts.end_physical_offset,
        )

    def _check(self, batch: LogBatch) -> None:
        if len(batch.physical_offsets):
            self._queues.check(batch)
            if self._index is not None:
                self._index.check(batch)

    def _list_queues(self, files: Files) -> dict[tuple[str, int], QueueFiles] | None:
        if Area.QUEUES not in self._report.areas:
            return None
        if not (self._index_dir / store_layout.QUEUES).is_dir():
            self._report.add("NO_QUEUES", store_layout.QUEUES, "there are no queues")
            return None
        return list_queues(files, self._index_dir, self._state.set_apart, self._report)

    def _open_index(self, files: Files, slot_count: int | None) -> IndexCheck | None:
        if Area.INDEX not in self._report.areas:
            return None
        if not (self._index_dir / store_layout.INDEX).is_dir():
            self._report.add("NO_INDEX", store_layout.INDEX, "there is no index")
            return None
        facts = self._walk.facts
        return IndexCheck(files, self._index_dir, self._log, facts, self._state, self._report, slot_count=slot_count)
