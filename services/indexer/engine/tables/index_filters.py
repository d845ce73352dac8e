# SPDX-License-Identifier: Apache-2.0
"""IndexFilters: the filters of finished index files, so that a search skips files without the key.

Invariants: a filter is used only for the index file from which it was made, as its header says; it is removed before
its index file; a missing filter costs time only. A filter of an index file that is damaged is not made: it would hide
the damage. Callers: any thread; every method blocks. A filter has a single writer.
Layout: `reput/index_filters/<name of the index file>`, docs/formats/index_filter.md. RocketMQ has no such files.
"""

import contextlib
import logging
from collections.abc import Collection
from pathlib import Path

import numpy as np

from libs.formats.errors import FormatError
from libs.formats.indexes.index_file import FIRST_ENTRY
from libs.formats.state.index_filter import (
    FILTER_HEADER_SIZE_BYTES,
    decode_filter_header,
    header_seed,
)
from libs.kernel.scan.filter_cy import seal_filter
from libs.machine.errors import DiskFull
from libs.machine.failpoints import failpoint
from libs.machine.fs import Fs, MappedFile
from services.indexer.engine.tables.index_file import IndexFile

STEP_ENTRY_COUNT = 1 << 20
"""Entries that a step of a filter's making reads: 20 MiB."""

_log = logging.getLogger(__name__)


class IndexFilters:
    """The filters of a store."""

    def __init__(self, fs: Fs, directory: Path) -> None:
        self._fs = fs
        self.directory = directory

    def check_versions(self) -> None:
        """Raise NewerVersion if a filter is of a later version. A filter that can't be read is made again later."""
        for name in self._listed():
            head = bytearray(FILTER_HEADER_SIZE_BYTES)
            with contextlib.suppress(FormatError, OSError):
                self._fs.open_readable(self.directory / name).read(0, memoryview(head), may_wait=True)
                decode_filter_header(head)

    def open(self, file: IndexFile) -> MappedFile | None:
        """Map the filter of a finished index file. Returns None without one, also if it is damaged or of another file.

        Raises IndexDamaged for a damaged index file.
        """
        path, header = self.directory / file.name, file.filter_header()
        if not self._fs.exists(path):
            return None
        if self._fs.size(path) == decode_filter_header(header).file_size_bytes:
            mapped = self._fs.open_mapped(path, writable=False)
            mapped.check_readable(0, FILTER_HEADER_SIZE_BYTES)
            if mapped.buffer[:FILTER_HEADER_SIZE_BYTES] == header:
                return mapped
            mapped.close()
        _log.warning("%s is damaged, or of another index file: making it again", path)
        return None

    def write(self, name: str, data: bytes | bytearray, *, spared_bytes: int) -> None:
        """Store a filter. Durable on return. Raises DiskFull if so much room would not be left, and OSError."""
        self._fs.make_directory(self.directory)
        path = self.directory / name
        if self._fs.disk_usage(self.directory).free_bytes < len(data) + spared_bytes:
            raise DiskFull(path=path, needed_bytes=len(data) + spared_bytes)
        failpoint("index_filter.before_write")
        self._fs.write_atomic(path, bytes(data))
        failpoint("index_filter.after_write")

    def remove(self, name: str) -> None:
        """Remove the filter of an index file, durably, if it has one."""
        with contextlib.suppress(FileNotFoundError):
            self._fs.remove(self.directory / name)
            self._fs.sync_directory(self.directory)

    def remove_others(self, names: Collection[str]) -> None:
        """Remove all files but the filters of these index files."""
        for name in self._listed():
            if name not in names:
                self.remove(name)

    def _listed(self) -> list[str]:
        with contextlib.suppress(FileNotFoundError):
            return self._fs.list(self.directory)
        return []


class FilterInMaking:
    """A filter of a finished index file while it is made. Memory: the filter, and 4 bytes for each hash slot."""

    def __init__(self, file: IndexFile) -> None:
        """Raises IndexDamaged."""
        header = file.filter_header()
        decoded = decode_filter_header(header)
        self.data = bytearray(decoded.file_size_bytes)
        self.data[:FILTER_HEADER_SIZE_BYTES] = header
        self._blocks = memoryview(self.data)[FILTER_HEADER_SIZE_BYTES:]
        self._file = file
        self._newest = np.zeros(file.slot_count, np.int32)
        self._next_entry, self._end_entry = FIRST_ENTRY, decoded.index_header.next_entry

    def step(self) -> bool:
        """Read some entries. Returns whether the filter is ready. Raises IndexDamaged and OSError. Blocks."""
        end = min(self._next_entry + STEP_ENTRY_COUNT, self._end_entry)
        self._file.fill_filter(self._next_entry, end, self._newest, self._blocks)
        self._next_entry = end
        if end < self._end_entry:
            return False
        self._file.check_slots(self._newest)
        seal_filter(self._blocks, header_seed(self.data))
        return True
