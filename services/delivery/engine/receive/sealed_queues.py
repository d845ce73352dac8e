# SPDX-License-Identifier: Apache-2.0
"""SealedQueues: how far groups are in the sealed queues of this shard.

A sealed queue takes no messages of clients any more, so the end of the log at the first look after the seal is behind
all of them: once the index has that part of the log, it knows the whole queue. An end is forgotten when the looks pause
and when the share's version falls: the topic may have been deleted, made again, and sealed again.
Callers: the event loop's thread. Memory: END_COUNT_MAX ends.
"""

from collections import OrderedDict
from collections.abc import Sequence

from msgspec import Struct

from libs.formats.records.delivery_record import Place
from libs.machine.clock import Clock
from services.delivery.engine.ports.halves import HalfIndex
from services.delivery.engine.ports.index import Index
from services.delivery.engine.ports.log import Log, TopicQueues
from services.delivery.engine.ports.messages import SealedQueue, SealedStage
from services.delivery.engine.state.groups import Groups

END_COUNT_MAX = 10_000
END_S = 5.0
"""Looks come every half second. An end without a look for this time is forgotten."""


class _End(Struct, frozen=True):
    """An end of the log behind a sealed queue, and the last look at it."""

    physical_offset: int
    share_version: int
    looked_s: float


class SealedQueues:
    """The sealed queues of the log of an ownership."""

    def __init__(self, groups: Groups, log: Log, index: Index, halves: HalfIndex, clock: Clock) -> None:
        self._groups, self._log, self._index, self._halves, self._clock = groups, log, index, halves, clock
        self._ends: OrderedDict[tuple[str, int], _End] = OrderedDict()

    async def of(self, group: str, topic: str, queue_ids: Sequence[int]) -> list[SealedQueue]:
        """Return how far a group is in these queues. Raises TopicNotFound and DependencyUnavailable."""
        queues = await self._log.topic_queues(topic)
        end_offset = await self._log.end_offset()
        ends = [self._end(topic, queue_id, end_offset, queues.share_version) for queue_id in queue_ids]
        indexed = await self._halves.indexed()
        bounds = await self._index.bounds(topic)
        return [
            self._of_queue(Place(group, topic, queue_id), queues, bounds.get(queue_id, (0, 0)), end <= indexed)
            for queue_id, end in zip(queue_ids, ends, strict=True)
        ]

    def _end(self, topic: str, queue_id: int, end: int, share_version: int) -> int:
        """Return an end of the log that is behind the queue. A log that lost its tail has a smaller end."""
        now_s = self._clock.monotonic_s()
        former = self._ends.pop((topic, queue_id), None)
        if former is not None and former.share_version <= share_version and now_s - former.looked_s < END_S:
            end = min(end, former.physical_offset)
        self._ends[topic, queue_id] = _End(end, share_version, now_s)
        if len(self._ends) > END_COUNT_MAX:
            self._ends.popitem(last=False)
        return end

    def _of_queue(self, place: Place, queues: TopicQueues, bounds: tuple[int, int], is_indexed: bool) -> SealedQueue:
        queue_id, (least, most) = place.queue_id, bounds
        if queue_id not in queues.sealed:
            self._ends.pop((place.topic, queue_id), None)
            return SealedQueue(queue_id, SealedStage.NOT_SEALED)
        if not is_indexed:
            return SealedQueue(queue_id, SealedStage.NOT_INDEXED)
        if (queue := self._groups.find(place)) is None:
            is_empty = most <= least and not queues.parents.get(queue_id)
            return SealedQueue(queue_id, SealedStage.SETTLED if is_empty else SealedStage.NO_POSITION, most - least)
        count = queue.unsettled_count(least, most)
        return SealedQueue(queue_id, SealedStage.UNSETTLED if count else SealedStage.SETTLED, count)
