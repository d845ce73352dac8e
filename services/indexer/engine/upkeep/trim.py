# SPDX-License-Identifier: Apache-2.0
"""Trim: forgets what the Janitor gave up, and tells what that would be.

Invariants: nothing is trimmed past what is indexed; the files go with the next round of FlushLoop, once progress says
so. Callers: the event loop's thread.
"""

import asyncio
from dataclasses import dataclass

from libs.machine.fs import DiskUsage, Fs
from services.indexer.engine.follow.indexes import Indexes
from services.indexer.engine.tables.disk_share import allocated_bytes
from services.indexer.errors import OffsetBeyondEnd


@dataclass(frozen=True, slots=True)
class Trimmed:
    """What a trim removed, or would."""

    queue_file_count: int
    index_file_count: int
    freed_bytes: int
    own_bytes: int = 0
    """Bytes of all files of the indexes, if nothing was removed."""


class Trim:
    """The trims of one Indexer."""

    def __init__(self, fs: Fs, indexes: Indexes) -> None:
        self._fs = fs
        self._indexes = indexes
        self._queues, self._index = indexes.queues, indexes.index

    def trim(self, min_physical_offset: int) -> Trimmed:
        """Forget all records below an offset, at most up to what is indexed. Raises OffsetBeyondEnd."""
        self._check_indexed(min_physical_offset)
        return self._trimmed(self._queues.trim(min_physical_offset), self._index.trim(min_physical_offset))

    async def would_trim(self, min_physical_offset: int) -> Trimmed:
        """What `trim` would remove, and what there is; removes nothing. Raises OffsetBeyondEnd."""
        self._check_indexed(min_physical_offset)
        leaving = self._queues.expired_paths() | self._index.expired_paths()
        directories = (self._queues.directory, self._index.directory)
        own_bytes = await asyncio.to_thread(allocated_bytes, self._fs, directories, leaving)
        queue_file_count = self._queues.trimmable_count(min_physical_offset)
        return self._trimmed(queue_file_count, self._index.trimmable_count(min_physical_offset), own_bytes)

    async def disk_usage(self) -> DiskUsage:
        """The file system of the indexes; zeros if it can't be told."""
        try:
            return await asyncio.to_thread(self._fs.disk_usage, self._queues.directory.parent)
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
