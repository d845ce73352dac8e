# SPDX-License-Identifier: Apache-2.0
"""IndexTable: the index files of a store. The newest is written, all are searched.

Invariants: names ascend with the records inside; `next_physical_offset` is the end of the entered records, so even a
replay never enters a record twice; all files but the newest are full and are synced once.
Callers: the event loop's thread; the files of `unfinished` may be synced in a worker thread.
Layout: `<directory>/<17 digits of local creation time>`; other names are ignored. RocketMQ's counterpart is
IndexService. Unlike there, an unfinished file that is doubtful after an unclean stop is built again from its own begin.
"""

import logging
from bisect import bisect_left
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import NamedTuple

import msgspec
import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from libs.formats import store_layout
from libs.formats.indexes.index_file import file_size_bytes
from libs.formats.records.dispatch_columns import DispatchBatch
from libs.formats.state.index_progress import IndexProgress
from libs.kernel.scan import lookup_cy
from libs.kernel.scan.lookup_cy import SearchedFile
from libs.machine.clock import Clock
from libs.machine.errors import DiskFull
from libs.machine.failpoints import failpoint
from libs.machine.fs import Fs, MappedFile
from libs.segments.errors import SegmentSizeWrong, StoreFull
from services.indexer.engine.tables.index_file import IndexFile
from services.indexer.engine.tables.index_filters import IndexFilters
from services.indexer.errors import Inapplicable

_log = logging.getLogger(__name__)


class IndexCursor(Struct, frozen=True):
    """The place where a search continues: an entry of a file. Entry 0 is the newest of the key's chain."""

    file: str
    entry: int


class Candidates(Struct, frozen=True):
    """Physical offsets of records that may have the key, newest first, and the next cursor, or None at the end."""

    physical_offsets: NDArray[np.int64]
    cursor: IndexCursor | None


class NewestFile(NamedTuple):
    """The newest file of a table, without a name if no file exists, and its next entry, -1 if unknown."""

    name: str
    next_entry: int


UNKNOWN = NewestFile("", -1)


