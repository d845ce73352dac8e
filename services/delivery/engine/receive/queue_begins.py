# SPDX-License-Identifier: Apache-2.0
"""QueueBegins: where the queues of a topic begin now, so that messages that were read earlier and are gone stay away.

A topic can be purged, and its messages can expire, while messages of it are read ahead. The index is asked about a
queue at most once in CHECK_S. While it does not answer, the last answer counts.
Callers: the event loop's thread. Memory: two numbers for each queue.
"""

import asyncio
import contextlib

from libs.requests.errors import DependencyUnavailable, TopicNotFound
from services.delivery.engine.ports.index import Index
from services.delivery.engine.ports.messages import Wanted

CHECK_S = 1.0
BEHIND_ALL = 2**62
"""A queue offset behind the end of each queue: an answer there has the queue's bounds and no message."""


class QueueBegins:
    """The first queue offsets of a topic's queues."""

    def __init__(self, index: Index, topic: str) -> None:
        self._index, self._topic = index, topic
        self._known: dict[int, tuple[float, int]] = {}

    def note(self, queue_id: int, min_queue_offset: int) -> None:
        """Keep an answer of the index."""
        self._known[queue_id] = asyncio.get_running_loop().time(), min_queue_offset

    async def of(self, queue_id: int) -> int:
        """Return the first queue offset of a queue, as of the last CHECK_S."""
        asked_s, begin = self._known.get(queue_id, (float("-inf"), 0))
        if asyncio.get_running_loop().time() - asked_s < CHECK_S:
            return begin
        with contextlib.suppress(DependencyUnavailable, TopicNotFound):
            pulled = await self._index.pull(
                self._topic, queue_id, BEHIND_ALL, wanted=Wanted(), count=1, size_bytes=1, wait_s=0
            )
            begin = pulled.min_queue_offset
        self.note(queue_id, begin)
        return begin
