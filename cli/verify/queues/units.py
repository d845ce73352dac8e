# SPDX-License-Identifier: Apache-2.0
"""UnitCheck: says what is wrong with single units, and looks at units that no record demands.

Units before a queue's first record may be pre-blanks, and otherwise point below the log to records that were deleted.
Units after its last record should not be there. Rules: docs/formats/consume_queue.md.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from cli.verify.findings import Report
from cli.verify.log.check import LogFacts
from cli.verify.log.files import LogFiles
from cli.verify.queues.files import QueueFiles
from cli.verify.state import StoreState
from libs.formats import store_layout
from libs.formats.indexes.consume_queue import PRE_BLANK_RECORD_SIZE, UNIT
from libs.formats.indexes.consume_queue_ext import ADDRESS_MAX
from libs.formats.limits import INT64_MAX
from libs.formats.records.delay_level import SCHEDULE_TOPIC, format_levels

CHUNK_UNIT_COUNT = 1 << 16
HASH_MAX = 1 << 31
"""Tags codes within this are hashes of tags; times of delivery are far above it."""

Values = tuple[int, int, int]
"""Physical offset, record size and tags code of a unit."""


class UnitCheck:
    """Explains units of any queue. `unit_count` counts what was looked at, by the caller too."""

    def __init__(self, log: LogFiles, facts: LogFacts, store: StoreState, report: Report) -> None:
        self.unit_count = 0
        self._log = log
        self._facts = facts
        self._store = store
        self._report = report
        self.are_starts_certain = False
        """Whether all queues begin where the Indexer says, so that what is missing before was forgotten on purpose."""
        self._forgotten_count = 0
        self.removed_count = 0
        """Records whose queue was removed since; the caller counts, too."""
        self._unchecked_count = 0
        self._extension_count = 0

    def explain(
        self,
        topic: str,
        files: QueueFiles,
        first: int,
        expected: NDArray[np.void],
        found: NDArray[np.void],
        *,
        removed_end: int,
    ) -> None:
        """Tell of every unit from number `first` on that is not as its record demands.

        Units below `removed_end` were removed, and the queue may have begun anew since, with fillers before its first.
        """
        wrong = np.flatnonzero(
            (expected["physical_offset"] != found["physical_offset"])
            | (expected["record_size_bytes"] != found["record_size_bytes"])
            | (expected["tags_code"] != found["tags_code"])
        )

        is_blank = (found["physical_offset"] == 0) & (found["record_size_bytes"] == PRE_BLANK_RECORD_SIZE)
        is_removed = (wrong < removed_end - first) & (is_blank[wrong] | (wrong < files.first_unit - first))
        self.removed_count += int(np.count_nonzero(is_removed))
        wrong = wrong[~is_removed]
        if self.are_starts_certain:  # the log is deleted after the units, and may not have been yet
            self._forgotten_count += int(np.count_nonzero(wrong < files.first_unit - first))
            wrong = wrong[wrong >= files.first_unit - first]

        def tell(index: int) -> None:
            wanted: Values = expected[index].item()
            code, message = self._difference(topic, files, first + index, wanted, found[index].item())
            if not code:
                return
            file, position = files.file_of(first + index)
            is_doubtful = not self._store.is_index_clean and wanted[0] >= self._store.certain_units_end
            self._report.add(
                code,
                file,
                f"queue offset {first + index}: {message}",
                position=position,
                physical_offset=wanted[0],
                is_note=is_doubtful,
            )

        self._report.add_all(
            wrong.tolist(),
            tell,
            lambda rest: self._report.add("QUEUE_UNIT_TO_NOTHING", files.name, "more wrong units", count=rest),
        )

    def check_gone(self, files: QueueFiles, start: int, end: int) -> None:
        """Check units [start, end) before the queue's first record in the log: pre-blanks, then units below the log.

        Without a log nothing is known but that units must be valid and in order. Raises OSError.
        """
        bound = self._log.min_physical_offset if self._log.segments else INT64_MAX
        is_blank_allowed, last_end = True, 0
        for number, units in self._chunks(files, start, end):
            offsets = units["physical_offset"].astype(np.int64)
            sizes = units["record_size_bytes"].astype(np.int64)
            is_blank = (offsets == 0) & (sizes == PRE_BLANK_RECORD_SIZE) & (units["tags_code"] == 0)
            blank_count = int(is_blank.argmin()) if is_blank_allowed and not is_blank.all() else len(units)
            blank_count = blank_count if is_blank_allowed else 0
            is_blank_allowed = blank_count == len(units)
            is_valid = (offsets >= 0) & (sizes > 0) & ~is_blank & (offsets <= bound - np.minimum(sizes, bound))
            ends = np.concatenate(([last_end], np.where(is_valid, offsets + sizes, 0)))
            before = np.maximum.accumulate(ends)[:-1]
            is_ordered = offsets >= before
            is_blank[blank_count:] = False
            wrong = np.flatnonzero(~(is_blank | (is_valid & is_ordered)))
            self._tell_undemanded(files, number, units, wrong.tolist(), is_behind=False)
            last_end = int(max(before[-1], ends[-1]))

    def check_surplus(self, files: QueueFiles, start: int, end: int) -> None:
        """Report units [start, end) that no record of the log demands, although they come after one. Raises OSError."""
        for number, units in self._chunks(files, start, end):
            is_zero = (units["physical_offset"] == 0) & (units["record_size_bytes"] == 0) & (units["tags_code"] == 0)
            self._tell_undemanded(files, number, units, np.flatnonzero(~is_zero).tolist(), is_behind=True)

    def tell_unchecked(self) -> None:
        """Report how many units could not be judged, or are gone before their records."""
        message = "records have no unit any more: the Indexer has forgotten them, and the log was not deleted since"
        self._report.add("QUEUES_TRIMMED", store_layout.QUEUES, message, count=self._forgotten_count)
        message = "units point into damaged parts of the log"
        self._report.add("QUEUE_UNIT_UNCHECKED", store_layout.QUEUES, message, count=self._unchecked_count)
        message = "units lead to extension files of RocketMQ instead of a tag; these are not looked at"
        self._report.add("QUEUE_NOT_CHECKED", store_layout.QUEUES, message, count=self._extension_count)

    def _chunks(self, files: QueueFiles, start: int, end: int) -> Iterator[tuple[int, NDArray[np.void]]]:
        end = min(end, files.end_unit)
        for number in range(start, end, CHUNK_UNIT_COUNT):
            count = min(CHUNK_UNIT_COUNT, end - number)
            self.unit_count += count
            yield number, np.frombuffer(files.read(number, count), UNIT)

    def _difference(self, topic: str, files: QueueFiles, number: int, wanted: Values, found: Values) -> tuple[str, str]:
        """Return code and sentence. There is no code where nothing is to be told."""
        if found == (0, 0, 0):
            return "" if files.is_missing(number) else "QUEUE_UNIT_HOLE", "zeros, but units follow"
        if found[0] != wanted[0] or found[1] <= 0:
            return self._kind(found)
        if found[1] != wanted[1]:
            return "QUEUE_UNIT_SIZE", f"it says {found[1]} bytes, the record has {wanted[1]}"
        if found[2] <= ADDRESS_MAX:
            self._extension_count += 1
            return "", ""
        code = "QUEUE_UNIT_TAGS"
        if topic == SCHEDULE_TOPIC and abs(found[2]) <= HASH_MAX:
            code = "QUEUE_DELIVERY_HASH"
        elif topic == SCHEDULE_TOPIC:
            levels = format_levels(self._facts.delay_levels_ms)
            message = f"its delivery time is {found[2]}, that of the record {wanted[2]} with the delay levels {levels}"
            return "QUEUE_DELIVERY_TIME", f"{message}; give others with --delay-levels"
        return code, f"its tags code is {found[2]}, that of the record {wanted[2]}"

    def _kind(self, found: Values) -> tuple[str, str]:
        """Return what a unit is that does not point where it should."""
        physical_offset, size, _ = found
        if physical_offset == 0 and size == PRE_BLANK_RECORD_SIZE:
            return "QUEUE_PRE_BLANK", "a filler for messages that never were stands where a unit should"
        if physical_offset < 0 or size <= 0:
            return "QUEUE_UNIT_INVALID", f"physical offset {physical_offset} and size {size} can't be"
        if not self._log.segments or physical_offset < self._log.min_physical_offset:
            return (
                "QUEUE_UNIT_ORDER",
                f"it points to {physical_offset}, which is not behind the unit before it",
            )
        if self._log.is_beyond(physical_offset):
            return "QUEUE_UNIT_PAST_END", f"it points to {physical_offset}, behind all that was written to the log"
        if self._log.is_record(physical_offset):
            return "QUEUE_UNIT_OTHER_RECORD", f"it points to the record at {physical_offset}, which is another one"
        return "QUEUE_UNIT_TO_NOTHING", f"it points to {physical_offset}, where no record of the log starts"

    def _tell_undemanded(
        self, files: QueueFiles, first: int, units: NDArray[np.void], wrong: list[int], *, is_behind: bool
    ) -> None:
        def tell(index: int) -> None:
            values: Values = units[index].item()
            if self._facts.is_damaged(values[0]):
                self._unchecked_count += 1
                return
            code, message = self._kind(values) if any(values) else ("QUEUE_UNIT_HOLE", "zeros, but units follow")
            if not any(values) and files.is_missing(first + index):
                return
            if is_behind and code == "QUEUE_UNIT_INVALID":
                code, message = "QUEUE_RUBBISH", f"behind the last unit: {message}"
            file, position = files.file_of(first + index)
            message = f"queue offset {first + index}: {message}"
            is_note = not self._store.is_index_clean and is_behind
            physical_offset = values[0] if values[0] > 0 else None
            self._report.add(code, file, message, position=position, physical_offset=physical_offset, is_note=is_note)

        self._report.add_all(
            wrong, tell, lambda rest: self._report.add("QUEUE_RUBBISH", files.name, "more wrong units", count=rest)
        )
