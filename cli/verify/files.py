# SPDX-License-Identifier: Apache-2.0
"""Reading a store's files in pieces, without mapping them: a bad sector is an error here, never the end of the process.

Files are only read. A few stay open, the least recently used are closed. One thread.
"""

from __future__ import annotations

import errno
import os
from collections import OrderedDict
from collections.abc import Iterator
from pathlib import Path
from typing import Self

OPEN_FILE_COUNT_MAX = 256
WINDOW_BYTES = 4 << 20
_ZEROS = bytes(WINDOW_BYTES)


class Files:
    """Opens files on demand. Raises OSError for what can't be read."""

    def __init__(self) -> None:
        self._descriptors: OrderedDict[Path, int] = OrderedDict()

    def read(self, path: Path, position: int, size_bytes: int) -> bytes:
        """Return the bytes from a position on, fewer at the end of the file, and none behind it."""
        return os.pread(self._descriptor(path), size_bytes, position)

    def read_into(self, path: Path, position: int, target: memoryview) -> int:
        """Fill the target from a position on. Returns the bytes read, fewer than asked only at the end of the file."""
        descriptor, filled = self._descriptor(path), 0
        while filled < len(target):
            count = os.preadv(descriptor, [target[filled:]], position + filled)
            if count == 0:
                break
            filled += count
        return filled

    def windows(self, path: Path, start: int, end: int) -> Iterator[tuple[int, bytes]]:
        """Yield position and bytes of the pieces of [start, end) that have a byte other than zero."""
        for range_start, range_end in self._data_ranges(path, start, end):
            for position in range(range_start, range_end, WINDOW_BYTES):
                window_end = min(position + WINDOW_BYTES, range_end)
                window = self.read(path, position, window_end - position)
                if not _is_zero(window):
                    yield position, window

    def first_nonzero(self, path: Path, start: int, end: int) -> int | None:
        """Return the position of the first byte of [start, end) that is not zero, or None."""
        for position, window in self.windows(path, start, end):
            stripped = window.lstrip(b"\0")
            if stripped:
                return position + len(window) - len(stripped)
        return None

    def content_end(self, path: Path, start: int, end: int) -> int:
        """Return the position behind the last byte of [start, end) that is not zero, or `start` if there is none."""
        for range_start, range_end in reversed(self._data_ranges(path, start, end)):
            for window_end in range(range_end, range_start, -WINDOW_BYTES):
                window_start = max(range_start, window_end - WINDOW_BYTES)
                window = self.read(path, window_start, window_end - window_start)
                if not _is_zero(window):
                    return window_start + len(window.rstrip(b"\0"))
        return start

    def close(self) -> None:
        """Close all files."""
        while self._descriptors:
            os.close(self._descriptors.popitem()[1])

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _descriptor(self, path: Path) -> int:
        if (descriptor := self._descriptors.get(path)) is not None:
            self._descriptors.move_to_end(path)
            return descriptor
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        self._descriptors[path] = descriptor
        if len(self._descriptors) > OPEN_FILE_COUNT_MAX:
            os.close(self._descriptors.popitem(last=False)[1])
        return descriptor

    def _data_ranges(self, path: Path, start: int, end: int) -> list[tuple[int, int]]:
        descriptor = self._descriptor(path)
        end = min(end, os.fstat(descriptor).st_size)
        ranges: list[tuple[int, int]] = []
        position = start
        while position < end:
            try:
                data_start = os.lseek(descriptor, position, os.SEEK_DATA)
                position = os.lseek(descriptor, data_start, os.SEEK_HOLE)
            except OSError as error:
                if error.errno == errno.ENXIO:  # only a hole up to the end
                    break
                if error.errno in (errno.EINVAL, errno.EOPNOTSUPP):  # the file system does not know
                    return [(start, end)]
                raise
            if data_start < end:
                ranges.append((data_start, min(position, end)))
        return ranges


def _is_zero(window: bytes) -> bool:
    """Compare with zeros, which is many times as fast as looking for the first other byte."""
    return window == _ZEROS[: len(window)]
