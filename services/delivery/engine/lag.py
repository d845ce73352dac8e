# SPDX-License-Identifier: Apache-2.0
"""Lag: how many messages groups have not settled, for those who watch a store.

It looks at one topic after the other, one in each call, so that it costs the index the same however many there are.
Callers: the event loop's thread; `count` from any.
"""

from services.delivery.engine.ports import Index
from services.delivery.engine.state.groups import Groups


class Lag:
    """`tend` it about once a second."""

    def __init__(self, groups: Groups, index: Index) -> None:
        self._groups, self._index = groups, index
        self._left: list[str] = []
        self._counts: dict[str, int] = {}

    @property
    def count(self) -> int:
        """Messages that are not settled, of each group that has received, as of the last look at their topics."""
        return sum(list(self._counts.values()))

    async def tend(self) -> None:
        """Look at the next topic. Raises DependencyUnavailable."""
        if not self._left:
            self._left = sorted({queue.place.topic for queue in self._groups.all_queues()})
            self._counts = {topic: self._counts.get(topic, 0) for topic in self._left}
        if self._left:
            topic = self._left.pop()
            bounds = await self._index.bounds(topic)
            self._counts[topic] = sum(
                max(bounds.get(queue.place.queue_id, (0, 0))[1] - queue.committed, 0)
                for queue in self._groups.all_queues()
                if queue.place.topic == topic
            )
