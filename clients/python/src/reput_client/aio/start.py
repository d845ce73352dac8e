# SPDX-License-Identifier: Apache-2.0
"""Where a consumer begins: at the group's offset, or where it was told."""

import contextlib
from collections.abc import Iterable

from reput_client.aio.channels import AsyncChannels
from reput_client.aio.parts import AsyncGroups, AsyncQueues, AsyncTopics
from reput_client.core.errors import NotFoundError
from reput_client.core.types import Place, Queue, check_place


async def find_start(
    channels: AsyncChannels, topic: str, group: str | None, queue_ids: Iterable[int] | None, start: Place
) -> dict[int, int]:
    """Return where to begin in each queue, in all of them if `queue_ids` is None.

    A topic that nobody has made has no queues to consume: NotFoundError.
    """
    known = {queue.queue_id: queue async for queue in AsyncQueues(channels).list(topic)}
    if queue_ids is None:
        made = await AsyncTopics(channels).get(topic)
        queue_ids = sorted({*range(made.read_queue_count), *known})
    positions: dict[int, int] = {}
    for queue_id in queue_ids:
        if group is not None:
            with contextlib.suppress(NotFoundError):
                committed = await AsyncGroups(channels).get(group, topic, queue_id)
                positions[queue_id] = committed.queue_offset
                continue
        queue = known.get(queue_id)
        positions[queue_id] = 0 if queue is None else await _place_in(channels, queue, start)
    return positions


async def _place_in(channels: AsyncChannels, queue: Queue, start: Place) -> int:
    """Return the queue offset of a place in a queue. Raises ValueError for what is no place."""
    check_place(start)
    if not isinstance(start, str):
        return await AsyncQueues(channels).offset_by_time(queue.topic, queue.queue_id, start)
    return queue.min_queue_offset if start == "earliest" else queue.max_queue_offset
