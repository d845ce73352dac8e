# SPDX-License-Identifier: Apache-2.0
"""IndexFile: one mapped hash table from keys to physical offsets.

Invariants: entries are only added, in log order; a file that got no entry does not exist; once `is_finished` is set it
never changes again. Callers: the event loop's thread; `sync` from a worker thread.
Not handled: which file is written or searched (IndexTable). Layout: docs/formats/index_file.md; RocketMQ's counterpart
is IndexFile. Unlike there the first entry of a later file carries the time difference 0, as in the first file.
"""

from array import array
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from libs.formats.dispatch_columns import DispatchBatch
from libs.formats.index_file import IndexHeader, decode_header
from libs.kernel.index_cy import put_index_entries, select_index_entries
from libs.machine.failpoints import failpoint
from libs.machine.fs import MappedFile
from libs.store.errors import SyncFailed


class Selection(NamedTuple):
    """Physical offsets of entries, newest first, and the entry to go on with; 0 at the end of the chain."""

    physical_offsets: NDArray[np.int64]
    next_entry: int


class IndexFile:
    """One file. `name` orders the files of a table."""

    def __init__(self, mapped: MappedFile, *, slot_count: int, entry_capacity: int, is_finished: bool) -> None:
        self.name = mapped.path.name
        self.is_finished = is_finished
        """A later file exists and all of this one is synced."""
        self._mapped = mapped
        self._slot_count = slot_count
        self._entry_capacity = entry_capacity

    @property
    def header(self) -> IndexHeader:
        """The header as it is now."""
        return decode_header(self._mapped.buffer)

    @property
    def size_bytes(self) -> int:
        """Size of the file."""
        return self._mapped.size_bytes

    def put(self, batch: DispatchBatch, row: int, key: int) -> tuple[int, int]:
        """Enter the keys of the batch's records from `row` on, the first of whose keys is number `key` of the batch.

        Returns where it stopped: after the last record, or before one whose keys do not all fit.
        """
        return put_index_entries(
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

    def select(self, key_hash: int, *, begin_time_ms: int, end_time_ms: int, entry: int, limit: int) -> Selection:
        """Find at most `limit` entries of a hash whose time (known to the second) may be in [begin, end], newest first.

        `entry` is where to go on: 0 for the newest entry, otherwise `next_entry` of the selection before.
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
        return Selection(np.frombuffer(physical_offsets, np.int64, count), next_entry)

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
        """Let go of the file. Makes nothing durable."""
        self._mapped.close()
