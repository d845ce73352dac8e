# SPDX-License-Identifier: Apache-2.0
"""Makes many queues durable as one work of the disk, in place of a sync for each file and each directory.

The file system is written as a whole (`Fs.write_back`), and then each file is asked for a write that failed. So a
failed write is seen as by the file's own sync. Where the file system is not known to do this, nothing is claimed.
Callers: a worker thread. Decision: docs/decisions/0077-many-queues-in-memory.md.
"""

import asyncio
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

from libs.machine.failpoints import failpoint
from libs.machine.fs import Fs
from libs.segments.errors import SyncFailed
from services.indexer.engine.tables.queue import ConsumeQueue

COUNT_MIN = 256
"""Queues and new names from which on this costs less than a sync for each. It also writes the unsynced bytes that
others have on the file system."""


class Together:
    """Syncs of the queues below a directory."""

    def __init__(self, fs: Fs, directory: Path, mapped_file_count_max: int) -> None:
        self._fs = fs
        self._directory = directory
        self._count_min = min(COUNT_MIN, mapped_file_count_max)
        self._file_count_max = max(1, mapped_file_count_max // 8)
        """Files that are mapped at the same time to write units from memory."""

    async def sync(self, queues: Sequence[ConsumeQueue], new: Sequence[ConsumeQueue]) -> bool:
        """Make the queues of `begin_sync`, and the names of new queues, durable in a worker thread, if they are many.

        Returns False if each must be synced by itself. Raises SyncFailed.
        """
        return len(queues) + len(new) >= self._count_min and await asyncio.to_thread(self._sync, queues)

    def _sync(self, queues: Sequence[ConsumeQueue]) -> bool:
        step = self._file_count_max
        for start in range(0, max(1, len(queues)), step):
            with ExitStack() as held:
                part = queues[start : start + step]
                for queue in part:
                    held.enter_context(queue.units_in_file())
                ends = [(segment, segment.committed_position) for queue in part for segment in queue.unsynced_files()]
                if not _write_back(self._fs, self._directory):
                    return False
                for segment, end in ends:
                    segment.confirm(end)
        return True

    def sync_names(self, queues: Sequence[ConsumeQueue]) -> None:
        """Make the names of these new queues durable, each directory once. Blocks. Raises SyncFailed."""
        directories = [queue.directory for queue in queues]
        topics = dict.fromkeys(directory.parent for directory in directories)
        for directory in (*directories, *topics, *([self._directory] if topics else [])):
            _sync_directory(self._fs, directory)


def sync_directories(fs: Fs, root: Path, directories: Sequence[Path]) -> None:
    """Make the names in these directories below `root` durable. Raises SyncFailed."""
    if len(directories) >= COUNT_MIN and _write_back(fs, root):
        return
    for directory in directories:
        _sync_directory(fs, directory)


def _sync_directory(fs: Fs, directory: Path) -> None:
    failpoint("queue.before_names_sync")
    try:
        fs.sync_directory(directory)
    except OSError as error:
        raise _failed(directory, error) from error
    failpoint("queue.after_names_sync")


def _write_back(fs: Fs, directory: Path) -> bool:
    try:
        return fs.write_back(directory)
    except OSError as error:
        raise _failed(directory, error) from error


def _failed(path: Path, error: OSError) -> SyncFailed:
    return SyncFailed(path=path, position=0, reason=error.strerror or str(error))
