# SPDX-License-Identifier: Apache-2.0
"""What both consumers share: deliveries, and positions in queues. No I/O."""

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass

from reput.indexer.v1.queue_service_pb2 import SubscribeRequest, SubscribeResponse

from reput_client.core.answers import messages_in
from reput_client.core.call import Call
from reput_client.core.types import ConsumerOffset, Message

SUBSCRIBE_RESPONSE_COUNT_MAX = 4
"""Responses (up to 1 MiB each) that wait for the caller, per queue; further ones wait in the transport."""


@dataclass(frozen=True, slots=True)
class Delivery:
    """One response of a queue's stream: its messages, and the position behind them."""

    queue_id: int
    messages: list[Message]
    next_queue_offset: int


def subscribe(topic: str, queue_id: int, queue_offset: int, tags: str) -> Call[SubscribeResponse]:
    """Return the call that follows a queue from a queue offset on. Its answers are streamed."""
    request = SubscribeRequest(topic=topic, queue_id=queue_id, queue_offset=queue_offset, tag_expression=tags)
    return Call(request)


def delivery(queue_id: int, response: SubscribeResponse) -> Delivery:
    """Return the delivery in a response of a Subscribe stream."""
    return Delivery(queue_id, messages_in(response), response.next_queue_offset)


class Positions:
    """What was delivered and not yet handed out, and the next queue offset of each queue as the caller sees it.

    That is behind the last message that it was given.
    """

    def __init__(self, topic: str) -> None:
        self._topic = topic
        self._waiting: deque[tuple[Message, int]] = deque()
        """Each message with the position behind it."""
        self._next: dict[int, int] = {}
        self._committed: dict[int, int] = {}

    def begin(self, positions: dict[int, int]) -> None:
        """Set where to begin."""
        self._next.update(positions)

    def add(self, delivery: Delivery) -> None:
        """Take note of a delivery, once nothing waits any more."""
        assert not self._waiting
        if not delivery.messages:
            self._next[delivery.queue_id] = delivery.next_queue_offset
            return
        self._waiting.extend((message, message.queue_offset + 1) for message in delivery.messages[:-1])
        self._waiting.append((delivery.messages[-1], delivery.next_queue_offset))

    def pop(self) -> Message | None:
        """The next message to hand out; None if none waits."""
        if not self._waiting:
            return None
        message, self._next[message.queue_id] = self._waiting.popleft()
        return message

    def move(self, queue_id: int, queue_offset: int) -> None:
        """Go to a position of a queue, of which nothing waits then."""
        self._waiting = deque(pair for pair in self._waiting if pair[0].queue_id != queue_id)
        self._next[queue_id] = queue_offset

    def all(self) -> dict[int, int]:
        """The next queue offset of each queue that is consumed."""
        return dict(sorted(self._next.items()))

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
