# SPDX-License-Identifier: Apache-2.0
"""Which consumer groups would miss entries when the log lost what lies below an offset. Changes nothing.

Callers: the event loop's thread, which runs in between when there are many offsets.
"""

import asyncio
from dataclasses import dataclass

from services.indexer.engine.consume_queue_table import ConsumeQueueTable
from services.indexer.engine.consumer_offsets import ConsumerOffsets

PAUSE_COUNT = 1_000
"""Offsets that are looked at in one go."""


@dataclass(frozen=True, slots=True)
class ConsumerBelow:
    """A stored offset below the first entry that is kept."""

    group: str
    topic: str
    queue_id: int
    queue_offset: int
    min_queue_offset: int


async def consumers_below(
    offsets: ConsumerOffsets, queues: ConsumeQueueTable, min_physical_offset: int, *, count_max: int
) -> tuple[list[ConsumerBelow], int]:
    """The stored offsets that are below the first entry kept then, and how many; the furthest behind first."""
    found: list[ConsumerBelow] = []
    kept_from: dict[tuple[str, int], int] = {}
    seen_count = 0
    for group in offsets.groups():
        for topic, queue_id, queue_offset in offsets.offsets_of(group):
            seen_count += 1
            if seen_count % PAUSE_COUNT == 0:
                await asyncio.sleep(0)
            first = kept_from.get((topic, queue_id))
            if first is None:
                queue = queues.find(topic, queue_id)
                first = 0 if queue is None else queue.first_kept(min_physical_offset)
                kept_from[topic, queue_id] = first
            if queue_offset < first:
                found.append(ConsumerBelow(group, topic, queue_id, queue_offset, first))
    found.sort(key=lambda one: one.queue_offset - one.min_queue_offset)
    return found[:count_max], len(found)
