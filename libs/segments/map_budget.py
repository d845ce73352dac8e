# SPDX-License-Identifier: Apache-2.0
"""MapBudget: bounds the number of mapped segments: the kernel limits a process to some 65,000 mappings.

Invariants: a segment that is held or has unsynced bytes stays mapped; any other segment may lose its mapping when
another segment needs the place, and is mapped again on its next touch. Existing views stay valid, so a reader never
notices an eviction. Eviction is second chance: a segment that was touched since the last round stays.
A budget may serve many chains. Safe to use from any thread.
Not handled: more unsynced segments than the bound. A writer to many chains syncs in time (ConsumeQueueTable).
"""

from __future__ import annotations

from collections import deque
from typing import Protocol

from libs.machine.workers import workers

MAPPED_COUNT_MAX = 256
"""Default of a chain with its own budget: 256 GiB of log at the usual segment size."""


class MappedSegment(Protocol):
    """A segment, as its budget sees it."""

    is_touched: bool

    def try_unmap(self) -> bool:
        """Unmap unless the segment is held or has unsynced bytes. Returns whether it is unmapped."""
        ...


class MapBudget:
    """A limit of mapped segments: at most `mapped_count_max`, if the segments in use allow it."""

    def __init__(self, mapped_count_max: int = MAPPED_COUNT_MAX) -> None:
        assert mapped_count_max > 0
        self.mapped_count_max = mapped_count_max
        self.lock = workers().lock()
        self._mapped: deque[MappedSegment] = deque()

    @property
    def mapped_count(self) -> int:
        """Number of segments that are mapped now."""
        return len(self._mapped)

    def admit(self, segment: MappedSegment) -> None:
        """Count a segment that was just mapped, and make room for it. The caller holds `lock`."""
        for _ in range(2 * len(self._mapped)):
            if len(self._mapped) < self.mapped_count_max:
                break
            candidate = self._mapped.popleft()
            if candidate.is_touched or not candidate.try_unmap():
                candidate.is_touched = False
                self._mapped.append(candidate)
        self._mapped.append(segment)

    def forget(self, segment: MappedSegment) -> None:
        """Stop counting a segment that was closed. The caller holds `lock`."""
        self._mapped.remove(segment)
