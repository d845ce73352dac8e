# SPDX-License-Identifier: Apache-2.0
"""Rereading: reads messages again that the feed has passed, from the cache of kept messages or from the index.

One call reads wanted messages that lie near each other, and drops the messages between them.
Callers: the event loop's thread. Memory: the cache's, and the answers of the index.
"""

from services.delivery.engine.ports import Found, Index, Wanted
from services.delivery.engine.receiving.kept import Kept

GAP_COUNT_MAX = 32
"""Unwanted messages that may lie between two wanted messages of one call."""
GAP_SIZE_BYTES = 1 << 20
"""Bytes of one call that reads unwanted messages, too; a single larger message still fits."""


class Rereading:
    """Reads messages of one topic."""

    def __init__(self, index: Index, topic: str, kept: Kept) -> None:
        self._index, self._topic, self._kept = index, topic, kept

    async def read(self, queue_id: int, offsets: list[int], size_bytes_max: int) -> tuple[dict[int, Found], set[int]]:
        """Return the messages at these queue offsets that were read, and the offsets that the log has dropped.

        An offset in neither was not reached: the size was used up, or the index lacks the message at the moment.
        """
        found: dict[int, Found] = {}
        gone: set[int] = set()
        for offset in offsets:
            if size_bytes_max <= 0:
                break
            if (one := self._kept.take(queue_id, offset)) is not None:
                found[offset] = one
                size_bytes_max -= one.size_bytes
        for some in _near([offset for offset in offsets if offset not in found]):
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
    """Return ascending offsets in groups; one call reads each group."""
    groups: list[list[int]] = []
    for offset in offsets:
        if groups and offset - groups[-1][-1] <= GAP_COUNT_MAX + 1:
            groups[-1].append(offset)
        else:
            groups.append([offset])
    return groups