class IndexTable:
    """The index files of a store. Create it, then `load` it once."""

    def __init__(self, fs: Fs, directory: Path, clock: Clock, *, slot_count: int, entry_capacity: int) -> None:
        self._fs = fs
        self.directory = directory
        self._clock = clock
        self._slot_count = slot_count
        self._entry_capacity = entry_capacity
        self.file_size_bytes = file_size_bytes(slot_count, entry_capacity)
        self._files: list[IndexFile] = []
        self._searched: list[SearchedFile] = []
        """The files as the kernel searches them."""
        self._tally = np.zeros(2, np.int64)
        self.filters = IndexFilters(fs, directory.parent / store_layout.INDEX_FILTERS)
        self.expired: list[str] = []
        """Names of files that the table has dropped and that wait for their removal, oldest first."""
        self._last_name = ""
        self.next_physical_offset = 0
        """End of the records that are entered, exclusive."""

    def load(self, progress: IndexProgress) -> None:
        """Open the files as the last stop left them, with all records entered that progress knows.

        After an unclean stop all files after the last finished file are dropped, to be built again. The same happens if
        RocketMQ has worked on the same directory since a clean stop, or meanwhile, and left another newest file.
        If a finished file is missing, all files are built again. Raises SegmentSizeWrong, and NewerVersion for a
        filter of a later version.
        """
        self._fs.make_directory(self.directory)
        self.filters.check_versions()
        names = self._listed()
        finished_file, is_clean = progress.index_finished_file, progress.is_clean
        replay_physical_offset = progress.index_replay_physical_offset
        finished = [name for name in names if name <= finished_file]
        count = progress.index_finished_count
        if finished_file and (finished_file not in finished or len(finished) < count):
            _log.error("%s: %d of %d finished index files are there", self.directory, len(finished), count)
            finished_file, replay_physical_offset, is_clean = "", 0, False
        self.next_physical_offset = progress.index_physical_offset if is_clean else replay_physical_offset
        kept = [name for name in names if is_clean or name <= finished_file]
        self._last_name = max([finished_file, *kept])
        for name in reversed(names[len(kept) :]):
            self._remove(name)
        for name in kept:
            path = self.directory / name
            if (size_bytes := self._fs.size(path)) != self.file_size_bytes:
                raise SegmentSizeWrong(path=path, size_bytes=size_bytes, expected_bytes=self.file_size_bytes)
            self._add(self._fs.open_mapped(path), is_finished=name <= finished_file)
        newest = NewestFile(progress.index_newest_file, progress.index_newest_entry) if is_clean else UNKNOWN
        if not self._is_as_left(replay_physical_offset, newest):
            self._drop_unfinished(replay_physical_offset)

    def described(self, progress: IndexProgress) -> IndexProgress:
        """Return progress with the state of the files that the next start must find."""
        finished = self._files[: self._finished_count()]
        newest = self._newest()[0] if progress.is_clean else UNKNOWN
        return msgspec.structs.replace(
            progress,
            index_replay_physical_offset=min(progress.index_physical_offset, self.replay_physical_offset),
            index_finished_file=finished[-1].name if finished else "",
            index_finished_count=len(finished),
            index_newest_file=newest.name,
            index_newest_entry=newest.next_entry,
            index_time_ms=finished[-1].header.end_time_ms if finished else 0,
        )

    @property
    def file_count(self) -> int:
        """Number of files."""
        return len(self._files)

    @property
    def names(self) -> set[str]:
        """Names of the files."""
        return {file.name for file in self._files}

    @property
    def filter_count(self) -> int:
        """Number of files whose filter is in use."""
        return sum(file.has_filter for file in self._files)

    @property
    def searched_count(self) -> int:
        """Files that searches have looked into since the start, counted for each key."""
        return int(self._tally[0])

    @property
    def skipped_count(self) -> int:
        """Files that searches have skipped since the start because of their filters, counted for each key."""
        return int(self._tally[1])

    def without_filter(self) -> list[IndexFile]:
        """Return the finished files without a filter in use, newest first."""
        finished = self._files[: self._finished_count()]
        return [file for file in reversed(finished) if not file.has_filter]

    def has(self, file: IndexFile) -> bool:
        """Return whether the table still has a file."""
        return file in self._files

    @property
    def entry_count(self) -> int:
        """Entries in all files. Reads the header of each."""
        return sum(file.header.entry_count for file in self._files)

    @property
    def replay_physical_offset(self) -> int:
        """The offset where a replay must begin to build all unfinished files again."""
        unfinished = self.unfinished()
        begin = unfinished[0].header.begin_physical_offset if unfinished else self.next_physical_offset
        return min(begin, self.next_physical_offset)

    def check(self, batch: DispatchBatch) -> None:
        """Raise Inapplicable for a record with more keys than fit into a file."""
        too_many = np.flatnonzero(batch.key_counts >= self._entry_capacity)
        if len(too_many):
            reason = f"{int(batch.key_counts[too_many[0]])} keys do not fit into an index file"
            raise Inapplicable(reason, physical_offset=int(batch.physical_offsets[too_many[0]]))

    def put(self, batch: DispatchBatch) -> None:
        """Enter the keys of the batch's records that are not entered yet. `check` must have passed the batch.

        Makes nothing durable. May be repeated with the same batch after any error: it continues where it stopped.
        Raises StoreFull.
        """
        failpoint("index.before_put")
        row = int(np.searchsorted(batch.physical_offsets, self.next_physical_offset))
        key = int(batch.key_counts[:row].sum())
        while key < len(batch.key_hashes):
            file = self._files[-1] if self._files and not self._files[-1].is_finished else self._roll()
            row, key = file.put(batch, row, key)
            if key == len(batch.key_hashes):
                break
            self.next_physical_offset = int(batch.physical_offsets[row])
            self._roll()
        self.next_physical_offset = max(self.next_physical_offset, batch.end_physical_offset)
        failpoint("index.after_put")

    def search(
        self,
        key_hash: int,
        *,
        start_time_ms: int,
        end_time_ms: int,
        below_physical_offset: int,
        cursor: IndexCursor | None,
        limit: int,
    ) -> Candidates:
        """Find records that may have a key, newest first, at most `limit` in a step.

        Keys are compared by hash only, and store times, [start, end), only to the second: the caller must check the
        records. Only records below `below_physical_offset` are returned. `cursor` continues after the step before; if
        its file is gone, the search continues by the offset alone. A step may find nothing and still have a cursor.
        Raises IndexDamaged.
        """
        position, entry = self._place_of(cursor)
        found, total, doubt_at = np.empty(limit, np.int64), 0, 0
        files, bounds = self._searched, (start_time_ms, end_time_ms, below_physical_offset, self.next_physical_offset)
        while doubt_at >= 0:
            out = found[total:]
            count, position, entry, doubt_at = lookup_cy.search(
                files, position, entry, key_hash, *bounds, out, self._tally
            )
            total += count
            if doubt_at >= 0:
                self._look_closer(position, entry, doubt_at)
                position, entry = position - 1, 0
        return Candidates(found[:total], IndexCursor(self._files[position].name, entry) if position >= 0 else None)

    @staticmethod
    def hashes(topic: str, keys: list[bytes]) -> NDArray[np.int32]:
        """Return the hashes of keys of a topic for `search_many`."""
        return np.frombuffer(lookup_cy.key_hashes(topic.encode(), keys), np.int32)

    def search_many(
        self,
        hashes: NDArray[np.int32],
        first: int,
        start_time_ms: int,
        end_time_ms: int,
        found: NDArray[np.int64],
        counts: NDArray[np.int32],
    ) -> int:
        """Find all records that may have a key, for as many keys from number `first` on as a step allows, at least 1.

        A row of `found` gets the offsets of a key, newest first, and `counts` their number: -1 for a key that has more,
        or that `search` must look for by itself. As to keys and times, see `search`.
        Returns the number of the next key.
        """
        end, room = self.next_physical_offset, found.shape[1]
        times = start_time_ms, end_time_ms
        return lookup_cy.search_many(
            self._searched, hashes, first, *times, end, room, found.ravel(), counts, self._tally
        )

    def _look_closer(self, position: int, entry: int, doubt_at: int) -> None:
        """Raise IndexDamaged if a file in which a search found a doubtful place is damaged."""
        file = self._files[position]
        if entry < 0:
            raise file.why_unsound(doubt_at, end_physical_offset=self.next_physical_offset)
        file.check_empty(doubt_at)

    def lowered(self, progress: IndexProgress, bound_physical_offset: int) -> IndexProgress:
        """Return the part of progress that will still be certain after `truncate`."""
        finished, replay = "", min(self.next_physical_offset, bound_physical_offset)
        for file in self._files:
            header = file.header
            if file.is_finished and header.end_physical_offset < bound_physical_offset:
                finished = file.name
            else:
                replay = min(replay, header.begin_physical_offset)
        return msgspec.structs.replace(
            progress,
            index_physical_offset=min(progress.index_physical_offset, replay),
            index_replay_physical_offset=min(progress.index_replay_physical_offset, replay),
            index_finished_file=min(progress.index_finished_file, finished),
            index_finished_count=-1,
            index_time_ms=0,
        )

    def truncate(self, bound_physical_offset: int) -> None:
        """Drop every file with a record at or past this offset. Their records below it must be entered again."""
        while self._files and self._files[-1].header.end_physical_offset >= bound_physical_offset:
            file = self._pop()
            self.next_physical_offset = min(self.next_physical_offset, file.header.begin_physical_offset)
            file.close()
            self._remove(file.name)
        self.next_physical_offset = min(self.next_physical_offset, bound_physical_offset)

    def detach(self) -> None:
        """Close all files, which stay on the disk. The table is empty then. No sync may run."""
        self.close()
        self._files, self._searched, self.expired = [], [], []
        self.next_physical_offset = 0

    def remove_files(self) -> None:
        """Remove all index files, newest first, durably. They must not be open. Blocks. May be repeated."""
        for name in reversed(self._listed()):
            self._remove(name)

    def trim(self, min_physical_offset: int) -> int:
        """Drop finished files whose records are all below this offset from the table. Returns how many.

        They must be removed from the disk only after progress was saved with their new number (`pop_expired`,
        `remove`): otherwise the missing file causes the index to be built again. An unfinished file, which a sync may
        work on, is dropped next time.
        """
        count = self.trimmable_count(min_physical_offset)
        for file in self._files[:count]:
            file.close()
            self.expired.append(file.name)
        del self._files[:count], self._searched[:count]
        return count

    def trimmable_count(self, min_physical_offset: int) -> int:
        """Return how many files `trim` would drop."""

        def is_kept(file: IndexFile) -> bool:
            return not file.is_finished or file.header.end_physical_offset >= min_physical_offset

        return bisect_left(self._files, True, key=is_kept)

    def pop_expired(self, count: int) -> list[str]:
        """Return the names of the `count` oldest expired files, for `remove`."""
        names, self.expired = self.expired[:count], self.expired[count:]
        return names

    def remove(self, names: list[str]) -> None:
        """Remove files that the table has dropped, durably. Blocks. May run in any thread."""
        for name in names:
            self._remove(name)

    def unfinished(self) -> list[IndexFile]:
        """Return the files that may have unsynced entries, oldest first. The last of them is the newest of all."""
        return self._files[self._finished_count() :]

    def mark_finished(self, files: list[IndexFile]) -> None:
        """Record that these files were synced after their last entry. The newest must not be among them."""
        for file in files:
            file.finish()

    def close(self) -> None:
        """Close all files. Makes nothing durable."""
        for file in self._files:
            file.close()

    def _listed(self) -> list[str]:
        return [name for name in self._fs.list(self.directory) if store_layout.is_index_file_name(name)]

    def _newest(self) -> tuple[NewestFile, int]:
        """Return the newest file, and the physical offset of its last record, -1 without a file."""
        if not self._files:
            return NewestFile("", 0), -1
        header = self._files[-1].header
        return NewestFile(self._files[-1].name, header.next_entry), header.end_physical_offset

    def _finished_count(self) -> int:
        return bisect_left(self._files, True, key=lambda file: not file.is_finished)

    def _is_as_left(self, replay_physical_offset: int, newest: NewestFile) -> bool:
        """Return whether unfinished files begin and end as before, and nothing was entered past the end."""
        found, end_physical_offset = self._newest()
        if newest not in (UNKNOWN, found):
            _log.warning("%s: the newest file is %s, not %s: building it again", self.directory, found, newest)
            return False
        is_past_end = end_physical_offset >= self.next_physical_offset
        return self.replay_physical_offset == replay_physical_offset and not is_past_end

    def _drop_unfinished(self, replay_physical_offset: int) -> None:
        while self._files and not self._files[-1].is_finished:
            file = self._pop()
            file.close()
            self._remove(file.name)
        self.next_physical_offset = replay_physical_offset

    def _place_of(self, cursor: IndexCursor | None) -> tuple[int, int]:
        """Return the numbers of the first file and its first entry: the newest, unless the cursor's file is kept."""
        if cursor is not None:
            number = bisect_left(self._files, cursor.file, key=lambda file: file.name)
            if number < len(self._files) and self._files[number].name == cursor.file:
                return number, cursor.entry
        return len(self._files) - 1, 0

    def _roll(self) -> IndexFile:
        name = self._next_name()
        path = self.directory / name
        try:
            mapped = self._fs.create_mapped(path, self.file_size_bytes)
        except DiskFull as error:
            raise StoreFull(path=path, needed_bytes=self.file_size_bytes) from error
        return self._add(mapped, is_finished=False)

    def _next_name(self) -> str:
        """Return the local time, as RocketMQ names files, but later than the newest: the clock may stop or run back."""
        now = datetime.fromtimestamp(self._clock.now_ms() / 1000, tz=UTC).astimezone()
        name = store_layout.index_file_name(now)
        if name <= self._last_name:
            latest = datetime.strptime(self._last_name[:14], "%Y%m%d%H%M%S").replace(tzinfo=UTC)
            name = store_layout.index_file_name(latest + timedelta(milliseconds=int(self._last_name[14:]) + 1))
        self._last_name = name
        return name

    def _add(self, mapped: MappedFile, *, is_finished: bool) -> IndexFile:
        file = IndexFile(
            mapped, slot_count=self._slot_count, entry_capacity=self._entry_capacity, is_finished=is_finished
        )
        self._files.append(file)
        self._searched.append(file.searched)
        return file

    def _pop(self) -> IndexFile:
        self._searched.pop()
        return self._files.pop()

    def _remove(self, name: str) -> None:
        self.filters.remove(name)  # first, so that no filter remains for a later file of the same name
        failpoint("index_file.before_remove")
        self._fs.remove(self.directory / name)
        self._fs.sync_directory(self.directory)
        failpoint("index_file.after_remove")
