# SPDX-License-Identifier: Apache-2.0
"""What the synchronous and the asyncio consumer share: positions in queues, and how to find where to begin. No I/O."""

from collections.abc import Generator, Iterable
from dataclasses import dataclass
from typing import Any

from reput.indexer.v1 import queue_service_pb2

from reput_client.core.calls import groups, reads, topics
from reput_client.core.calls.call import Call, Pages
from reput_client.core.calls.groups import Place
from reput_client.core.errors import NotFoundError
from reput_client.core.types import ConsumerOffset, Message

SUBSCRIBE_RESPONSE_COUNT_MAX = 4
"""Responses (up to 1 MiB each) that wait for the caller, per queue; further ones wait in the transport."""


@dataclass(frozen=True, slots=True)
class Delivery:
    """One response of a queue's stream: its messages, and the position behind them."""

    queue_id: int
    messages: list[Message]
    next_queue_offset: int


def delivery(queue_id: int, response: queue_service_pb2.SubscribeResponse) -> Delivery:
    """The delivery in a response of a Subscribe stream."""
    return Delivery(queue_id, [Message(raw) for raw in response.messages], response.next_queue_offset)


class Positions:
    """The next queue offset of each queue, as seen by the caller: behind the last message that it was given."""

    def __init__(self, topic: str) -> None:
        self._topic = topic
        self._next: dict[int, int] = {}
        self._committed: dict[int, int] = {}

    def begin(self, positions: dict[int, int]) -> None:
        """Set where to begin."""
        self._next.update(positions)

    def move(self, queue_id: int, queue_offset: int) -> None:
        """Go to a position."""
        self._next[queue_id] = queue_offset

    def of(self, queue_id: int) -> int:
        """The next queue offset. Raises KeyError for a queue that is not consumed."""
        return self._next[queue_id]

    def queue_ids(self) -> list[int]:
        """The queues that are consumed."""
        return sorted(self._next)

    def uncommitted(self) -> list[ConsumerOffset]:
        """Positions that changed since they were last committed."""
        return [
            ConsumerOffset(self._topic, queue_id, queue_offset)
            for queue_id, queue_offset in sorted(self._next.items())
            if self._committed.get(queue_id) != queue_offset
        ]

    def committed(self, offsets: Iterable[ConsumerOffset]) -> None:
        """Take note of a commit."""
        self._committed.update({offset.queue_id: offset.queue_offset for offset in offsets})


def find_start(
    topic: str, group: str | None, queue_ids: Iterable[int] | None, start: Place
) -> Generator[Call[Any] | Pages[Any], Any, dict[int, int]]:
    """Where to begin in each queue: the group's offset, else `start`.

    A generator of calls that is sent their answers, or has their ReputError thrown in; its value is the positions.
    A topic that nobody has made has no queues to consume: NotFoundError.
    """
    known = {queue.queue_id: queue for queue in (yield reads.queues(topic))}
    if queue_ids is None:
        read_queue_count = (yield topics.get(topic)).read_queue_count
        queue_ids = sorted({*range(read_queue_count), *known})
    positions: dict[int, int] = {}
    for queue_id in queue_ids:
        queue = known.get(queue_id)
        if group is not None:
            try:
                positions[queue_id] = (yield groups.get(group, topic, queue_id)).queue_offset
                continue
            except NotFoundError:
                pass
        if queue is None:
            positions[queue_id] = 0
        elif start == "earliest":
            positions[queue_id] = queue.min_queue_offset
        elif start == "latest":
            positions[queue_id] = queue.max_queue_offset
        elif isinstance(start, str):
            raise ValueError(f"{start!r} is not a place: use 'earliest', 'latest' or a time")
        else:
            positions[queue_id] = yield reads.offset_by_time(topic, queue_id, start, is_upper=False)
    return positions
