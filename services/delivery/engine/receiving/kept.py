# SPDX-License-Identifier: Apache-2.0
"""Kept: messages that were read, are open, and wait for another receive, so that it needs no call to the index.

Callers: the event loop's thread. Memory: SIZE_BYTES_MAX, and less while all that is read ahead is enough.
"""

from collections import OrderedDict

from services.delivery.engine.feed import ReadAhead
from services.delivery.engine.ports import Found

SIZE_BYTES_MAX = 4 << 20


class Kept:
    """Of one group and topic, by queue id and queue offset."""

    def __init__(self, ahead: ReadAhead) -> None:
        self.size_bytes = 0
        self._ahead, self._is_closed = ahead, False
        self._found: OrderedDict[tuple[int, int], Found] = OrderedDict()

    def put(self, queue_id: int, found: Found) -> None:
        """Keep a message, in the place of the oldest ones if need be."""
        self.take(queue_id, found.queue_offset)
        if self._is_closed or self._ahead.is_enough or found.size_bytes > SIZE_BYTES_MAX:
            return
        self._found[queue_id, found.queue_offset] = found
        self._hold(found.size_bytes)
        while self.size_bytes > SIZE_BYTES_MAX:
            _, oldest = self._found.popitem(last=False)
            self._hold(-oldest.size_bytes)

    def take(self, queue_id: int, offset: int) -> Found | None:
        """Return a message and keep it no longer."""
        found = self._found.pop((queue_id, offset), None)
        if found is not None:
            self._hold(-found.size_bytes)
        return found

    def close(self) -> None:
        """Keep nothing any more: who receives at this moment would leave something behind."""
        self._is_closed = True
        self._found.clear()
        self._hold(-self.size_bytes)

    def _hold(self, size_bytes: int) -> None:
        self.size_bytes += size_bytes
        self._ahead.size_bytes += size_bytes
