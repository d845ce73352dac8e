# SPDX-License-Identifier: Apache-2.0
"""Ballast: a file of zeros. It gives its space away when a full disk would refuse a necessary write of a service.

A start writes `abort` and the next epoch. Only a deletion makes room again, and it first records the facts that only
the deleted files contain. On a disk without a free byte, both would fail for ever, although nothing is wrong.
So a service keeps some space in a file. It empties the file for the time of such a step, and then occupies the free
space again at once: small files replace older files, so nearly all of the space comes back. The file grows beyond its
former size only if the reserve stays free.
Invariants: an empty file has given its space away, so a crash in between costs nothing: the next `occupy` restores the
file. Otherwise the content has no meaning; removing the file loses only this reserve, until there is plenty of room.
Callers: CommitLog and Indexer, each with its own file, from any thread. RocketMQ has no counterpart.
"""

import contextlib
import logging
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

from libs.machine.errors import DiskFull
from libs.machine.fs import Fs
from libs.machine.workers import workers
from libs.segments.errors import StoreFull

SECTOR_SIZE_BYTES = 512
"""When a part of at most this size does not fit, the rest of the space stays free."""

_log = logging.getLogger(__name__)


class Ballast:
    """The file at `path`, of `size_bytes` if it and `reserve_bytes` more have room. 0 means no file.

    All methods block. None raises OSError: a caller that lacks space gets the error at its own write.
    """

    def __init__(self, fs: Fs, path: Path, *, size_bytes: int, reserve_bytes: int) -> None:
        self._fs = fs
        self._path = path
        self._size_bytes = size_bytes
        self._reserve_bytes = reserve_bytes
        self._mutex = threading.Lock()
        self._makers = workers().condition()
        self._maker_count = 0
        self._is_given = False

    def roomy_fs(self) -> Fs:
        """Return the file system for necessary small files: its `write_atomic` gives space away if needed."""
        return cast("Fs", _RoomyFs(self._fs, self))

    @contextlib.contextmanager
    def given_way(self) -> Iterator[None]:
        """Give the space away for the time of a block, and occupy it again, unless another thread already does this."""
        with self._alone() as is_mine:
            if not is_mine:
                yield
                return
            with self._makers:
                self._is_given = True
                self._makers.wait_for(lambda: self._maker_count == 0)
            try:
                self._give_way()
                yield
            finally:
                self._occupy()
                self._is_given = False

    @contextlib.contextmanager
    def spared(self) -> Iterator[None]:
        """Permit the creation of files that may fill the disk within this block. They get no space from `given_way`.

        `given_way` waits for such blocks to end. Raises StoreFull while the space is given away.
        """
        with self._makers:
            if self._is_given:
                raise StoreFull(path=self._path, needed_bytes=self._size_bytes)
            self._maker_count += 1
        try:
            yield
        finally:
            with self._makers:
                self._maker_count -= 1
                self._makers.notify_all()

    def give_way(self) -> None:
        """Empty the file if less space is free than the whole file occupies."""
        with self._alone() as is_mine:
            if is_mine:
                self._give_way()

    def occupy(self) -> None:
        """Occupy the given space again, or grow if there is plenty of room, or shrink to the configured size."""
        with self._alone() as is_mine:
            if is_mine:
                self._occupy()

    @contextlib.contextmanager
    def _alone(self) -> Iterator[bool]:
        """Yield whether no other thread changes the file while the block lasts. Threads do not wait for each other."""
        is_mine = self._mutex.acquire(blocking=False)
        try:
            yield is_mine
        finally:
            if is_mine:
                self._mutex.release()

    def _give_way(self) -> None:
        with _warned():
            whole_bytes = max(self._size_bytes, self._size())
            if self._size() and self._fs.disk_usage(self._path.parent).free_bytes < whole_bytes:
                _log.warning("the disk is full: %s gives way", self._path)
                self._empty()

    def _occupy(self) -> None:
        with _warned():
            if self._fs.is_directory(self._path.parent):
                self._resize()

    def _resize(self) -> None:
        if self._size_bytes == 0:
            self._remove()
            return
        if self._size() > self._size_bytes:
            self._empty()
        has_given_way = self._size() == 0 and self._fs.exists(self._path)
        room_bytes = self._size() + self._fs.disk_usage(self._path.parent).free_bytes
        if has_given_way or room_bytes >= self._size_bytes + self._reserve_bytes:
            self._grow()

    def _size(self) -> int:
        return self._fs.size(self._path) if self._fs.exists(self._path) else 0

    def _grow(self) -> None:
        """Append the missing bytes, in smaller and smaller parts when the disk has no room for larger ones."""
        part_bytes = self._size_bytes
        while (missing_bytes := self._size_bytes - self._size()) > 0:
            part_bytes = min(part_bytes, missing_bytes)
            try:
                self._fs.append(self._path, bytes(part_bytes))
            except DiskFull:
                if part_bytes <= SECTOR_SIZE_BYTES:
                    return
                part_bytes //= 2

    def _empty(self) -> None:
        try:
            self._fs.write_atomic(self._path, b"")
        except DiskFull:  # no room even for a name: without the file, only plenty of room restores it
            self._remove()

    def _remove(self) -> None:
        if self._fs.exists(self._path):
            self._fs.remove(self._path)
            self._fs.sync_directory(self._path.parent)  # until then the blocks may not be used again


class _RoomyFs:
    """See `Ballast.roomy_fs`."""

    def __init__(self, fs: Fs, ballast: Ballast) -> None:
        self._fs = fs
        self._ballast = ballast

    def __getattr__(self, name: str) -> Any:
        return getattr(self._fs, name)

    def write_atomic(self, path: Path, data: bytes) -> None:
        try:
            self._fs.write_atomic(path, data)
        except DiskFull:
            with self._ballast.given_way():
                self._fs.write_atomic(path, data)


@contextlib.contextmanager
def _warned() -> Iterator[None]:
    try:
        yield
    except OSError as error:
        _log.warning("the ballast stays as it is: %s", error)
