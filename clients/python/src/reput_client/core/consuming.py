# SPDX-License-Identifier: Apache-2.0
"""What both consumers share: the call that follows a queue, and positions in queues. No I/O."""

from collections import deque
from collections.abc import Iterable

from reput.indexer.v1.queue_service_pb2 import SubscribeRequest, SubscribeResponse

from reput_client.core.answers import messages_in
from reput_client.core.call import Call
from reput_client.core.types import ConsumerOffset, Message

SUBSCRIBE_RESPONSE_COUNT_MAX = 4
"""Responses (up to 1 MiB each) that wait for the caller, per queue; further ones wait in the transport."""


def subscribe(topic: str, queue_id: int, queue_offset: int, tags: str, where: str) -> Call[SubscribeResponse]:
    """Return the call that follows a queue from a queue offset on. Its answers are streamed."""
    request = SubscribeRequest(
        topic=topic, queue_id=queue_id, queue_offset=queue_offset, tag_expression=tags, where=where
    )
    return Call(request)


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

    def add(self, queue_id: int, response: SubscribeResponse) -> None:
        """Take note of what a queue's stream delivered, once nothing waits any more."""
        assert not self._waiting
        messages = messages_in(response)
        if not messages:
            self._next[queue_id] = response.next_queue_offset
            return
        self._waiting.extend((message, message.queue_offset + 1) for message in messages[:-1])
        self._waiting.append((messages[-1], response.next_queue_offset))

    def pop(self) -> Message | None:
        """Return the next message to hand out, None if none waits."""
        if not self._waiting:
            return None
        message, self._next[message.queue_id] = self._waiting.popleft()
        return message

    def move(self, queue_id: int, queue_offset: int) -> None:
        """Go to a position of a queue, of which nothing waits then."""
        self._waiting = deque(pair for pair in self._waiting if pair[0].queue_id != queue_id)
        self._next[queue_id] = queue_offset

    def all(self) -> dict[int, int]:
        """Return the next queue offset of each queue that is consumed."""
        return dict(sorted(self._next.items()))

    def uncommitted(self) -> list[ConsumerOffset]:
        """Return the positions that changed since they were last committed."""
        return [
            ConsumerOffset(self._topic, queue_id, queue_offset)
            for queue_id, queue_offset in sorted(self._next.items())
            if self._committed.get(queue_id) != queue_offset
        ]

    def committed(self, offsets: Iterable[ConsumerOffset]) -> None:
        """Take note of a commit."""
        self._committed.update({offset.queue_id: offset.queue_offset for offset in offsets})
