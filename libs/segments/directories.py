# SPDX-License-Identifier: Apache-2.0
"""SegmentDirectories: the directories of a chain that has several, on disks of their own, and where its next file goes.

The files of all directories together are the chain; each has its place by its name alone. New files go round the
directories, past those whose disk is full as long as there are others. Read-only means that no new file is put there:
the old ones are read, the last one is written to its end, and they are deleted as any other.
Callers: the chain's writer; whoever watches the disks sets `full`.
Rules: RocketMQ's MultiPathMappedFileQueue, storePathCommitLog and readOnlyCommitLogStorePaths. Unlike there, a disk
that turns out to have no room for a file, or to accept none, is passed, too.
"""

from collections import Counter
from collections.abc import Sequence
from pathlib import Path


class SegmentDirectories:
    """At least one writable directory, and no directory twice."""

    def __init__(self, writable: Sequence[Path], read_only: Sequence[Path] = ()) -> None:
        assert writable
        self.writable = tuple(sorted(writable, key=str))
        self.read_only = tuple(read_only)
        self.full: frozenset[Path] = frozenset()
        """Directories that new files should stay away from."""
        self.counts: Counter[Path] = Counter()
        """Files of the chain in each directory; the chain counts them."""

    @property
    def all(self) -> tuple[Path, ...]:
        """Every directory that may have files."""
        return (*self.writable, *self.read_only)

    @property
    def used(self) -> list[Path]:
        """The directories that have files of the chain, or get new ones."""
        return [directory for directory in self.all if directory in self.writable or self.counts[directory] > 0]

    def candidates(self, number: int) -> list[Path]:
        """Return the directories for the file with this number, counted from 0 by offset, the best one first."""
        roomy = [directory for directory in self.writable if directory not in self.full]
        order = roomy or list(self.writable)
        first = number % len(order)
        rest = [directory for directory in self.writable if directory not in order]
        return [*order[first:], *order[:first], *rest]
