# SPDX-License-Identifier: Apache-2.0
"""Rereading: messages that were passed once are read again, from what was kept or from the index.

Callers: the event loop's thread. Memory: that of what was kept, and the answers.
"""

from services.delivery.engine.ports import Found, Index, Wanted
from services.delivery.engine.receiving.kept import Kept


class Rereading:
    """Of one topic."""

    def __init__(self, index: Index, topic: str, kept: Kept) -> None:
        self._index, self._topic, self._kept = index, topic, kept

    async def read(self, queue_id: int, offsets: list[int], size_bytes_max: int) -> tuple[dict[int, Found], set[int]]:
        """Read messages, those that stand together at once, and find those that are gone from the log.

        What is in neither was not reached: there was no room for it, or the index does not have it at the moment.
        """
        found: dict[int, Found] = {}
        gone: set[int] = set()
        size_bytes = 0
        for offset in offsets:
            if (one := self._kept.take(queue_id, offset)) is not None:
                found[offset] = one
                size_bytes += one.size_bytes
        for start, count in _runs([offset for offset in offsets if offset not in found]):
            position, end = start, start + count
            while position < end and size_bytes < size_bytes_max:
                pulled = await self._index.pull(
                    self._topic,
                    queue_id,
                    position,
                    wanted=Wanted(),
                    count=end - position,
                    size_bytes=size_bytes_max - size_bytes,
                    wait_s=0,
                )
                gone.update(range(position, min(end, pulled.min_queue_offset)))
                some = [one for one in pulled.found if one.queue_offset < end]
                found.update({one.queue_offset: one for one in some})
                size_bytes += sum(one.size_bytes for one in some)
                if pulled.next_queue_offset <= position:
                    break
                position = pulled.next_queue_offset
        return found, gone


def _runs(offsets: list[int]) -> list[tuple[int, int]]:
    """Return starts and counts of offsets that stand together. They ascend."""
    runs: list[tuple[int, int]] = []
    for offset in offsets:
        if runs and sum(runs[-1]) == offset:
            runs[-1] = (runs[-1][0], runs[-1][1] + 1)
        else:
            runs.append((offset, 1))
    return runs
