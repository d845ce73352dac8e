# SPDX-License-Identifier: Apache-2.0
"""SegmentAllocator: makes the next file of a chain before it is needed, in a thread of its own.

Invariants: at most one file is prepared ahead. Callers: the chain's writer. A failure ahead of time is no failure: the
writer meets it when it needs the file, and tries once more itself, because space may have become free meanwhile.
RocketMQ's counterpart is AllocateMappedFileService. After a crash a prepared file stays, full of zeros.
"""

from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

from libs.machine.fs import Fs, MappedFile


class SegmentAllocator:
    """Prepares one file ahead; `take` gives it out."""

    def __init__(self, fs: Fs, size_bytes: int) -> None:
        self._fs = fs
        self._size_bytes = size_bytes
        self._executor = ThreadPoolExecutor(max_workers=1, thread_name_prefix="segment-allocator")
        self._path: Path | None = None
        self._prepared: Future[MappedFile] | None = None

    def prepare(self, path: Path) -> None:
        """Begin to make this file. A file that was prepared under another name is discarded."""
        if path == self._path:
            return
        self.discard()
        self._path = path
        self._prepared = self._executor.submit(self._fs.create_mapped, path, self._size_bytes)

    def take(self, path: Path) -> MappedFile:
        """Give out the file of this name, made now if it was not prepared. Raises DiskFull."""
        if path == self._path and self._prepared is not None:
            prepared, self._path, self._prepared = self._prepared, None, None
            if prepared.exception() is None:
                return prepared.result()
        return self._fs.create_mapped(path, self._size_bytes)

    def discard(self) -> None:
        """Remove the file that was prepared and not taken."""
        prepared, path, self._path, self._prepared = self._prepared, self._path, None, None
        if prepared is not None and path is not None and prepared.exception() is None:
            prepared.result().close()
            self._fs.remove(path)

    def close(self) -> None:
        """Discard what is prepared and end the thread."""
        self.discard()
        self._executor.shutdown()
