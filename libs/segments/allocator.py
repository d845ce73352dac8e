# SPDX-License-Identifier: Apache-2.0
"""SegmentAllocator: creates the next file of a chain before it is needed, in its own thread.

Invariants: at most a single file is prepared ahead. Callers: the chain's writer. A failure ahead of time is no failure:
when the writer needs the file, it tries again itself, because space may have become free meanwhile.
With `warms` the thread also makes the pages of each file present and locks them in memory, so that no append waits for
a page; the writer does not wait for this either. A segment that is not written any more is unlocked.
RocketMQ's counterparts are AllocateMappedFileService and DefaultMappedFile.warmMappedFile, which writes a byte into
each page for the same purpose. After a crash a prepared file stays, full of zeros.
"""

import logging
from concurrent.futures import Future
from pathlib import Path

from libs.machine.fs import Fs, MappedFile
from libs.machine.workers import workers
from libs.segments.segment import Segment

_log = logging.getLogger(__name__)


class SegmentAllocator:
    """The allocator of a chain. It prepares a file ahead; `allocate` returns it."""

    def __init__(self, fs: Fs, size_bytes: int, *, warms: bool = False) -> None:
        self._fs = fs
        self._size_bytes = size_bytes
        self._warms = warms
        self._warming: Future[None] | None = None
        self._executor = workers().one_thread("segment-allocator")
        self._path: Path | None = None
        self._prepared: Future[MappedFile] | None = None

    @property
    def prepared_path(self) -> Path | None:
        """Path of the file that is prepared ahead. None without such a file."""
        return self._path

    def prepare(self, path: Path) -> None:
        """Begin to create this file. A file that was prepared under another name is discarded."""
        if path == self._path:
            return
        self.discard()
        self._path = path
        self._prepared = self._executor.submit(self._fs.create_mapped, path, self._size_bytes)
        if self._warms:
            self._warming = self._executor.submit(self._warm_prepared, self._prepared)

    def allocate(self, path: Path) -> MappedFile:
        """Return the file of this name, and create it now if it was not prepared. Raises DiskFull."""
        if path == self._path and self._prepared is not None:
            prepared, self._path, self._prepared = self._prepared, None, None
            if prepared.exception() is None:
                return prepared.result()
        mapped = self._fs.create_mapped(path, self._size_bytes)
        if self._warms:
            self._executor.submit(self._warm, mapped)
        return mapped

    def retire(self, segment: Segment) -> None:
        """Unlock the pages of a segment that is not written any more."""
        if self._warms:
            self._executor.submit(segment.unlock)

    def discard(self) -> None:
        """Remove the prepared file, if `allocate` has not returned it."""
        prepared, path, self._path, self._prepared = self._prepared, self._path, None, None
        if self._warming is not None:
            self._warming.result()
        if prepared is not None and path is not None and prepared.exception() is None:
            prepared.result().close()
            self._fs.remove(path)

    def wait(self) -> None:
        """Wait until all work of the thread is done."""
        self._executor.submit(lambda: None).result()

    def close(self) -> None:
        """Discard the prepared file and end the thread."""
        self.discard()
        self._executor.shutdown()

    def _warm_prepared(self, prepared: Future[MappedFile]) -> None:
        if prepared.exception() is None:
            self._warm(prepared.result())

    def _warm(self, mapped: MappedFile) -> None:
        mapped.populate(0, mapped.size_bytes)
        try:
            mapped.lock()
        except OSError as error:
            _log.warning("%s is warm, but its pages may be dropped again: %s", mapped.path, error.strerror)
