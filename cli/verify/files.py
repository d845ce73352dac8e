# SPDX-License-Identifier: Apache-2.0
"""Reading a store's files in pieces, without mapping them: a bad sector is an error here, never the end of the process.

Files are only read. A few stay open, the least recently used are closed. Callers: a single thread.
"""

from __future__ import annotations

import os
from collections import OrderedDict
from collections.abc import Iterator
from pathlib import Path

from libs.machine.posix_fs import data_ranges

OPEN_FILE_COUNT_MAX = 256
WINDOW_BYTES = 4 << 20
_ZEROS = bytes(WINDOW_BYTES)


class Files:
    """Opens files on demand. Raises OSError for a file that can't be read."""

    def __init__(self) -> None:
        self._descriptors: OrderedDict[Path, int] = OrderedDict()

    def read(self, path: Path, position: int, size_bytes: int) -> bytes:
        """Return the bytes from a position on, fewer at the end of the file, and none behind it."""
        return os.pread(self._descriptor(path), size_bytes, position)

    def first_nonzero(self, path: Path, start: int, end: int) -> int | None:
        """Return the position of the first byte of [start, end) that is not zero, or None."""
        for position, window in self._windows(path, start, end):
            return position + len(window) - len(window.lstrip(b"\0"))
        return None

    def content_end(self, path: Path, start: int, end: int) -> int:
        """Return the position behind the last byte of [start, end) that is not zero, or `start` if there is none."""
        for position, window in self._windows(path, start, end, is_backwards=True):
            return position + len(window.rstrip(b"\0"))
        return start

    def close(self) -> None:
        """Close all files."""
        while self._descriptors:
            os.close(self._descriptors.popitem()[1])

    def _descriptor(self, path: Path) -> int:
        if (descriptor := self._descriptors.get(path)) is not None:
            self._descriptors.move_to_end(path)
            return descriptor
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        self._descriptors[path] = descriptor
        if len(self._descriptors) > OPEN_FILE_COUNT_MAX:
            os.close(self._descriptors.popitem(last=False)[1])
        return descriptor

    def _windows(self, path: Path, start: int, end: int, *, is_backwards: bool = False) -> Iterator[tuple[int, bytes]]:
        """Yield position and bytes of the pieces of [start, end) that have a byte other than zero."""
        pieces = [
            (position, min(position + WINDOW_BYTES, range_end, end))
            for range_start, range_end in data_ranges(self._descriptor(path), start, end)
            for position in range(range_start, min(range_end, end), WINDOW_BYTES)
        ]
        for piece_start, piece_end in reversed(pieces) if is_backwards else pieces:
            window = self.read(path, piece_start, piece_end - piece_start)
            # To compare with zeros is many times as fast as to look for the first other byte.
            if window != _ZEROS[: len(window)]:
                yield piece_start, window
