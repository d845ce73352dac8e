# SPDX-License-Identifier: Apache-2.0
"""What of a file system is the Indexer's own: the blocks of its files, however large they look."""

import contextlib
from collections.abc import Collection, Iterable, Iterator
from pathlib import Path

from libs.machine.fs import Fs


def allocated_bytes(fs: Fs, directories: Iterable[Path], leaving: Collection[Path]) -> int:
    """Bytes of the disk that all files below these directories take, but for those that are about to be removed.

    Blocks; files may come and go meanwhile.
    """
    total_bytes = 0
    for path in _files_below(fs, directories):
        if path not in leaving:
            with contextlib.suppress(FileNotFoundError):
                total_bytes += fs.allocated_bytes(path)
    return total_bytes


def _files_below(fs: Fs, directories: Iterable[Path]) -> Iterator[Path]:
    for directory in directories:
        names: list[str] = []
        with contextlib.suppress(FileNotFoundError, NotADirectoryError):
            names = fs.list(directory)
        for path in (directory / name for name in names):
            if fs.is_directory(path):
                yield from _files_below(fs, [path])
            else:
                yield path
