# SPDX-License-Identifier: Apache-2.0
"""What both consumers share: the call that follows a queue, and positions in queues. No I/O."""

from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from reput.indexer.v1.queue_service_pb2 import SubscribeRequest, SubscribeResponse

from reput_client.core.answers import messages_in
from reput_client.core.call import Call
from reput_client.core.types import ConsumerOffset, Message, Selection, TopicQueue

SUBSCRIBE_RESPONSE_COUNT_MAX = 4
"""Responses (up to 1 MiB each) that wait for the caller, per queue; further ones wait in the transport."""


class Wanted(NamedTuple):
    """Which messages of a queue come: both must hold."""

    tags: str
    where: str
    """A condition of their properties (docs/filters.md)."""


def subscribe(queue: TopicQueue, queue_offset: int, wanted: Wanted) -> Call[SubscribeResponse]:
    """Return the call that follows a queue from a queue offset on. Its answers are streamed."""
    topic, queue_id = queue
    request = SubscribeRequest(
        topic=topic, queue_id=queue_id, queue_offset=queue_offset, tag_expression=wanted.tags, where=wanted.where
    )
    return Call(request)


def topics_of(topics: str | Iterable[str]) -> tuple[str, ...]:
    """Return the topics of a consumer, each once. Raises ValueError for none, TypeError for what is no name."""
    names = (topics,) if isinstance(topics, str) else tuple(dict.fromkeys(topics))
    if not names:
        raise ValueError("a consumer has at least one topic")
    for name in names:
        if not isinstance(name, str):
            raise TypeError(f"topic is {name!r}: expected a str, or several")
    return names


class Positions:
    """What was delivered and not yet handed out, and the next queue offset of each queue as the caller sees it.

    That is behind the last message that it was given. What waits is of one queue.
    """

    def __init__(self) -> None:
        self._waiting: deque[tuple[Message, int]] = deque()
        """Each message with the position behind it."""
        self._waiting_of = TopicQueue("", -1)
        self._next: dict[TopicQueue, int] = {}
        self._committed: dict[TopicQueue, int] = {}
        self._delivered_count = 0
        self.answer_count = self.answer_bytes = 0
        self.paused: set[TopicQueue] = set()
        """Queues that are not followed."""

    @property
    def waiting_count(self) -> int:
        """Messages that are not handed out."""
        return len(self._waiting)

    @property
    def handed_out_count(self) -> int:
        """Messages that were handed out so far."""
        return self._delivered_count - len(self._waiting)

    def begin(self, positions: Mapping[TopicQueue, int]) -> None:
        """Set where to begin."""
        self._next.update(positions)

    def select(self, selections: Sequence[Selection]) -> list[TopicQueue]:
        """Return the queues that are meant, all for no selection. Raises KeyError for what is not consumed."""
        found: dict[TopicQueue, None] = {}
        for selection in selections or {queue.topic: None for queue in self._next}:
            meant = [queue for queue in self._next if selection in (queue, queue.topic)]
            if not meant:
                raise KeyError(selection)
            found.update(dict.fromkeys(meant))
        return list(found)

    def add(self, queue: TopicQueue, response: SubscribeResponse) -> None:
        """Take note of what a queue's stream delivered, once nothing waits any more."""
        assert not self._waiting
        messages = messages_in(response)
        if not messages:
            self._next[queue] = response.next_queue_offset
            return
        self._waiting_of = queue
        self._delivered_count += len(messages)
        self.answer_count += 1
        self.answer_bytes += response.ByteSize()
        self._waiting.extend((message, message.queue_offset + 1) for message in messages[:-1])
        self._waiting.append((messages[-1], response.next_queue_offset))

    def pop(self) -> Message | None:
        """Return the next message to hand out, None if none waits."""
        if not self._waiting:
            return None
        message, self._next[self._waiting_of] = self._waiting.popleft()
        return message

    def move(self, queue: TopicQueue, queue_offset: int) -> None:
        """Go to a position of a queue, of which nothing waits then."""
        if queue == self._waiting_of:
            self._delivered_count -= len(self._waiting)
            self._waiting.clear()
        self._next[queue] = queue_offset

    def of(self, queue: TopicQueue) -> int:
        """Return the next queue offset of a queue."""
        return self._next[queue]

    def all(self) -> dict[TopicQueue, int]:
        """Return the next queue offset of each queue that is consumed."""
        return dict(sorted(self._next.items()))

    def uncommitted(self) -> list[ConsumerOffset]:
        """Return the positions that changed since they were last committed."""
        return [
            ConsumerOffset(*queue, queue_offset)
            for queue, queue_offset in sorted(self._next.items())
            if self._committed.get(queue) != queue_offset
        ]

    def committed(self, offsets: Iterable[ConsumerOffset]) -> None:
        """Take note of a commit."""
        self._committed.update({TopicQueue(each.topic, each.queue_id): each.queue_offset for each in offsets})
