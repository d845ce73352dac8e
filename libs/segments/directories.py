# SPDX-License-Identifier: Apache-2.0
"""SegmentDirectories: the directories of a chain on several disks, and the directory of its next file.

The files of all directories together are the chain; the name of a file alone gives its place. New files use the
directories in turn. Directories on full disks are skipped as long as there are others. Read-only means that a directory
gets no new files: its files are read, the last file is written to its end, and they are deleted like any other.
Callers: the chain's writer; the watch of the disks sets `full`.
Rules: RocketMQ's MultiPathMappedFileQueue, storePathCommitLog and readOnlyCommitLogStorePaths. Unlike there, a disk
that has no room for a file, or accepts none, is skipped, too.
"""

from collections import Counter
from collections.abc import Sequence
from pathlib import Path


class SegmentDirectories:
    """The directories of a chain: at least a writable directory, and no directory twice."""

    def __init__(self, writable: Sequence[Path], read_only: Sequence[Path] = ()) -> None:
        assert writable
        self.writable = tuple(sorted(writable, key=str))
        self.read_only = tuple(read_only)
        self.full: frozenset[Path] = frozenset()
        """Directories that should get no new files."""
        self.counts: Counter[Path] = Counter()
        """Number of files of the chain in each directory; the chain updates it."""

    @property
    def all(self) -> tuple[Path, ...]:
        """Every directory that may have files."""
        return (*self.writable, *self.read_only)

    @property
    def used(self) -> list[Path]:
        """The directories that have files of the chain, or get new files."""
        return [directory for directory in self.all if directory in self.writable or self.counts[directory] > 0]

    def candidates(self, number: int) -> list[Path]:
        """Return the directories for the file with this number, counted from 0 by offset, the best directory first."""
        roomy = [directory for directory in self.writable if directory not in self.full]
        order = roomy or list(self.writable)
        first = number % len(order)
        rest = [directory for directory in self.writable if directory not in order]
        return [*order[first:], *order[:first], *rest]
