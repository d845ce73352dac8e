# SPDX-License-Identifier: Apache-2.0
"""UnitCheck: reports the faults of single units, and checks units that no record demands.

Units before a queue's first record may be pre-blanks, and otherwise point below the log to records that were deleted.
Units after its last record should not be there. Rules: docs/formats/consume_queue.md.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TypeAlias

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from cli.verify.findings import Report
from cli.verify.log.check import LogFacts
from cli.verify.log.files import LogFiles
from cli.verify.queues.files import QueueFiles, QueueState
from cli.verify.state import StoreState
from libs.formats import store_layout
from libs.formats.indexes.consume_queue import PRE_BLANK, PRE_BLANK_RECORD_SIZE, UNIT
from libs.formats.indexes.consume_queue_ext import ADDRESS_MAX
from libs.formats.limits import INT64_MAX
from libs.formats.records.delay_level import SCHEDULE_TOPIC, format_levels

CHUNK_UNIT_COUNT = 1 << 16
HASH_MAX = 1 << 31
"""Tags codes within this are hashes of tags; times of delivery are far above it."""

_ZERO_UNIT, _BLANK_UNIT = np.zeros((), UNIT), np.frombuffer(PRE_BLANK, UNIT)
REMOVED = ("QUEUES_REMOVED", store_layout.QUEUES, "records are of queues that an operator had removed")
"""Code, place, and sentence of their tally."""
Units: TypeAlias = "NDArray[np.void]"
Values = tuple[int, int, int]
"""Physical offset, record size and tags code of a unit."""


class UnitCheck(Struct):
    """Explains units of any queue."""

    log: LogFiles
    facts: LogFacts
    store: StoreState
    report: Report
    are_starts_certain: bool
    """Whether all queues begin where the Indexer recorded it, so that earlier units were dropped on purpose."""
    unit_count: int = 0
    """Number of units that were checked, also by the caller."""

    def explain(self, state: QueueState, first: int, expected: Units, found: Units, *, removed_end: int) -> None:
        """Report every unit from number `first` on that is not as its record demands.

        Units below `removed_end` were removed, and the queue may have begun anew since, with fillers before its first
        unit.
        """
        files, wrong = state.files, np.flatnonzero(expected != found)
        is_gone = wrong < files.first_unit - first
        is_removed = (wrong < removed_end - first) & ((found[wrong] == _BLANK_UNIT) | is_gone)
        self.report.tally(*REMOVED, int(np.count_nonzero(is_removed)))
        # The log is deleted after the units, and may not be deleted yet.
        is_forgotten = ~is_removed & is_gone & self.are_starts_certain
        message = "records have no unit any more: the Indexer has forgotten them, and the log was not deleted since"
        self.report.tally("QUEUES_TRIMMED", store_layout.QUEUES, message, int(np.count_nonzero(is_forgotten)))
        wrong = wrong[~(is_removed | is_forgotten)]

        def tell(index: int) -> None:
            wanted: Values = expected[index].item()
            difference = self._difference(state, first + index, wanted, found[index].item())
            is_doubtful = not self.store.is_index_clean and wanted[0] >= self.store.certain_units_end
            self._add(files, first + index, *difference, wanted[0], is_note=is_doubtful)

        self.report.add_each(wrong.tolist(), tell, "QUEUE_UNIT_TO_NOTHING", files.name, "more wrong units")

    def check_gone(self, files: QueueFiles, start: int, end: int) -> None:
        """Check units [start, end) before the queue's first record in the log: pre-blanks, then units below the log.

        Without a log, units are checked only for valid values and their order. Raises OSError.
        """
        bound = self.log.min_physical_offset if self.log.segments else INT64_MAX
        is_blank_allowed, last_end = True, 0
        for number, units in self._chunks(files, start, end):
            offsets = units["physical_offset"].astype(np.int64)
            sizes = units["record_size_bytes"].astype(np.int64)
            is_blank = units == _BLANK_UNIT
            is_leading = np.logical_and.accumulate(is_blank) & is_blank_allowed
            is_blank_allowed = bool(is_leading.all())
            is_valid = (offsets >= 0) & (sizes > 0) & ~is_blank & (offsets <= bound - np.minimum(sizes, bound))
            ends = np.concatenate(([last_end], np.where(is_valid, offsets + sizes, 0)))
            before = np.maximum.accumulate(ends)[:-1]
            wrong = np.flatnonzero(~(is_leading | (is_valid & (offsets >= before))))
            self._tell_undemanded(files, number, units, wrong, is_behind=False)
            last_end = int(max(before[-1], ends[-1]))

    def check_surplus(self, files: QueueFiles, start: int, end: int) -> None:
        """Report units [start, end) that no record of the log demands, behind units of records. Raises OSError."""
        for number, units in self._chunks(files, start, end):
            self._tell_undemanded(files, number, units, np.flatnonzero(units != _ZERO_UNIT), is_behind=True)

    def _chunks(self, files: QueueFiles, start: int, end: int) -> Iterator[tuple[int, Units]]:
        end = min(end, files.end_unit)
        for number in range(start, end, CHUNK_UNIT_COUNT):
            count = min(CHUNK_UNIT_COUNT, end - number)
            self.unit_count += count
            yield number, np.frombuffer(files.read(number, count), UNIT)

    def _difference(self, state: QueueState, number: int, wanted: Values, found: Values) -> tuple[str, str]:
        """Return code and sentence. The code is empty if there is nothing to report."""
        if found[0] != wanted[0] or found[1] <= 0:
            return self._kind(state.files, number, found)
        if found[1] != wanted[1]:
            return "QUEUE_UNIT_SIZE", f"it says {found[1]} bytes, the record has {wanted[1]}"
        if found[2] <= ADDRESS_MAX:
            message = "units lead to extension files of RocketMQ instead of a tag; these are not looked at"
            self.report.tally("QUEUE_NOT_CHECKED", store_layout.QUEUES, message)
            return "", ""
        if state.topic == SCHEDULE_TOPIC and abs(found[2]) > HASH_MAX:
            levels = format_levels(self.facts.delay_levels_ms)
            message = f"its delivery time is {found[2]}, that of the record {wanted[2]} with the delay levels {levels}"
            return "QUEUE_DELIVERY_TIME", f"{message}; give others with --delay-levels"
        code = "QUEUE_DELIVERY_HASH" if state.topic == SCHEDULE_TOPIC else "QUEUE_UNIT_TAGS"
        return code, f"its tags code is {found[2]}, that of the record {wanted[2]}"

    def _kind(self, files: QueueFiles, number: int, found: Values) -> tuple[str, str]:
        """Return code and sentence for a unit that does not point where it should. An empty code: reported already."""
        physical_offset, size, _ = found
        if not any(found):
            return "" if files.is_missing(number) else "QUEUE_UNIT_HOLE", "zeros, but units follow"
        if physical_offset == 0 and size == PRE_BLANK_RECORD_SIZE:
            return "QUEUE_PRE_BLANK", "a filler for messages that never were stands where a unit should"
        if physical_offset < 0 or size <= 0:
            return "QUEUE_UNIT_INVALID", f"physical offset {physical_offset} and size {size} can't be"
        if not self.log.segments or physical_offset < self.log.min_physical_offset:
            return "QUEUE_UNIT_ORDER", f"it points to {physical_offset}, which is not behind the unit before it"
        if self.log.is_beyond(physical_offset):
            return "QUEUE_UNIT_PAST_END", f"it points to {physical_offset}, behind all that was written to the log"
        if self.log.is_record(physical_offset):
            return "QUEUE_UNIT_OTHER_RECORD", f"it points to the record at {physical_offset}, which is another one"
        return "QUEUE_UNIT_TO_NOTHING", f"it points to {physical_offset}, where no record of the log starts"

    def _tell_undemanded(
        self, files: QueueFiles, first: int, units: Units, wrong: NDArray[np.int64], *, is_behind: bool
    ) -> None:
        is_unchecked = self.facts.are_damaged(units["physical_offset"][wrong])
        message = "units point into damaged parts of the log"
        self.report.tally("QUEUE_UNIT_UNCHECKED", store_layout.QUEUES, message, int(np.count_nonzero(is_unchecked)))

        def tell(index: int) -> None:
            values: Values = units[index].item()
            code, message = self._kind(files, first + index, values)
            if is_behind and code == "QUEUE_UNIT_INVALID":
                code, message = "QUEUE_RUBBISH", f"behind the last unit: {message}"
            physical_offset = values[0] if values[0] > 0 else None
            is_note = not self.store.is_index_clean and is_behind
            self._add(files, first + index, code, message, physical_offset, is_note=is_note)

        self.report.add_each(wrong[~is_unchecked].tolist(), tell, "QUEUE_RUBBISH", files.name, "more wrong units")

    def _add(
        self, files: QueueFiles, number: int, code: str, message: str, physical_offset: int | None, *, is_note: bool
    ) -> None:
        if code:
            file, position = files.file_of(number)
            message = f"queue offset {number}: {message}"
            self.report.add(code, file, message, position=position, physical_offset=physical_offset, is_note=is_note)
