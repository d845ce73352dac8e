# SPDX-License-Identifier: Apache-2.0
"""IndexFile: a mapped hash table from keys to physical offsets.

Invariants: entries are only added, in log order; a file without an entry does not exist; a file with `is_finished` set
never changes again. Callers: the event loop's thread; `sync` from a worker thread.
Not handled: which file is written or searched (IndexTable). Layout: docs/formats/index_file.md; RocketMQ's counterpart
is IndexFile. Unlike there, the first entry of a later file has the time difference 0, as in the first file.
"""

from array import array
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from libs.formats.errors import FormatError
from libs.formats.indexes.index_file import (
    ENTRY_COUNT_AT,
    ENTRY_SIZE_BYTES,
    HEADER_SIZE_BYTES,
    PREVIOUS_ENTRY_AT,
    SLOT_SIZE_BYTES,
    IndexHeader,
    decode_header,
    entry_position,
    read_next_entry,
    slot_position,
)
from libs.formats.records.dispatch_columns import DispatchBatch
from libs.kernel.scan.index_cy import put_index_entries, select_index_entries
from libs.machine.failpoints import failpoint
from libs.machine.fs import MappedFile
from libs.segments.errors import IndexDamaged, SyncFailed

TIME_MAX_MS = 1 << 43
"""In the year 2248: a later time is no valid store time."""

COUNTED_SLOT_COUNT = 1024
"""Up to this number all slots are counted at once: it costs microseconds."""

AROUND_FACTOR = 20
"""All of `AROUND_FACTOR / load` slots are empty by chance only once in exp(20) cases."""


class Selection(NamedTuple):
    """Physical offsets of entries, newest first, and the next entry of the chain, or 0 at its end."""

    physical_offsets: NDArray[np.int64]
    next_entry: int


class IndexFile:
    """An index file. `name` orders the files of a table."""

    def __init__(self, mapped: MappedFile, *, slot_count: int, entry_capacity: int, is_finished: bool) -> None:
        self.name = mapped.path.name
        self.is_finished = is_finished
        """Whether a later file exists and all of this file is synced."""
        self._mapped = mapped
        self._slot_count = slot_count
        self._entry_capacity = entry_capacity
        self._next_entry: int | None = None
        """The next entry as last read from the header; None before the first read: a start reads no file's content."""

    @property
    def header(self) -> IndexHeader:
        """The header as it is now."""
        return decode_header(self._mapped.buffer)

    def checked_header(self, *, end_physical_offset: int) -> IndexHeader:
        """Return the header, if it can belong to a file of the log up to this offset. Raises IndexDamaged."""
        try:
            header = self.header
        except FormatError as error:
            raise self._damaged(error.position, error.reason) from error
        is_sound = (
            self._next_entry in (None, header.next_entry)
            and (header.entry_count > 0 or not self.is_finished)
            and 0 <= header.begin_time_ms <= TIME_MAX_MS
            and 0 <= header.end_time_ms <= TIME_MAX_MS
            and 0 <= header.begin_physical_offset <= header.end_physical_offset
            and (header.end_physical_offset < end_physical_offset or not header.entry_count)
        )
        if not is_sound:
            raise self._damaged(0, f"the header says {header}")
        self._next_entry = header.next_entry
        return header

    @property
    def size_bytes(self) -> int:
        """Size of the file."""
        return self._mapped.size_bytes

    def put(self, batch: DispatchBatch, row: int, key: int) -> tuple[int, int]:
        """Enter the keys of the batch's records from `row` on. Their first key is number `key` of the batch.

        Returns where it stopped: after the last record, or before a record whose keys do not all fit. Raises
        IndexDamaged.
        """
        if self._next_entry not in (None, found := read_next_entry(self._mapped.buffer)):
            raise self._damaged(ENTRY_COUNT_AT, f"the next entry is {found}, not {self._next_entry}")
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
        self._next_entry = read_next_entry(self._mapped.buffer)
        return place

    def select(self, key_hash: int, *, begin_time_ms: int, end_time_ms: int, entry: int, limit: int) -> Selection:
        """Find at most `limit` entries of a hash whose time (known to the second) may be in [begin, end], newest first.

        `entry` is the first entry: 0 for the newest, otherwise `next_entry` of the selection before.
        Raises IndexDamaged.
        """
        physical_offsets, entries = array("q", bytes(8 * limit)), array("i", bytes(4 * limit))
        count, next_entry = select_index_entries(
            self._mapped.buffer,
            key_hash,
            begin_time_ms,
            end_time_ms,
            entry,
            limit,
            physical_offsets,
            entries,
            self._slot_count,
        )
        if next_entry < 0:
            raise self._damaged(-1 - next_entry, "entries, slots and header do not fit each other")
        if not count and not entry:
            self._check_empty(slot_position(key_hash, self._slot_count))
        return Selection(np.frombuffer(physical_offsets, np.int64, count), next_entry)

    def _check_empty(self, position: int) -> None:
        """Raise IndexDamaged if a slot is empty that was once in use.

        A disk returns zeros for a lost page. First the slots around it are read: so many that a used slot is nearly
        certain among them. Only if all of them are empty, too, all slots are counted.
        """
        slots = np.frombuffer(self._mapped.buffer, ">i4", self._slot_count, HEADER_SIZE_BYTES)
        slot, used_count = (position - HEADER_SIZE_BYTES) // SLOT_SIZE_BYTES, self.header.used_slot_count
        if slots[slot]:
            return
        if self._slot_count > COUNTED_SLOT_COUNT:
            width = AROUND_FACTOR * self._slot_count // max(1, used_count)
            start = max(0, min(slot - width // 2, self._slot_count - width))
            if width > self._slot_count or slots[start : start + width].any():
                return
        count = int(np.count_nonzero(slots))
        if count < used_count and count < self._chain_count():
            raise self._damaged(position, f"{count} slots are in use, {used_count} were")

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
        """Close the file. Makes nothing durable."""
        self._mapped.close()
