# SPDX-License-Identifier: Apache-2.0
"""IndexFile: a mapped hash table from keys to physical offsets.

Invariants: entries are only added, in log order; a file without an entry does not exist; a file with `is_finished` set
never changes again. Callers: the event loop's thread; `sync` from a worker thread.
Not handled: which file is written or searched (IndexTable). Layout: docs/formats/index_file.md; RocketMQ's counterpart
is IndexFile. Unlike there, the first entry of a later file has the time difference 0, as in the first file.
"""

import numpy as np
from numpy.typing import NDArray

from libs.formats.errors import FormatError
from libs.formats.indexes.index_file import (
    ENTRY_COUNT_AT,
    ENTRY_SIZE_BYTES,
    HEADER_SIZE_BYTES,
    PREVIOUS_ENTRY_AT,
    SLOT_SIZE_BYTES,
    TIME_MAX_MS,
    IndexHeader,
    decode_header,
    entry_position,
    read_next_entry,
    slot_position,
)
from libs.formats.records.dispatch_columns import DispatchBatch
from libs.formats.state.index_filter import FILTER_HEADER_SIZE_BYTES, encode_header, header_seed
from libs.kernel.scan.filter_cy import fill_filter
from libs.kernel.scan.index_cy import put_index_entries
from libs.kernel.scan.lookup_cy import SearchedFile
from libs.machine.failpoints import failpoint
from libs.machine.fs import MappedFile
from libs.segments.errors import IndexDamaged, SyncFailed


