# SPDX-License-Identifier: Apache-2.0
"""Finds the consumer groups that would miss entries if readers lost the records below an offset. Changes nothing.

The log drops records of all topics, a rule of retention hides records of a single topic.

Callers: the event loop's thread; other tasks run in between when there are many offsets. Memory: the result.
"""

import asyncio
import heapq

from msgspec import Struct

from services.indexer.engine.groups.consumer_offsets import ConsumerOffsets
from services.indexer.engine.tables.queues import STEP_QUEUE_COUNT, ConsumeQueueTable


class ConsumerBelow(Struct, frozen=True):
    """A stored offset below the first kept entry."""

    group: str
    topic: str
    queue_id: int
    queue_offset: int
    min_queue_offset: int


async def consumers_below(
    offsets: ConsumerOffsets, queues: ConsumeQueueTable, min_physical_offset: int, *, count_max: int
) -> tuple[list[ConsumerBelow], int]:
    """Return the stored offsets below the first entry kept then, the furthest behind first, and their whole number."""
    furthest: list[ConsumerBelow] = []
    found_count = 0
    kept_from: dict[tuple[str, int], int] = {}
    async for found in offsets.offsets():
        for group, topic, queue_id, queue_offset in found:
            first = kept_from.get((topic, queue_id))
            if first is None:
                if len(kept_from) % STEP_QUEUE_COUNT == 0:
                    await asyncio.sleep(0)
                queue = queues.find(topic, queue_id)
                first = 0 if queue is None else queue.first_kept(min_physical_offset)
                kept_from[topic, queue_id] = first
            if queue_offset < first:
                furthest.append(ConsumerBelow(group, topic, queue_id, queue_offset, first))
                found_count += 1
        furthest = heapq.nsmallest(count_max, furthest, key=_order)
    return furthest, found_count


async def topic_consumers_below(
    offsets: ConsumerOffsets, queues: ConsumeQueueTable, topic: str, min_physical_offset: int, *, count_max: int
) -> tuple[list[ConsumerBelow], int]:
    """Return the stored offsets in a topic below the first entry shown then, and their whole number.

    An offset below the first message that readers get now counts as the offset of this message. Offsets that would miss
    no message are left out. The order is that of `consumers_below`.
    """
    missing: list[ConsumerBelow] = []
    async for found in offsets.offsets():
        for group, name, queue_id, queue_offset in found:
            queue = queues.find(topic, queue_id) if name == topic else None
            if queue is not None:
                first, next_offset = queue.first_kept(min_physical_offset), max(queue_offset, queue.min_queue_offset)
                if next_offset < first:
                    missing.append(ConsumerBelow(group, topic, queue_id, next_offset, first))
    return heapq.nsmallest(count_max, missing, key=_order), len(missing)


def _order(consumer: ConsumerBelow) -> tuple[int, str, str, int]:
    return consumer.queue_offset - consumer.min_queue_offset, consumer.group, consumer.topic, consumer.queue_id
