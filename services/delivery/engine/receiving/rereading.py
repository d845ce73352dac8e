# SPDX-License-Identifier: Apache-2.0
"""Rereading: messages that were passed once are read again, from what was kept or from the index.

Messages that lie near each other are one call, and those between them are dropped. Callers: the event loop's thread.
Memory: that of what was kept, and the answers.
"""

from services.delivery.engine.ports import Found, Index, Wanted
from services.delivery.engine.receiving.kept import Kept

GAP_COUNT_MAX = 32
"""So many messages that are not meant may lie between two that one call reads."""
GAP_SIZE_BYTES = 1 << 20
"""Of one call that reads others besides those that are meant, unless one message alone is larger."""


class Rereading:
    """Of one topic."""

    def __init__(self, index: Index, topic: str, kept: Kept) -> None:
        self._index, self._topic, self._kept = index, topic, kept

    async def read(self, queue_id: int, offsets: list[int], size_bytes_max: int) -> tuple[dict[int, Found], set[int]]:
        """Read messages, those that lie near each other at once, and find those that are gone from the log.

        What is in neither was not reached: there was no room for it, or the index does not have it at the moment.
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
    """Return offsets that ascend in groups, each of which is read over at once."""
    groups: list[list[int]] = []
    for offset in offsets:
        if groups and offset - groups[-1][-1] <= GAP_COUNT_MAX + 1:
            groups[-1].append(offset)
        else:
            groups.append([offset])
    return groups
