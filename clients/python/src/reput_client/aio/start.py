# SPDX-License-Identifier: Apache-2.0
"""Bounds of queues, committed offsets of a group, and the start positions of a consumer."""

import contextlib
from collections.abc import Iterable, Sequence

from reput_client.aio.channels import AsyncChannels
from reput_client.aio.parts import AsyncGroups, AsyncQueues, AsyncTopics
from reput_client.core.errors import NotFoundError
from reput_client.core.types import Place, Queue, TopicQueue, check_place


async def find_start(
    channels: AsyncChannels, topics: Sequence[str], group: str | None, queue_ids: Iterable[int] | None, start: Place
) -> dict[TopicQueue, int]:
    """Return the start offset of each queue: the group's committed offset, otherwise the offset of `start`.

    `queue_ids` None means all queues. Then a topic that does not exist raises NotFoundError.
    """
    chosen = None if queue_ids is None else list(queue_ids)
    queues: list[TopicQueue] = []
    for topic in topics:
        ids = sorted(await _queue_ids(channels, topic)) if chosen is None else chosen
        queues += [TopicQueue(topic, queue_id) for queue_id in ids]
    positions = {} if group is None else await committed(channels, group, queues)
    rest = [queue for queue in queues if queue not in positions]
    return positions | await places(channels, rest, start)


async def bounds(channels: AsyncChannels, queues: Iterable[TopicQueue]) -> dict[TopicQueue, Queue]:
    """Return the bounds of queues. A queue that never had a message is from 0 to 0."""
    wanted = list(queues)
    found = {
        TopicQueue(topic, queue.queue_id): queue
        for topic in dict.fromkeys(queue.topic for queue in wanted)
        async for queue in AsyncQueues(channels).list(topic)
    }
    return {queue: found.get(queue) or Queue(*queue, 0, 0, None, None) for queue in wanted}


async def committed(channels: AsyncChannels, group: str, queues: Iterable[TopicQueue]) -> dict[TopicQueue, int]:
    """Return the next offsets of a group in the queues where it has committed."""
    found: dict[TopicQueue, int] = {}
    for queue in queues:
        with contextlib.suppress(NotFoundError):
            found[queue] = (await AsyncGroups(channels).get(group, *queue)).queue_offset
    return found


async def places(channels: AsyncChannels, queues: Iterable[TopicQueue], place: Place) -> dict[TopicQueue, int]:
    """Return the queue offset of a place in each queue. Raises ValueError for an invalid place."""
    check_place(place)
    known = await bounds(channels, queues)
    found: dict[TopicQueue, int] = {}
    for queue, ends in known.items():
        if isinstance(place, str):
            found[queue] = ends.min_queue_offset if place == "earliest" else ends.max_queue_offset
        else:
            found[queue] = await AsyncQueues(channels).offset_by_time(*queue, place) if ends.max_queue_offset else 0
    return found


async def _queue_ids(channels: AsyncChannels, topic: str) -> set[int]:
    """Return the ids of a topic's queues, by its settings and by its indexed queues. Raises NotFoundError."""
    made = await AsyncTopics(channels).get(topic)
    return {*range(made.read_queue_count), *[queue.queue_id async for queue in AsyncQueues(channels).list(topic)]}
