# SPDX-License-Identifier: Apache-2.0
"""Ballast: a file of zeros that gives way when a start, a stop or a deletion finds the disk full.

A start must write: `abort`, the next epoch, a copy of a torn tail. A deletion, which alone makes room again, must first
write down what only the deleted files told. On a disk that somebody filled to the last byte both would fail for ever,
although nothing is wrong. So a service keeps some space for itself in a file, gives it up for the time of such a step
when little else is free, and takes it again at once, as much of it as there is: small files replace older ones, so
nearly all of it comes back. It grows only where that leaves the reserve.
Invariants: the file has no meaning and may be missing, or smaller than configured, at any time; whoever removes it by
hand loses that reserve alone. Callers: CommitLog and Indexer, each with a file of its own, one thread at a time.
RocketMQ has nothing of the kind.
"""

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

from libs.machine.errors import DiskFull
from libs.machine.fs import Fs

_log = logging.getLogger(__name__)


class Ballast:
    """The file at `path`, of `size_bytes` when there is room for it and `reserve_bytes` more; 0 is none.

    The methods that are not asynchronous block. None raises OSError: who lacks space meets that at its own write.
    """

    def __init__(self, fs: Fs, path: Path, *, size_bytes: int, reserve_bytes: int) -> None:
        self._fs = fs
        self._path = path
        self._size_bytes = size_bytes
        self._reserve_bytes = reserve_bytes
        self._given_bytes = 0

    @contextlib.contextmanager
    def given_way(self) -> Iterator[None]:
        """`give_way` and `take` around a block."""
        self.give_way()
        try:
            yield
        finally:
            self.take()

    @contextlib.asynccontextmanager
    async def giving_way(self) -> AsyncIterator[None]:
        """`given_way` around a block of an event loop, which is not blocked."""
        await asyncio.to_thread(self.give_way)
        try:
            yield
        finally:
            await asyncio.to_thread(self.take)

    def give_way(self) -> None:
        """Go, if less space is free than this takes when it is whole."""
        with _warned():
            if self._fs.exists(self._path) and self._fs.disk_usage(self._path.parent).free_bytes < self._size_bytes:
                _log.warning("the disk is full: %s gives way", self._path)
                self._given_bytes = self._fs.size(self._path)
                self._remove()

    def take(self) -> None:
        """Take back what was given, or grow if there is plenty of room; also shrink to what is configured."""
        with _warned():
            if self._fs.is_directory(self._path.parent):
                self._resize()

    def _resize(self) -> None:
        has_bytes = self._fs.size(self._path) if self._fs.exists(self._path) else 0
        room_bytes = has_bytes + self._fs.disk_usage(self._path.parent).free_bytes
        is_plenty = room_bytes >= self._size_bytes + self._reserve_bytes
        wanted_bytes = self._size_bytes if is_plenty else max(has_bytes, self._given_bytes)
        self._given_bytes = 0
        size_bytes = min(self._size_bytes, wanted_bytes, room_bytes)
        if size_bytes == has_bytes:
            return
        if has_bytes:
            self._remove()
        while size_bytes > 0:
            try:
                self._fs.create_mapped(self._path, size_bytes).close()
            except DiskFull:  # the file system needs some of it for itself
                size_bytes //= 2
            else:
                return

    def _remove(self) -> None:
        self._fs.remove(self._path)
        self._fs.sync_directory(self._path.parent)  # until then the blocks may not be used again


@contextlib.contextmanager
def _warned() -> Iterator[None]:
    try:
        yield
    except OSError as error:
        _log.warning("the ballast stays as it is: %s", error)
