# SPDX-License-Identifier: Apache-2.0
"""TransientStorePool: buffers of the size of a segment. A segment is written there before its bytes reach its file.

Invariants: the buffers are allocated once, at the start, and used again and again; a borrowed buffer belongs to a
single segment until all of that segment is in its file. The buffers' pages are locked in memory, so that no append
waits for a page; if the process may not lock so much they are only made present, and a warning names the limit.
Bytes that are only in a buffer are lost with the process. Callers: SegmentChain and Segment, from any thread.
RocketMQ's counterpart is TransientStorePool.
"""

import logging
from collections import deque

from libs.machine import memory

_log = logging.getLogger(__name__)


class TransientStorePool:
    """A pool of `buffer_count` buffers of `size_bytes`. The constructor blocks about 0.2 s per GiB. Raises OSError."""

    def __init__(self, buffer_count: int, size_bytes: int) -> None:
        assert buffer_count > 0
        self.size_bytes = size_bytes
        self.is_locked = True
        self._free: deque[memoryview] = deque()
        for _ in range(buffer_count):
            buffer = self._allocate(buffer_count)
            if self.is_locked:
                self._lock(buffer)
            if not self.is_locked:
                memory.populate(buffer)
            self._free.append(buffer)

    @property
    def free_count(self) -> int:
        """Number of buffers that are not borrowed."""
        return len(self._free)

    def borrow(self) -> memoryview:
        """Lend a buffer, whose content has no meaning. The caller has checked that a buffer is free."""
        return self._free.popleft()

    def give_back(self, buffer: memoryview) -> None:
        """Return a borrowed buffer to the pool."""
        self._free.append(buffer)

    def _allocate(self, buffer_count: int) -> memoryview:
        try:
            return memory.allocate(self.size_bytes)
        except OSError as error:
            text = f"no memory for the pool of {buffer_count} buffers of {self.size_bytes} bytes"
            raise OSError(error.errno, text) from error

    def _lock(self, buffer: memoryview) -> None:
        try:
            memory.lock(buffer)
        except OSError as error:
            self.is_locked = False
            _log.warning("the pool works, but its pages may be swapped out: %s", error.strerror)
