# SPDX-License-Identifier: Apache-2.0
"""Trim: drops index data of records that the Janitor gave up, and computes in advance how much that would be.

Invariants: nothing is trimmed past the indexed records; the next round of FlushLoop removes the files, after it saved
progress. Callers: the event loop's thread.
"""

import asyncio
import contextlib
from collections.abc import Collection, Iterator
from pathlib import Path

from msgspec import Struct

from libs.machine.fs import DiskUsage, Fs
from services.indexer.engine.follow.indexes import Indexes
from services.indexer.errors import OffsetBeyondEnd


class Trimmed(Struct, frozen=True):
    """The files and bytes that a trim removed, or would remove."""

    queue_file_count: int
    index_file_count: int
    freed_bytes: int
    own_bytes: int = 0
    """Bytes of all files of the indexes, if nothing was removed."""


class Trim:
    """The trims of an Indexer."""

    def __init__(self, fs: Fs, indexes: Indexes) -> None:
        self._fs = fs
        self._indexes = indexes
        self._queues, self._index = indexes.queues, indexes.index

    def trim(self, min_physical_offset: int) -> Trimmed:
        """Drop all records below an offset, at most up to the indexed end. Raises OffsetBeyondEnd."""
        self._check_indexed(min_physical_offset)
        return self._trimmed(self._queues.trim(min_physical_offset), self._index.trim(min_physical_offset))

    async def would_trim(self, min_physical_offset: int) -> Trimmed:
        """Return the size that `trim` would remove, and the whole size. Removes nothing. Raises OffsetBeyondEnd."""
        self._check_indexed(min_physical_offset)
        leaving = {file.path for file in self._queues.expired}
        filters = self._index.filters.directory
        leaving |= {folder / name for folder in (self._index.directory, filters) for name in self._index.expired}
        directories = (self._queues.directory, self._index.directory, filters)
        own_bytes = await asyncio.to_thread(_allocated_bytes, self._fs, directories, leaving)
        queue_file_count = self._queues.trimmable_count(min_physical_offset)
        return self._trimmed(queue_file_count, self._index.trimmable_count(min_physical_offset), own_bytes)

    @property
    def directory(self) -> Path:
        """The directory of the indexes."""
        return self._queues.directory.parent

    async def disk_usage(self) -> DiskUsage:
        """Return the disk usage of the file system of the indexes, or zeros if it is unknown."""
        try:
            return await asyncio.to_thread(self._fs.disk_usage, self.directory)
        except OSError:
            return DiskUsage(total_bytes=0, free_bytes=0, used_bytes=0)

    def _check_indexed(self, min_physical_offset: int) -> None:
        end = self._indexes.reached.indexed_physical_offset
        if min_physical_offset > end:
            raise OffsetBeyondEnd(min_physical_offset, end=end, field="min_physical_offset")

    def _trimmed(self, queue_file_count: int, index_file_count: int, own_bytes: int = 0) -> Trimmed:
        queue_bytes = queue_file_count * self._queues.file_size_bytes
        index_bytes = index_file_count * self._index.file_size_bytes
        return Trimmed(queue_file_count, index_file_count, queue_bytes + index_bytes, own_bytes)


def _allocated_bytes(fs: Fs, directories: Collection[Path], leaving: Collection[Path]) -> int:
    """Return the disk space of all files below these directories, without files that are about to be removed.

    It is less than their sizes. Blocks; files may be created and removed meanwhile.
    """
    total_bytes = 0
    for path in _files_below(fs, directories):
        if path not in leaving:
            with contextlib.suppress(FileNotFoundError):
                total_bytes += fs.allocated_bytes(path)
    return total_bytes


def _files_below(fs: Fs, directories: Collection[Path]) -> Iterator[Path]:
    for directory in directories:
        names: list[str] = []
        with contextlib.suppress(FileNotFoundError, NotADirectoryError):
            names = fs.list(directory)
        for path in (directory / name for name in names):
            if fs.is_directory(path):
                yield from _files_below(fs, [path])
            else:
                yield path
