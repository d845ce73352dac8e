# SPDX-License-Identifier: Apache-2.0
"""MapBudget: bounds how many segments are mapped: the kernel limits a process to some 65,000 mappings.

Invariants: a segment that is held or has unsynced bytes stays mapped; any other may lose its mapping when another one
needs the place, and is mapped again on its next touch. Views that were handed out stay valid through all of it, so an
eviction is never seen by a reader. Eviction is second chance: a segment that was touched since the last round stays.
One budget may serve many chains. Safe to use from any thread.
Not handled: more unsynced segments than the bound. Who writes to many chains syncs in time (ConsumeQueueTable).
"""

from __future__ import annotations

from collections import deque
from typing import Protocol

from libs.machine.workers import workers

MAPPED_COUNT_MAX = 256
"""Default of a chain that has a budget of its own: 256 GiB of log at the usual segment size."""


class Mapped(Protocol):
    """A segment, as its budget sees it."""

    is_touched: bool

    def try_unmap(self) -> bool:
        """Unmap unless the segment is held or has unsynced bytes. Returns whether it is unmapped."""
        ...


class MapBudget:
    """Keeps at most `mapped_count_max` segments mapped, as far as those in use allow."""

    def __init__(self, mapped_count_max: int = MAPPED_COUNT_MAX) -> None:
        assert mapped_count_max > 0
        self.mapped_count_max = mapped_count_max
        self.lock = workers().lock()
        self._mapped: deque[Mapped] = deque()

    @property
    def mapped_count(self) -> int:
        """Segments that are mapped now."""
        return len(self._mapped)

    def admit(self, segment: Mapped) -> None:
        """Count a segment that was just mapped, and make room for it. The caller holds `lock`."""
        for _ in range(2 * len(self._mapped)):
            if len(self._mapped) < self.mapped_count_max:
                break
            candidate = self._mapped.popleft()
            if candidate.is_touched or not candidate.try_unmap():
                candidate.is_touched = False
                self._mapped.append(candidate)
        self._mapped.append(segment)

    def forget(self, segment: Mapped) -> None:
        """Stop counting a segment that was closed. The caller holds `lock`."""
        self._mapped.remove(segment)
