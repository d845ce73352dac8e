# SPDX-License-Identifier: Apache-2.0
"""SharedChunks: the chunks that were sent last, for the other followers that need the same bytes.

A chunk is copied out of its segment and summed once, and all streams send the same bytes by reference. A stream that
stands where a kept chunk begins takes its end, so that the followers stay at the same ends.
Invariants: at most SHARED_BYTES_MAX are kept, the oldest are dropped first; nothing is kept for a single follower.
Callers: the loop that owns the log.
"""

from collections import OrderedDict

from services.commitlog.engine.replicate.steps import Chunk

SHARED_BYTES_MAX = 16 << 20
"""A default window: a follower that is further behind reads the log itself."""
SHARED_SIZE_BYTES_MIN = 64 << 10
"""Smaller chunks cost less than the work for a further chunk, so a larger chunk is made instead."""


class SharedChunks:
    """The kept chunks of a log, by their first byte."""

    def __init__(self) -> None:
        self._by_start: OrderedDict[int, Chunk] = OrderedDict()
        self._is_needed = False
        self.size_bytes = 0
        """Bytes of all kept chunks."""

    def note_followers(self, count: int) -> None:
        """Record how many followers have a stream."""
        self._is_needed = count > 1
        if not self._is_needed:
            self._by_start.clear()
            self.size_bytes = 0

    def find(self, start_physical_offset: int) -> Chunk | None:
        """Return the kept chunk that begins at an offset, or None."""
        return self._by_start.get(start_physical_offset)

    def keep(self, chunk: Chunk) -> None:
        """Keep a chunk, in place of an earlier chunk with the same first byte."""
        if not self._is_needed:
            return
        former = self._by_start.pop(chunk.start_physical_offset, None)
        self.size_bytes += len(chunk.data) - (len(former.data) if former else 0)
        self._by_start[chunk.start_physical_offset] = chunk
        while self.size_bytes > SHARED_BYTES_MAX:
            _, oldest = self._by_start.popitem(last=False)
            self.size_bytes -= len(oldest.data)
