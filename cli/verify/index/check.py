# SPDX-License-Identifier: Apache-2.0
"""IndexCheck: compares the keys of the log's records with the entries of the index files, both in the order of the log.

Both are sequences that should be equal, so they are compared side by side over columns, and nothing is kept. If they
differ, the nearest place at which they agree again shows whether entries are missing, surplus or changed.
Known behaviour of RocketMQ is a note: the time of a file's first entry, entries of the last message entered twice,
a whole range missing after an unclean stop. Rules: docs/formats/index_file.md.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from cli.verify.codes import Area
from cli.verify.files import Files
from cli.verify.findings import Report
from cli.verify.index.file_check import IndexFileCheck
from cli.verify.log.check import LogFacts
from cli.verify.log.files import LogFiles, common_size
from cli.verify.state import StoreState
from libs.formats import store_layout
from libs.formats.indexes import index_file
from libs.formats.indexes.index_file import (
    ENTRY_PHYSICAL_OFFSET_AT,
    ENTRY_SIZE_BYTES,
    FIRST_ENTRY,
    HEADER_SIZE_BYTES,
    KEY_HASH_AT,
    SLOT_SIZE_BYTES,
    guess_slot_count,
)
from libs.formats.records.dispatch_columns import DispatchBatch
from libs.machine.fs import TEMPORARY_SUFFIX

WRONG_COUNT_MAX = 10_000
"""A file with more wrong entries than this is not checked any further."""
_VIEW_COUNT = 16
"""Least number of keys in view for an explanation of a difference."""
Keys: TypeAlias = "NDArray[np.int64]"
"""Keys that the log demands, in its order. Three rows: hashes, physical offsets and store times of their records."""


class IndexCheck:
    """Call `check` with every batch of the log, then `finish`."""

    def __init__(
        self,
        files: Files,
        data_dir: Path,
        log: LogFiles,
        facts: LogFacts,
        store: StoreState,
        report: Report,
        *,
        slot_count: int | None,
    ) -> None:
        self.entry_count = 0
        """Number of entries that were checked."""
        self.size_bytes = 0
        self._files = files
        self._log = log
        self._facts = facts
        self._store = store
        self._report = report
        self._directory = data_dir / store_layout.INDEX
        self._is_wanted = Area.INDEX in report.areas and self._directory.is_dir()
        if Area.INDEX in report.areas and not self._is_wanted:
            report.add("NO_INDEX", store_layout.INDEX, "there is no index")
        self.slot_count = slot_count or 0
        """Slots of an index file, 0 if that is not known."""
        self._entry_capacity = 0
        self._names = self._list()
        self._has_files = bool(self._names)
        self._first_name = f"{store_layout.INDEX}/{self._names[-1]}" if self._names else ""
        self._is_complete = store.has_finished_files(self._names)
        self._file: IndexFileCheck | None = None
        self._previous_end_time_ms: int | None = None
        self._held = np.empty((3, 0), np.int64)
        self._has_matched = False
        self._last_physical_offset = -1
        self._wrong_count = 0
        self._is_lost = False
        self._missing_count = 0
        self._first_missing = 0

    def check(self, batch: DispatchBatch) -> None:
        """Compare the keys of these records."""
        if not self._is_wanted or not len(batch.key_hashes):
            return
        held_count = self._held.shape[1]
        keys = np.empty((3, held_count + len(batch.key_hashes)), np.int64)
        keys[:, :held_count] = self._held
        keys[0, held_count:] = batch.key_hashes
        keys[1, held_count:] = np.repeat(batch.physical_offsets, batch.key_counts)
        keys[2, held_count:] = np.repeat(batch.store_times_ms, batch.key_counts)
        self._held = self._compare(keys, is_last=False)

    def finish(self) -> None:
        """Compare the remaining keys, check the entries that no key demands, and report missing entries."""
        self._compare(self._held, is_last=True)
        while (file := self._current()) is not None:
            with self._guarded(file):
                self._undemanded(file, file.entries())
        is_off = self._store.progress is None and not self._has_files
        code, count = "INDEX_RANGE_MISSING" if is_off else "INDEX_ENTRY_MISSING", self._missing_count
        message = f"{count} keys of the end of the log have no entry"
        self._report.add(code, store_layout.INDEX, message, physical_offset=self._first_missing, count=count)

    def _list(self) -> list[str]:
        """Return the names of the index files, the next file last. Reports wrong names and sizes."""
        sizes: dict[str, int] = {}
        for path in sorted(self._directory.iterdir()) if self._is_wanted else []:
            if path.name.endswith(TEMPORARY_SUFFIX):
                continue
            if _is_index_name(path.name) and path.is_file():
                sizes[path.name] = path.stat().st_size
            else:
                message = "it is no file whose name is a time of 17 digits"
                self._report.add("INDEX_FILE_NAME", f"{store_layout.INDEX}/{path.name}", message)
        if not sizes:
            return []
        self.size_bytes = sum(sizes.values())
        common = common_size([(int(name), size) for name, size in sizes.items()])
        self.slot_count = self.slot_count or guess_slot_count(common)
        entries_bytes = common - HEADER_SIZE_BYTES - SLOT_SIZE_BYTES * self.slot_count
        if self.slot_count < 1 or entries_bytes < 2 * ENTRY_SIZE_BYTES or entries_bytes % ENTRY_SIZE_BYTES:
            message = f"{common} bytes do not tell how many slots a file has; give --index-slots"
            self._report.add("INDEX_FILE_SIZE", f"{store_layout.INDEX}/{min(sizes)}", message)
            return []
        self._entry_capacity = entries_bytes // ENTRY_SIZE_BYTES
        for name, size in sizes.items():
            if size != common:
                message = f"{size} bytes, but index files of this store have {common}"
                self._report.add("INDEX_FILE_SIZE", f"{store_layout.INDEX}/{name}", message)
        return [name for name, size in reversed(sizes.items()) if size == common]

    def _current(self) -> IndexFileCheck | None:
        """Return the file with the next entry, or None behind the last file."""
        while True:
            if self._file is not None:
                if self._file.number <= self._file.entry_count:
                    return self._file
                file, self._file = self._file, None
                self._previous_end_time_ms = file.header.end_time_ms
                with self._guarded(file):
                    file.finish()
            if not self._names:
                return None
            name = self._names.pop()
            try:
                self._file = IndexFileCheck(
                    self._files,
                    self._directory / name,
                    f"{store_layout.INDEX}/{name}",
                    self._report,
                    slot_count=self.slot_count,
                    entry_capacity=self._entry_capacity,
                    is_doubtful=self._store.is_index_file_doubtful(name),
                    previous_end_time_ms=self._previous_end_time_ms,
                )
            except OSError as error:
                self._report.add("FILE_UNREADABLE", f"{store_layout.INDEX}/{name}", error.strerror or str(error))
                self._is_lost = True

    @contextmanager
    def _guarded(self, file: IndexFileCheck) -> Iterator[None]:
        """Run a block that reads a file. A file that can't be read or is full of faults is given up."""
        try:
            yield
        except OSError as error:
            self._report.add("FILE_UNREADABLE", file.name, error.strerror or str(error))
        else:
            if self._wrong_count <= WRONG_COUNT_MAX:
                return
            message = f"more than {WRONG_COUNT_MAX} entries are wrong; the rest of the file is not looked at"
            self._report.add("INDEX_FILE_GIVEN_UP", file.name, message)
        self._file, self._wrong_count, self._is_lost = None, 0, True

    def _compare(self, keys: Keys, *, is_last: bool) -> Keys:
        """Compare keys with the next entries. Returns copies of the last keys, to be compared with more in view."""
        while count := keys.shape[1]:
            file = self._current()
            if file is None:
                self._missing(keys, None)
                keys = keys[:, count:]
            elif not is_last and count < _VIEW_COUNT:
                break
            else:
                with self._guarded(file):
                    keys = keys[:, self._step(keys, file) :]
        return keys.copy()

    def _step(self, keys: Keys, file: IndexFileCheck) -> int:
        """Pass over equal entries, or over a single difference. Returns the number of keys that are done."""
        entries = file.entries()
        count = min(len(entries), keys.shape[1])
        is_same = entries["key_hash"][:count] == keys[0, :count]
        is_same &= entries["physical_offset"][:count] == keys[1, :count]
        good = count if is_same.all() else int(is_same.argmin())
        if not good:
            return self._align(file, entries, keys)
        self._accept(file, entries[:good], keys[:, :good])
        self._has_matched, self._is_lost = True, False
        return good

    def _align(self, file: IndexFileCheck, entries: NDArray[np.void], keys: Keys) -> int:
        """Report the difference at the next entry and pass over it. Returns the number of keys that are done."""
        hashes, offsets = entries["key_hash"].astype(np.int64), entries["physical_offset"].astype(np.int64)
        wanted_hashes, wanted_offsets, _ = keys
        if self._undemanded_count(offsets[:1]):
            self._undemanded(file, entries[: self._undemanded_count(offsets)])
            return 0
        if min(len(hashes), len(wanted_hashes)) > 1 and (hashes[1], offsets[1]) == (
            wanted_hashes[1],
            wanted_offsets[1],
        ):
            return self._changed(file, entries, keys)
        surplus = _first((hashes == wanted_hashes[0]) & (offsets == wanted_offsets[0]))
        missing = _first((wanted_hashes == hashes[0]) & (wanted_offsets == offsets[0]))
        if surplus is not None and (missing is None or surplus <= missing):
            self._undemanded(file, entries[:surplus])
            return 0
        if missing is None and offsets[0] > wanted_offsets[-1] and self._log.is_record(int(offsets[0])):
            missing = len(wanted_hashes)
        if missing is not None:
            self._missing(keys[:, :missing], file)
            return missing
        if len(entries) > 1 and (offsets < wanted_offsets[0]).all() and (np.diff(offsets) >= 0).all():
            self._undemanded(file, entries)
            return 0
        return self._changed(file, entries, keys)

    def _accept(self, file: IndexFileCheck, entries: NDArray[np.void], keys: Keys) -> None:
        hashes, physical_offsets, store_times_ms = keys
        file.accept(entries, hashes, store_times_ms)
        self.entry_count += len(entries)
        self._last_physical_offset = int(physical_offsets[-1])

    def _changed(self, file: IndexFileCheck, entries: NDArray[np.void], keys: Keys) -> int:
        """Report the fault of the next key's entry. Returns the number of keys that are done."""
        found, number, self._wrong_count = entries[0], file.number, self._wrong_count + 1
        key_hash, physical_offset, _ = keys[:, 0].tolist()
        if found["physical_offset"] == physical_offset:
            message = f"its hash is {found['key_hash']}, that of the record's key {key_hash}"
            file.add("INDEX_ENTRY_HASH", number, message, field_at=KEY_HASH_AT, physical_offset=physical_offset)
        elif found["key_hash"] == key_hash:
            message = f"it points to {found['physical_offset']}, not to the record at {physical_offset}"
            position = ENTRY_PHYSICAL_OFFSET_AT
            file.add("INDEX_ENTRY_OFFSET", number, message, field_at=position, physical_offset=physical_offset)
        else:
            message = f"nothing in it is of the key of the record at {physical_offset} that it should be"
            file.add("INDEX_ENTRY_OTHER", number, message, physical_offset=physical_offset)
        self._accept(file, entries[:1], keys[:, :1])
        return 1

    def _missing(self, keys: Keys, file: IndexFileCheck | None) -> None:
        """Report keys without an entry. `file` None means that there are no more entries at all."""
        _, physical_offsets, _ = keys
        certain = int(np.searchsorted(physical_offsets, self._store.certain_entries_end))
        message = "keys have no entry yet; the Indexer, or RocketMQ's next start, goes on there"
        self._report.tally("INDEX_BEHIND", store_layout.INDEX, message, len(physical_offsets) - certain)
        if not certain or self._is_lost:
            return
        first = int(physical_offsets[0])
        if file is None:
            self._first_missing = self._first_missing if self._missing_count else first
            self._missing_count += certain
            return
        if file.number == FIRST_ENTRY and file.name == self._first_name and self._is_complete:
            message = "keys have no entry any more: the Indexer has forgotten them, and the log was not deleted since"
            self._report.tally("INDEX_TRIMMED", store_layout.INDEX, message, certain)
            return
        # After an unclean stop RocketMQ drops the unfinished file and does not build all of it again.
        is_range = self._store.progress is None and file.number == FIRST_ENTRY
        code = "INDEX_RANGE_MISSING" if is_range else "INDEX_ENTRY_MISSING"
        message = f"before entry {file.number}: {certain} keys of records have no entry"
        position = index_file.entry_position(file.number, file.slot_count)
        self._report.add(code, file.name, message, position=position, physical_offset=first, count=certain)

    def _undemanded(self, file: IndexFileCheck, entries: NDArray[np.void]) -> None:
        """Pass over entries that no key of the log demands."""
        hashes, offsets = entries["key_hash"].astype(np.int64), entries["physical_offset"].astype(np.int64)
        order = np.maximum.accumulate(np.concatenate(([self._last_physical_offset], offsets)))[:-1]
        is_good = (hashes >= 0) & (entries["time_difference_s"] >= 0) & (offsets >= order)
        is_good &= self._is_gone(offsets)
        is_good &= offsets >= 0
        is_unchecked = ~is_good & self._facts.are_damaged(offsets)
        message = "entries point into damaged parts of the log"
        self._report.tally("INDEX_ENTRY_UNCHECKED", store_layout.INDEX, message, int(np.count_nonzero(is_unchecked)))
        wrong = np.flatnonzero(~is_good & ~is_unchecked).tolist()
        self._wrong_count += len(wrong)

        def tell(index: int) -> None:
            physical_offset = int(offsets[index])
            code, message = self._kind(int(hashes[index]), physical_offset, int(order[index]))
            file.add(code, file.number + index, message, physical_offset=max(physical_offset, 0))

        self._report.add_each(wrong, tell, "INDEX_ENTRY_SURPLUS", file.name, "more entries")
        if is_good.any():
            self._last_physical_offset = int(offsets[is_good].max())
        file.accept(entries, hashes, None)
        self.entry_count += len(entries)

    def _kind(self, key_hash: int, physical_offset: int, before: int) -> tuple[str, str]:
        """Return code and sentence for an entry that no key demands."""
        if not self._log.segments or physical_offset < self._log.min_physical_offset:
            if key_hash < 0:
                return "INDEX_ENTRY_HASH", f"its hash is {key_hash}"
            return "INDEX_ENTRY_ORDER", f"it points to {physical_offset}, the entry before it to {before}"
        if physical_offset >= self._facts.end_physical_offset:
            return "INDEX_ENTRY_PAST_END", f"it points to {physical_offset}, behind the end of the log"
        if physical_offset == before:
            return "INDEX_ENTRY_DOUBLED", "the keys of this record were entered before"
        return "INDEX_ENTRY_SURPLUS", f"no key of a record at {physical_offset} demands it here"

    def _is_gone(self, offsets: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Return whether entries come before the entries of the log and point below it, to deleted records.

        Without a log all entries before a match count as such.
        """
        if self._has_matched or not self._log.segments:
            return np.full(len(offsets), not self._has_matched)
        return offsets < self._log.min_physical_offset

    def _undemanded_count(self, offsets: NDArray[np.int64]) -> int:
        """Return the number of the next entries that point into damaged parts or below the log."""
        first = _first(~(self._is_gone(offsets) | self._facts.are_damaged(offsets)))
        return len(offsets) if first is None else first


def _first(flags: NDArray[np.bool_]) -> int | None:
    index = int(flags.argmax()) if len(flags) else 0
    return index if len(flags) and flags[index] else None


def _is_index_name(name: str) -> bool:
    """Return whether the name is a time of 17 digits."""
    try:
        datetime.strptime(name[:14], "%Y%m%d%H%M%S")  # noqa: DTZ007 - in any zone, it must be a date
    except ValueError:
        return False
    return store_layout.is_index_file_name(name)
