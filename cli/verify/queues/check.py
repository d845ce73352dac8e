# SPDX-License-Identifier: Apache-2.0
"""QueueCheck: compares the units that the records demand with the units of the queues.

It gets the batches of the log in order. The units that a batch demands are encoded as they should be, the units on
disk are read, and a single comparison of bytes shows whether all agree. Only if they differ, the units are checked one
after another. A few numbers per queue are kept. Afterwards `finish` checks the units that no record has demanded.
Rules: docs/formats/consume_queue.md. Not handled: queues that are set apart for RocketMQ, which are named.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import numpy as np
from msgspec import Struct
from msgspec.structs import replace
from numpy.typing import NDArray

from cli.verify.files import Files
from cli.verify.findings import Report
from cli.verify.log.check import LogFacts
from cli.verify.log.files import LogFiles
from cli.verify.queues.files import QueueFiles, Queues, QueueState
from cli.verify.queues.units import REMOVED, UnitCheck
from cli.verify.state import StoreState
from libs.formats import store_layout
from libs.formats.indexes.consume_queue import PRE_BLANK, QUEUE_OFFSET_MAX, UNIT, UNIT_SIZE_BYTES, has_place
from libs.formats.names import is_topic
from libs.formats.records.dispatch_columns import DispatchBatch
from libs.formats.state.index_progress import OTHERS, StepReason
from libs.kernel.scan.index_cy import encode_queue_units

BEHIND = (
    "QUEUES_BEHIND",
    store_layout.QUEUES,
    "records have no unit yet; the Indexer, or RocketMQ's next start, goes on there",
)
"""Code, place, and sentence of their tally."""


class Run(Struct, frozen=True):
    """Rows [start, end) of a batch, in queue order, whose queue offsets follow each other."""

    state: QueueState
    start: int
    end: int
    queue_offset: int


class QueueCheck:
    """Call `check` with every batch, then `finish`.

    `queues` None means that there are no queues to compare with; then only the numbers in the records are checked.
    """

    def __init__(
        self, queues: Queues | None, log: LogFiles, facts: LogFacts, store: StoreState, report: Report
    ) -> None:
        self.states = {name: QueueState(*name, files) for name, files in (queues or {}).items()}
        self._has_queues = queues is not None
        self._log = log
        self._facts = facts
        self._store = store
        self._report = report
        start_sum = sum(state.files.first_unit for state in self.states.values())
        end_sum = sum(state.files.end_unit for state in self.states.values())
        # The Indexer records both sums before it removes a file.
        are_starts_certain = store.progress is not None and start_sum <= store.progress.queue_start_sum
        self._are_ends_as_said = store.progress is not None and end_sum >= store.progress.queue_end_sum
        self._units = UnitCheck(log, facts, store, report, are_starts_certain)

    @property
    def unit_count(self) -> int:
        """Number of units that were checked."""
        return self._units.unit_count

    def check(self, batch: DispatchBatch) -> None:
        """Compare the units of these records."""
        states = [self._state(*name) for name in batch.queues]
        indexes = batch.queue_indexes.astype(np.int64)
        for index in batch.batch_queues:
            self._skip(states[index], "set apart for RocketMQ: records hold batches")
        if not all(state.is_checked for state in states):
            is_checked = np.array([*(state.is_checked for state in states), False])
            indexes = np.where(is_checked[indexes], indexes, -1)
        # A sort of 16-bit numbers is a radix sort.
        keys = (indexes + 1).astype(np.uint16) if len(states) < 1 << 16 else indexes + 1
        order = np.argsort(keys, kind="stable").astype(np.int32)
        order = order[int(np.count_nonzero(keys == 0)) :]
        if len(order):
            runs = self._runs(states, indexes[order], batch.queue_offsets[order])
            good = [part for run in runs for part in self._check_numbers(run, order, batch)]
            if self._has_queues:
                self._compare(good, order, batch)

    def finish(self) -> None:
        """Check the units that no record of the log has demanded, and report missing units."""
        for state in self.states.values():
            if state.is_checked and self._has_queues:
                self._tell_missing(state)
                with self._guarded(state):
                    self._check_ends(state)

    def _check_ends(self, state: QueueState) -> None:
        files = state.files
        self._units.check_gone(files, files.first_unit, files.end_unit if state.first is None else state.first)
        if state.first is not None and not state.is_behind:
            self._units.check_surplus(files, max(state.next, files.first_unit), files.end_unit)

    @contextmanager
    def _guarded(self, state: QueueState) -> Iterator[None]:
        """Run a block that reads a queue's files. A queue that can't be read is not checked any further."""
        try:
            yield
        except OSError as error:
            self._skip(state, error.strerror or str(error), code="FILE_UNREADABLE")

    def _tell_missing(self, state: QueueState) -> None:
        if not state.missing_count:
            return
        files = state.files
        if files.is_there:
            file, position = files.file_of(state.first_missing)
            message = f"{state.missing_count} records have no unit, from queue offset {state.first_missing} on"
            self._report.add("QUEUE_UNIT_MISSING", file, message, position=position, count=state.missing_count)
        elif state.first_missing + state.missing_count <= self._removed_end(state):
            self._report.tally(*REMOVED, state.missing_count)
        else:
            message = f"the log has {state.missing_count} records of this queue, but the queue has no file"
            self._report.add("QUEUE_MISSING", files.name, message)

    def _removed_end(self, state: QueueState) -> int:
        """Return the end of a queue that the Indexer dropped, 0 if there is none, or if its record can't be right."""
        end = self._store.dropped_ends.get((state.topic, state.queue_id), 0)
        return end if self._are_ends_as_said else 0

    def _skip(self, state: QueueState, reason: str, *, code: str = "QUEUE_NOT_CHECKED") -> None:
        if state.is_checked:
            state.is_checked = False
            self._report.add(code, state.files.name, reason)

    def _state(self, topic: str, queue_id: int) -> QueueState:
        if (state := self.states.get((topic, queue_id))) is not None:
            return state
        directory = Path(store_layout.QUEUES) / topic / str(queue_id)
        files = QueueFiles(Files(), directory, str(directory))
        state = self.states[topic, queue_id] = QueueState(topic, queue_id, files)
        if why := self._store.set_apart.why(topic):
            self._skip(state, f"set apart for RocketMQ: {why}")
        elif not is_topic(topic) or queue_id < 0:
            state.is_checked = False
            message = f"records name topic {topic[:80]!r} and queue {queue_id}, which can't be"
            self._report.add("LOG_QUEUE_NAME", store_layout.COMMIT_LOG, message)
        return state

    def _runs(
        self, states: Sequence[QueueState], indexes: NDArray[np.int64], queue_offsets: NDArray[np.int64]
    ) -> list[Run]:
        breaks = (indexes[1:] != indexes[:-1]) | (queue_offsets[1:] - 1 != queue_offsets[:-1])
        starts = np.concatenate(([0], np.flatnonzero(breaks) + 1))
        ends = [*starts[1:].tolist(), len(indexes)]
        firsts, numbers = queue_offsets[starts].tolist(), indexes[starts].tolist()
        return [
            Run(states[number], start, end, first)
            for number, start, end, first in zip(numbers, starts.tolist(), ends, firsts, strict=True)
        ]

    def _check_numbers(self, run: Run, order: NDArray[np.int32], batch: DispatchBatch) -> Iterator[Run]:
        """Yield the parts of a run whose units must be there. Also checks that they continue the queue at its end."""
        while run.start < run.end:
            physical_offset = int(batch.physical_offsets[order[run.start]])
            is_left_out = self._is_left_out(run, physical_offset)
            if is_left_out:  # the log's numbers continue all the same
                run.state.next, run.state.last_physical_offset = run.queue_offset + 1, physical_offset
            if is_left_out or self._is_stepped_over(run, physical_offset):
                message = "records fit no queue and are stepped over; `reput status` names queues and places"
                self._report.tally("RECORDS_STEPPED_OVER", store_layout.COMMIT_LOG, message)
                run = replace(run, start=run.start + 1, queue_offset=run.queue_offset + 1)
                continue
            if self._follows(run, physical_offset):
                run.state.next = run.queue_offset + run.end - run.start
                run.state.last_physical_offset = int(batch.physical_offsets[order[run.end - 1]])
                if run.state.is_behind:
                    self._report.tally(*BEHIND, run.end - run.start)
                elif physical_offset >= run.state.begin_physical_offset:
                    yield run
            return

    def _expected(self, run: Run) -> int:
        is_known = run.state.first is not None or self._log.min_physical_offset == 0
        return run.state.next if is_known else run.queue_offset

    def _is_stepped_over(self, run: Run, physical_offset: int) -> bool:
        """Return whether the run's first record fits no queue, and the Indexer recorded that or has yet to read it."""
        progress = self._store.progress
        if progress is None or has_place(run.queue_offset, end=self._expected(run), is_empty=False):
            return False
        return physical_offset >= progress.queue_physical_offset or bool(self._reasons(run.state, physical_offset))

    def _is_left_out(self, run: Run, physical_offset: int) -> bool:
        """Return whether there was no room for the run's first record when its topic was deleted, so it has no unit."""
        if StepReason.TOPIC_DELETED not in self._reasons(run.state, physical_offset):
            return False
        with self._guarded(run.state):
            return run.state.files.read(run.queue_offset, 1) in (PRE_BLANK, bytes(UNIT_SIZE_BYTES))
        return False

    def _reasons(self, state: QueueState, physical_offset: int) -> list[int]:
        """Return the reasons why the Indexer has stepped over a record of a queue, as far as it recorded them."""
        progress, names = self._store.progress, ((state.topic, state.queue_id), OTHERS)
        return [
            note.reason
            for note in (progress.stepped_over if progress is not None else [])
            if (note.topic, note.queue_id) in names
            and note.first_physical_offset <= physical_offset <= note.last_physical_offset
        ]

    def _follows(self, run: Run, physical_offset: int) -> bool:
        """Return whether the run's queue offsets are possible. Reports a jump, behind which the queue continues."""
        state = run.state

        def add(code: str, why: str) -> None:
            message = f"{state.topic} queue {state.queue_id}: queue offset {run.queue_offset} {why}"
            self._report.add(code, store_layout.COMMIT_LOG, message, physical_offset=physical_offset)

        if not 0 <= run.queue_offset <= QUEUE_OFFSET_MAX:
            add("LOG_QUEUE_OFFSET", "can't be")
            return False
        expected = self._expected(run)
        is_excused = self._facts.has_damage_between(state.last_physical_offset, physical_offset)
        if run.queue_offset == 0 and expected > 0:
            self._begin_again(state, physical_offset)
            expected = 0
        elif run.queue_offset > expected and not is_excused:
            add("LOG_QUEUE_OFFSET_GAP", f"follows where {expected} should")
        elif run.queue_offset < expected:
            add("LOG_QUEUE_OFFSET_REPEAT", f"comes again where {expected} should follow")
        elif run.queue_offset > expected and self._has_queues:
            with self._guarded(state):
                self._units.check_surplus(state.files, expected, run.queue_offset)
        if state.first is None:
            state.first = expected
            with self._guarded(state):
                self._find_begin(state)
        return True

    def _begin_again(self, state: QueueState, physical_offset: int) -> None:
        """Begin another queue, because queue offset 0 comes again: the older records have no units."""
        message = "queues begin again in the log; the records before that have no unit any more"
        self._report.tally("QUEUES_BEGUN_AGAIN", store_layout.COMMIT_LOG, message)
        is_unit = physical_offset <= state.begin_physical_offset
        is_uncertain = physical_offset >= self._store.certain_units_end
        state.is_behind = state.is_behind or (state.files.is_there and not is_unit and is_uncertain)
        if not state.is_behind:
            state.first, state.missing_count = 0, 0

    def _find_begin(self, state: QueueState) -> None:
        """Record the begin of the files' generation, if their first unit is a record with queue offset 0."""
        physical_offset, size, _ = np.frombuffer(state.files.read(0, 1), UNIT)[0].item()
        if size > 0 and self._log.head_of(physical_offset) == (state.queue_id, 0):
            state.begin_physical_offset = physical_offset

    def _compare(self, runs: list[Run], order: NDArray[np.int32], batch: DispatchBatch) -> None:
        """Compare the units of all runs at once, and explain the runs that differ."""
        expected = bytearray(UNIT_SIZE_BYTES * len(order))
        encode_queue_units(order, batch.physical_offsets, batch.record_sizes, batch.tags_codes, expected)
        runs = [run for run in runs if run.state.is_checked]
        if sum(run.end - run.start for run in runs) < len(order):  # runs with impossible numbers are left out
            view = memoryview(expected)
            expected = bytearray().join(view[UNIT_SIZE_BYTES * run.start : UNIT_SIZE_BYTES * run.end] for run in runs)
        parts = [self._read(run) for run in runs]
        self._units.unit_count += len(expected) // UNIT_SIZE_BYTES
        if b"".join(parts) == expected:
            return
        at = 0
        for run, found in zip(runs, parts, strict=True):
            if found != expected[at : at + len(found)]:
                self._explain(run, np.frombuffer(expected, UNIT, run.end - run.start, at), np.frombuffer(found, UNIT))
            at += len(found)

    def _read(self, run: Run) -> bytes:
        with self._guarded(run.state):
            return run.state.files.read(run.queue_offset, run.end - run.start)
        return bytes(UNIT_SIZE_BYTES * (run.end - run.start))

    def _explain(self, run: Run, expected: NDArray[np.void], found: NDArray[np.void]) -> None:
        """Report the wrong units of a run: first units behind the end of the queue's data, then the others."""
        state = run.state
        if not state.is_checked:
            return
        tail = min(max(state.files.end_unit - run.queue_offset, 0), len(expected))
        is_certain = expected["physical_offset"][tail:] < self._store.certain_units_end
        missing = [
            number
            for number in (np.flatnonzero(is_certain) + tail + run.queue_offset).tolist()
            if not state.files.is_missing(number)
        ]
        if missing and not state.missing_count:
            state.first_missing = missing[0]
        state.missing_count += len(missing)
        self._report.tally(*BEHIND, len(expected) - tail - int(np.count_nonzero(is_certain)))
        end, wanted = self._removed_end(state), expected[:tail]
        self._units.explain(state, run.queue_offset, wanted, found[:tail], removed_end=end)
