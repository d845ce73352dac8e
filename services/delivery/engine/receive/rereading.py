# SPDX-License-Identifier: Apache-2.0
"""Rereader: reads messages again that the feed has passed, from the cache of kept messages or from the index.

A single call reads wanted messages that lie near each other, and drops the messages between them.
Callers: the event loop's thread. Memory: the cache's, and the answers of the index.
"""

from collections import OrderedDict

from services.delivery.engine.ports.index import Index
from services.delivery.engine.ports.messages import Found, Wanted
from services.delivery.engine.receive.feed import ReadAhead
from services.delivery.engine.receive.queue_begins import QueueBegins

CACHE_SIZE_BYTES_MAX = 4 << 20
"""Size of the cached messages of a group and topic."""
GAP_COUNT_MAX = 32
"""Unwanted messages that may lie between two wanted messages of a call."""
GAP_SIZE_BYTES = 1 << 20
"""Bytes of a call that reads unwanted messages, too; a single larger message still fits."""


class MessageCache:
    """The kept messages of a group and topic, by queue id and queue offset."""

    def __init__(self, ahead: ReadAhead) -> None:
        self.size_bytes = 0
        self._ahead, self._is_closed = ahead, False
        self._found: OrderedDict[tuple[int, int], Found] = OrderedDict()

    def put(self, queue_id: int, found: Found) -> None:
        """Keep a message, and drop the oldest messages if the cache is full. Not kept while enough is read ahead."""
        self.take(queue_id, found.queue_offset)
        if self._is_closed or self._ahead.is_enough or found.size_bytes > CACHE_SIZE_BYTES_MAX:
            return
        self._found[queue_id, found.queue_offset] = found
        self._hold(found.size_bytes)
        while self.size_bytes > CACHE_SIZE_BYTES_MAX:
            _, oldest = self._found.popitem(last=False)
            self._hold(-oldest.size_bytes)

    def take(self, queue_id: int, offset: int) -> Found | None:
        """Return a message and keep it no longer."""
        found = self._found.pop((queue_id, offset), None)
        if found is not None:
            self._hold(-found.size_bytes)
        return found

    def close(self) -> None:
        """Drop all messages, and keep no others: a receive that still runs would put messages here."""
        self._is_closed = True
        self._found.clear()
        self._hold(-self.size_bytes)

    def _hold(self, size_bytes: int) -> None:
        self.size_bytes += size_bytes
        self._ahead.size_bytes += size_bytes


class Rereader:
    """Reads messages of a topic again."""

    def __init__(self, index: Index, topic: str, kept: MessageCache, begins: QueueBegins) -> None:
        self._index, self._topic, self._kept, self._begins = index, topic, kept, begins

    async def read(self, queue_id: int, offsets: list[int], size_bytes_max: int) -> tuple[dict[int, Found], set[int]]:
        """Return the messages at these queue offsets that were read, and the offsets that the log has dropped.

        An offset in neither was not reached: the size was used up, or the index lacks the message at the moment.
        """
        found: dict[int, Found] = {}
        gone: set[int] = set()
        for offset in offsets:
            if size_bytes_max <= 0:
                break
            if (one := self._kept.take(queue_id, offset)) is None:
                continue
            if offset < await self._begins.of(queue_id):
                gone.add(offset)
            else:
                found[offset] = one
                size_bytes_max -= one.size_bytes
        for some in _near([offset for offset in offsets if offset not in found and offset not in gone]):
            left = some
            while left and size_bytes_max > 0:
                count = left[-1] - left[0] + 1
                size_bytes = size_bytes_max if count == len(left) else min(size_bytes_max, GAP_SIZE_BYTES)
                pulled = await self._index.pull(
                    self._topic, queue_id, left[0], wanted=Wanted(), count=count, size_bytes=size_bytes, wait_s=0
                )
                meant = set(left)
                gone.update(offset for offset in left if offset < pulled.min_queue_offset)
                read = {one.queue_offset: one for one in pulled.found if one.queue_offset in meant}
                found.update(read)
                size_bytes_max -= sum(one.size_bytes for one in read.values())
                if pulled.next_queue_offset <= left[0]:
                    break
                left = [offset for offset in left if offset >= pulled.next_queue_offset]
        return found, gone


def _near(offsets: list[int]) -> list[list[int]]:
    """Return ascending offsets in groups; a single call reads each group."""
    groups: list[list[int]] = []
    for offset in offsets:
        if groups and offset - groups[-1][-1] <= GAP_COUNT_MAX + 1:
            groups[-1].append(offset)
        else:
            groups.append([offset])
    return groups
