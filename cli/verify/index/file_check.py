# SPDX-License-Identifier: Apache-2.0
"""IndexFileCheck: an index file, read once from its first entry to its last, and its chains computed anew.

A slot has the newest entry of its bucket and an entry has the entry before it; so from the hashes alone, in order, all
links follow, and are compared with the links in the file. That needs a number per slot in memory and shows every wrong
link: cycles, links forwards, links out of the file. Hashes come from the log if it is known.
Layout: docs/formats/index_file.md.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from cli.verify.files import Files
from cli.verify.findings import Report
from libs.formats.indexes import index_file
from libs.formats.indexes.index_file import (
    ENTRY_ARRAY,
    ENTRY_SIZE_BYTES,
    FIRST_ENTRY,
    HEADER_SIZE_BYTES,
    PREVIOUS_ENTRY_AT,
    SLOT_SIZE_BYTES,
    TIME_DIFFERENCE_AT,
    IndexHeader,
)
from libs.formats.limits import INT32_MAX

CHUNK_ENTRY_COUNT = 1 << 16
CHUNK_SLOT_COUNT = 1 << 18


class IndexFileCheck:
    """A check of a file. `entries` returns the next entries, `accept` passes over them, `finish` ends the check.

    Every method may raise OSError. `is_doubtful` makes notes of all findings: the next start drops the file.
    """

    def __init__(
        self,
        files: Files,
        path: Path,
        name: str,
        report: Report,
        *,
        slot_count: int,
        entry_capacity: int,
        is_doubtful: bool,
        previous_end_time_ms: int | None,
    ) -> None:
        self.name = name
        self.slot_count = slot_count
        self.number = FIRST_ENTRY
        """The next entry to check."""
        self._files = files
        self._path = path
        self._report = report
        self._capacity = entry_capacity
        self._is_doubtful = is_doubtful
        self._previous_end_time_ms = previous_end_time_ms
        self.header = IndexHeader(*index_file.HEADER.unpack(files.read(path, 0, HEADER_SIZE_BYTES)))
        self.entry_count = self._real_entry_count()
        self._begin_time_ms = self.header.begin_time_ms
        self._newest = np.zeros(slot_count, np.int32)
        self._is_marked = np.zeros(slot_count, np.bool_)
        self._chunk = np.empty(0, ENTRY_ARRAY)
        self._chunk_number = FIRST_ENTRY

    def add(
        self, code: str, number: int, message: str, *, field_at: int = 0, physical_offset: int | None = None
    ) -> None:
        """Report a finding about an entry."""
        position = index_file.entry_position(number, self.slot_count) + field_at
        self._add(code, f"entry {number}: {message}", position, physical_offset)

    def entries(self) -> NDArray[np.void]:
        """Return the next entries, as many as are in memory, and none at the end of the file."""
        at = self.number - self._chunk_number
        if at >= len(self._chunk):
            count = min(CHUNK_ENTRY_COUNT, self.entry_count + 1 - self.number)
            position = index_file.entry_position(self.number, self.slot_count)
            data = self._files.read(self._path, position, count * ENTRY_SIZE_BYTES)
            self._chunk = np.frombuffer(data[: len(data) - len(data) % ENTRY_SIZE_BYTES], ENTRY_ARRAY)
            self._chunk_number, at = self.number, 0
        return self._chunk[at:]

    def accept(
        self, entries: NDArray[np.void], hashes: NDArray[np.int64], store_times_ms: NDArray[np.int64] | None
    ) -> None:
        """Pass over the next entries: check their links by these hashes, and their times if these are known."""
        if not len(entries):
            return
        numbers = np.arange(self.number, self.number + len(entries), dtype=np.int64)
        self._check_links(numbers, entries, hashes)
        first_ms, last_ms = (None, None) if store_times_ms is None else store_times_ms[[0, -1]].tolist()
        if self.number == FIRST_ENTRY:
            self._check_begin(entries[0], first_ms)
        if store_times_ms is not None:
            self._check_times(numbers, entries, store_times_ms)
        self.number += len(entries)
        if self.number > self.entry_count:
            self._check_end(entries[-1], last_ms)

    def finish(self) -> None:
        """Compare the slots with the slots that follow from the entries, and the header's count of used slots."""
        for start in range(0, self.slot_count, CHUNK_SLOT_COUNT):
            self._check_slots(start, min(CHUNK_SLOT_COUNT, self.slot_count - start))
        used = int(np.count_nonzero(self._newest))
        # Before 4.7.0 RocketMQ counted every put.
        if self.header.used_slot_count not in (used, self.entry_count):
            message = f"it counts {self.header.used_slot_count} used slots, but there are {used}"
            self._add("INDEX_HEADER_SLOTS", message, index_file.SLOT_COUNT_AT)
        tail = index_file.entry_position(self.entry_count + 1, self.slot_count)
        end = index_file.entry_position(self._capacity, self.slot_count)
        nonzero = self._files.first_nonzero(self._path, tail, end)
        if nonzero is not None:
            self._add("INDEX_RUBBISH", "a byte behind the last entry is not zero", nonzero)
        if any(self._files.read(self._path, index_file.entry_position(0, self.slot_count), ENTRY_SIZE_BYTES)):
            self.add("INDEX_RUBBISH", 0, "it is never used, but is not zero")

    def _add(self, code: str, message: str, position: int, physical_offset: int | None = None) -> None:
        is_note = self._is_doubtful
        self._report.add(code, self.name, message, position=position, physical_offset=physical_offset, is_note=is_note)

    def _real_entry_count(self) -> int:
        """Return the number of entries up to the last entry that is not all zero, independent of the header's count."""
        counted = self.header.entry_count
        most = self._capacity - 1
        first = index_file.entry_position(FIRST_ENTRY, self.slot_count)
        end = first + min(counted, most) * ENTRY_SIZE_BYTES
        count = -(-(self._files.content_end(self._path, first, end) - first) // ENTRY_SIZE_BYTES)
        while count >= min(counted, most) and count < most:
            size = min(CHUNK_ENTRY_COUNT, most - count) * ENTRY_SIZE_BYTES
            data = self._files.read(self._path, index_file.entry_position(count + 1, self.slot_count), size)
            is_unused = ~np.frombuffer(data, np.uint8).reshape(-1, ENTRY_SIZE_BYTES).any(axis=1)
            if is_unused.any():
                count += int(is_unused.argmax())
                break
            count += len(data) // ENTRY_SIZE_BYTES
        if count == 0 and counted == 1:  # the first key of the log's first message may have the hash 0
            return 1
        if counted != count:
            message = f"it counts {counted} entries, but there are {count}"
            self._add("INDEX_HEADER_COUNT", message, index_file.ENTRY_COUNT_AT)
        return count

    def _check_links(self, numbers: NDArray[np.int64], entries: NDArray[np.void], hashes: NDArray[np.int64]) -> None:
        buckets = hashes % self.slot_count
        expected = self._newest[buckets].astype(np.int64)
        self._newest[buckets] = numbers  # of several entries of a bucket the last entry stays
        is_followed = self._newest[buckets] != numbers
        if is_followed.any():
            self._is_marked[buckets[is_followed]] = True
            shared = np.flatnonzero(self._is_marked[buckets])
            self._is_marked[buckets[is_followed]] = False
            order = shared[np.argsort(buckets[shared], kind="stable")]
            is_later = buckets[order[1:]] == buckets[order[:-1]]
            expected[order[1:][is_later]] = numbers[order[:-1][is_later]]
        previous = entries["previous"].astype(np.int64)
        wrong = np.flatnonzero(previous != expected)

        def tell(index: int) -> None:
            number, found = int(numbers[index]), int(previous[index])
            if not 0 <= found <= self.entry_count:
                code, message = "INDEX_LINK_RANGE", "which does not exist"
            elif found >= number:
                code, message = "INDEX_LINK_FORWARD", "which comes later, so that a search could go in circles"
            else:
                code, message = "INDEX_LINK", f"but the entry before it of its slot is {expected[index]}"
            self.add(code, number, f"it leads to entry {found}, {message}", field_at=PREVIOUS_ENTRY_AT)

        self._report.add_each(wrong.tolist(), tell, "INDEX_LINK", self.name, is_note=self._is_doubtful)

    def _check_begin(self, entry: np.void, store_time_ms: int | None) -> None:
        header = self.header
        if header.begin_physical_offset != int(entry["physical_offset"]):
            message = f"it begins at {header.begin_physical_offset}, its first entry is of {entry['physical_offset']}"
            self._add("INDEX_HEADER_OFFSET", message, index_file.BEGIN_PHYSICAL_OFFSET_AT)
        if store_time_ms is not None and header.begin_time_ms != store_time_ms:
            message = f"it begins at {header.begin_time_ms} ms, the record of its first entry at {store_time_ms} ms"
            self._add("INDEX_HEADER_TIME", message, index_file.BEGIN_TIME_AT)
            self._begin_time_ms = store_time_ms
        difference = int(entry["time_difference_s"])
        if difference == 0:
            return
        known = self._previous_end_time_ms
        if difference > 0 and (known is None or difference == index_file.time_difference_s(self._begin_time_ms, known)):
            message = f"its time is counted from the file before, as RocketMQ does: {difference} s too late"
            self.add("INDEX_FIRST_TIME", FIRST_ENTRY, message, field_at=TIME_DIFFERENCE_AT)
        else:
            message = f"it says {difference} s after the begin of the file, but is the begin"
            self.add("INDEX_ENTRY_TIME", FIRST_ENTRY, message, field_at=TIME_DIFFERENCE_AT)

    def _check_times(self, numbers: NDArray[np.int64], entries: NDArray[np.void], times: NDArray[np.int64]) -> None:
        begin = self._begin_time_ms
        expected = np.clip((times - begin) // 1000, 0, INT32_MAX) if begin > 0 else np.zeros(len(times), np.int64)
        is_wrong = (entries["time_difference_s"] != expected) & (numbers != FIRST_ENTRY)

        def tell(index: int) -> None:
            _, physical_offset, found_s, _ = entries[index].item()
            number, message = (
                int(numbers[index]),
                f"it says {found_s} s after the begin of the file, not {expected[index]}",
            )
            self.add("INDEX_ENTRY_TIME", number, message, field_at=TIME_DIFFERENCE_AT, physical_offset=physical_offset)

        wrong = np.flatnonzero(is_wrong).tolist()
        self._report.add_each(wrong, tell, "INDEX_ENTRY_TIME", self.name, is_note=self._is_doubtful)

    def _check_end(self, entry: np.void, store_time_ms: int | None) -> None:
        header = self.header
        if header.end_physical_offset != int(entry["physical_offset"]):
            message = f"it ends at {header.end_physical_offset}, its last entry is of {entry['physical_offset']}"
            self._add("INDEX_HEADER_OFFSET", message, index_file.END_PHYSICAL_OFFSET_AT)
        if store_time_ms is not None and header.end_time_ms != store_time_ms:
            message = f"it ends at {header.end_time_ms} ms, the record of its last entry at {store_time_ms} ms"
            self._add("INDEX_HEADER_TIME", message, index_file.END_TIME_AT)

    def _check_slots(self, start: int, count: int) -> None:
        position = index_file.slot_position(start, self.slot_count)
        slots = np.frombuffer(self._files.read(self._path, position, SLOT_SIZE_BYTES * count), ">i4")
        wrong = np.flatnonzero(slots != self._newest[start : start + len(slots)])

        def tell(index: int) -> None:
            found, expected, slot = int(slots[index]), int(self._newest[start + index]), start + index
            code = "INDEX_SLOT" if 0 <= found <= self.entry_count else "INDEX_SLOT_RANGE"
            message = f"slot {slot} leads to entry {found}, its newest entry is {expected}"
            self._add(code, message, index_file.slot_position(slot, self.slot_count))

        self._report.add_each(wrong.tolist(), tell, "INDEX_SLOT", self.name, is_note=self._is_doubtful)