class IndexFile:
    """An index file. `name` orders the files of a table."""

    def __init__(self, mapped: MappedFile, *, slot_count: int, entry_capacity: int, is_finished: bool) -> None:
        self.name = mapped.path.name
        self.searched = SearchedFile(mapped.buffer, slot_count)
        """The file as the kernel searches it. Its next entry is -1 before the first look: a start reads no content."""
        self.searched.is_finished = is_finished
        self._mapped = mapped
        self._filter: MappedFile | None = None
        self._slot_count = slot_count
        self._entry_capacity = entry_capacity

    @property
    def is_finished(self) -> bool:
        """Whether a later file exists and all of this file is synced."""
        return self.searched.is_finished

    def finish(self) -> None:
        """Record that all of the file was synced, and that it never changes again."""
        self.searched.is_finished = True

    @property
    def header(self) -> IndexHeader:
        """The header as it is now."""
        return decode_header(self._mapped.buffer)

    def why_unsound(self, position: int, *, end_physical_offset: int) -> IndexDamaged:
        """Return the error for a file in which a search found damage at this byte. All records were below the offset.

        The kernel checks the same rules as this function.
        """
        try:
            header = self.header
        except FormatError as error:
            return self._damaged(error.position, error.reason)
        is_sound = (
            self.searched.next_entry in (-1, header.next_entry)
            and (header.entry_count > 0 or not self.is_finished)
            and 0 <= header.begin_time_ms <= TIME_MAX_MS
            and 0 <= header.end_time_ms <= TIME_MAX_MS
            and 0 <= header.begin_physical_offset <= header.end_physical_offset
            and (header.end_physical_offset < end_physical_offset or not header.entry_count)
        )
        if not is_sound:
            return self._damaged(0, f"the header says {header}")
        return self._damaged(position, "entries, slots and header do not fit each other")

    @property
    def size_bytes(self) -> int:
        """Size of the file."""
        return self._mapped.size_bytes

    @property
    def slot_count(self) -> int:
        """Number of hash slots."""
        return self._slot_count

    @property
    def has_filter(self) -> bool:
        """Whether a filter is in use."""
        return self._filter is not None and not self.searched.is_filter_damaged

    def filter_header(self) -> bytes:
        """Return the header of the file's filter. Reads some pages of the file. Raises IndexDamaged and OSError."""
        mapped = self._mapped

        def read(position: int, size_bytes: int) -> memoryview:
            if position + size_bytes > mapped.size_bytes:
                return memoryview(b"")
            mapped.check_readable(position, size_bytes)
            return mapped.buffer[position : position + size_bytes]

        try:
            return encode_header(self.name, read, self._slot_count)
        except FormatError as error:
            raise self._damaged(error.position, error.reason) from error

    def use_filter(self, mapped: MappedFile) -> None:
        """Skip the file in searches for keys that this filter denies. Its header must be `filter_header`."""
        seed = header_seed(mapped.buffer[:FILTER_HEADER_SIZE_BYTES])
        self.searched.set_filter(mapped.buffer[FILTER_HEADER_SIZE_BYTES:], seed)
        if self._filter is not None:
            self._filter.close()
        self._filter = mapped

    def fill_filter(self, first_entry: int, end_entry: int, newest: NDArray[np.int32], blocks: memoryview) -> None:
        """Enter the hashes of these entries into a filter. `newest` has the newest entry of each slot before them.

        Blocks without the GIL. Raises IndexDamaged for entries that are not as they were put, and OSError.
        """
        start = entry_position(first_entry, self._slot_count)
        self._mapped.check_readable(start, entry_position(end_entry, self._slot_count) - start)
        done = fill_filter(self._mapped.buffer, self._slot_count, first_entry, end_entry, newest, blocks)
        if done < end_entry:
            position = entry_position(done, self._slot_count)
            raise self._damaged(position, f"entry {done} does not follow from the entries before it")

    def check_slots(self, newest: NDArray[np.int32]) -> None:
        """Raise IndexDamaged unless each slot has its newest entry. Raises OSError."""
        self._mapped.check_readable(HEADER_SIZE_BYTES, SLOT_SIZE_BYTES * self._slot_count)
        wrong = np.flatnonzero(self._slots() != newest)
        if len(wrong):
            raise self._damaged(slot_position(int(wrong[0]), self._slot_count), "a slot has not its newest entry")

    def put(self, batch: DispatchBatch, row: int, key: int) -> tuple[int, int]:
        """Enter the keys of the batch's records from `row` on. Their first key is number `key` of the batch.

        Returns where it stopped: after the last record, or before a record whose keys do not all fit. Raises
        IndexDamaged.
        """
        if self.searched.next_entry not in (-1, found := read_next_entry(self._mapped.buffer)):
            raise self._damaged(ENTRY_COUNT_AT, f"the next entry is {found}, not {self.searched.next_entry}")
        place = put_index_entries(
            self._mapped.buffer,
            row,
            batch.physical_offsets.data,
            batch.store_times_ms.data,
            batch.key_counts.data,
            key,
            batch.key_hashes.data,
            len(batch.physical_offsets),
            self._slot_count,
            self._entry_capacity,
        )
        self.searched.next_entry = read_next_entry(self._mapped.buffer)
        return place

    def check_empty(self, position: int) -> None:
        """Raise IndexDamaged if the slot at this byte is empty, and all slots around it, that were once in use.

        A disk returns zeros for a lost page. The kernel has read the slots around it, in which a used slot is nearly
        certain. Here all slots are counted.
        """
        count, used_count = int(np.count_nonzero(self._slots())), self.header.used_slot_count
        if count < used_count and count < self._chain_count():
            raise self._damaged(position, f"{count} slots are in use, {used_count} were")
        self.searched.counted_entry = self.header.next_entry

    def _slots(self) -> NDArray[np.int32]:
        return np.frombuffer(self._mapped.buffer, ">i4", self._slot_count, HEADER_SIZE_BYTES)

    def _chain_count(self) -> int:
        """Count the entries that begin a chain: RocketMQ before 4.7 counted every entry as a slot in use."""
        start = entry_position(1, self._slot_count)
        previous = np.frombuffer(self._mapped.buffer, ">i4", offset=start)[
            PREVIOUS_ENTRY_AT // 4 :: ENTRY_SIZE_BYTES // 4
        ]
        return int(np.count_nonzero(previous[: self.header.entry_count] == 0))

    def _damaged(self, position: int, reason: str) -> IndexDamaged:
        return IndexDamaged(path=self._mapped.path, position=position, reason=reason)

    def sync(self) -> None:
        """Make all entries that were put before the call durable. Blocks without the GIL. Raises SyncFailed."""
        try:
            failpoint("index_file.before_sync")
            self._mapped.sync()
        except OSError as error:
            reason = error.strerror or str(error)
            raise SyncFailed(path=self._mapped.path, position=self.size_bytes, reason=reason) from error
        failpoint("index_file.after_sync")

    def close(self) -> None:
        """Close the file and its filter. Makes nothing durable."""
        if self._filter is not None:
            self._filter.close()
        self._mapped.close()
