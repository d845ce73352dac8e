# SPDX-License-Identifier: Apache-2.0
"""Where a consumer begins: at the group's offset, or where it was told."""

import contextlib
from collections.abc import Iterable

from reput_client.aio.channels import AsyncChannels
from reput_client.core.calls import groups, reads, topics
from reput_client.core.calls.groups import Place
from reput_client.core.errors import NotFoundError
from reput_client.core.types import Queue


async def find_start(
    channels: AsyncChannels, topic: str, group: str | None, queue_ids: Iterable[int] | None, start: Place
) -> dict[int, int]:
    """Where to begin in each queue, all of them if `queue_ids` is None.

    A topic that nobody has made has no queues to consume: NotFoundError.
    """
    known = {queue.queue_id: queue async for queue in channels.pages(reads.queues(topic))}
    if queue_ids is None:
        made = await channels.run(topics.get(topic))
        queue_ids = sorted({*range(made.read_queue_count), *known})
    positions: dict[int, int] = {}
    for queue_id in queue_ids:
        if group is not None:
            with contextlib.suppress(NotFoundError):
                committed = await channels.run(groups.get(group, topic, queue_id))
                positions[queue_id] = committed.queue_offset
                continue
        queue = known.get(queue_id)
        positions[queue_id] = 0 if queue is None else await _place_in(channels, queue, start)
    return positions


async def _place_in(channels: AsyncChannels, queue: Queue, start: Place) -> int:
    """The queue offset of a place in a queue. Raises ValueError for what is no place."""
    if not isinstance(start, str):
        return await channels.run(reads.offset_by_time(queue.topic, queue.queue_id, start, is_upper=False))
    words = {"earliest": queue.min_queue_offset, "latest": queue.max_queue_offset}
    if start not in words:
        raise ValueError(f"{start!r} is not a place: use 'earliest', 'latest' or a time")
    return words[start]
