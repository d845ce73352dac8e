# SPDX-License-Identifier: Apache-2.0
"""The parts that both consumers share: the call that follows a queue, and positions in queues. No I/O."""

from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from reput.indexer.v1.queue_service_pb2 import SubscribeRequest, SubscribeResponse

from reput_client.core.call import Call
from reput_client.core.records import are_wanted, messages_in
from reput_client.core.types import ConsumerOffset, Message, Selection, TopicQueue

SUBSCRIBE_RESPONSE_COUNT_MAX = 4
"""Responses (up to 1 MiB each) that wait for the caller, per queue. Further responses wait in the transport."""


class MessageFilter(NamedTuple):
    """The filter of the messages of a queue: a message must fulfil both conditions."""

    tags: str
    where: str
    """A condition on the messages' properties (docs/filters.md)."""


def subscribe(queue: TopicQueue, queue_offset: int, message_filter: MessageFilter) -> Call[SubscribeResponse]:
    """Return the call that follows a queue from a queue offset on. Its answers are streamed."""
    topic, queue_id = queue
    request = SubscribeRequest(
        topic=topic,
        queue_id=queue_id,
        queue_offset=queue_offset,
        tag_expression=message_filter.tags,
        where=message_filter.where,
        wants_records=are_wanted(),
    )
    return Call(request)


def topics_of(topics: str | Iterable[str]) -> tuple[str, ...]:
    """Return the topics of a consumer without duplicates. Raises ValueError for no topic, TypeError for a non-str."""
    names = (topics,) if isinstance(topics, str) else tuple(dict.fromkeys(topics))
    if not names:
        raise ValueError("a consumer has at least one topic")
    for name in names:
        if not isinstance(name, str):
            raise TypeError(f"topic is {name!r}: expected a str, or several")
    return names


class Positions:
    """Messages that were delivered and not yet returned, and the next queue offset of each queue.

    The next queue offset lies behind the last message that the caller got. All waiting messages are of the same queue.
    """

    def __init__(self) -> None:
        self._waiting: deque[Message] = deque()
        self._waiting_of, self._waiting_end = TopicQueue("", -1), 0
        """The queue of these messages, and the position behind the last."""
        self._next: dict[TopicQueue, int] = {}
        self._committed: dict[TopicQueue, int] = {}
        self._delivered_count = 0
        self.answer_count = self.answer_bytes = 0
        self.paused: set[TopicQueue] = set()
        """Queues that are not followed."""

    @property
    def waiting_count(self) -> int:
        """Number of messages that were not returned yet."""
        return len(self._waiting)

    @property
    def handed_out_count(self) -> int:
        """Number of messages that were returned so far."""
        return self._delivered_count - len(self._waiting)

    def begin(self, positions: Mapping[TopicQueue, int]) -> None:
        """Set the start positions."""
        self._next.update(positions)

    def select(self, selections: Sequence[Selection]) -> list[TopicQueue]:
        """Return the selected queues. No selection means all. Raises KeyError for a queue that is not consumed."""
        found: dict[TopicQueue, None] = {}
        for selection in selections or {queue.topic: None for queue in self._next}:
            meant = [queue for queue in self._next if selection in (queue, queue.topic)]
            if not meant:
                raise KeyError(selection)
            found.update(dict.fromkeys(meant))
        return list(found)

    def add(self, queue: TopicQueue, response: SubscribeResponse) -> None:
        """Add the response of a queue's stream. Called when no message waits any more.

        Raises ServerError for a response that is not sound, of which no message is added.
        """
        assert not self._waiting
        messages = messages_in(response)
        if not messages:
            self._next[queue] = response.next_queue_offset
            return
        self._waiting_of, self._waiting_end = queue, response.next_queue_offset
        self._delivered_count += len(messages)
        self.answer_count += 1
        self.answer_bytes += response.ByteSize()
        self._waiting.extend(messages)

    def pop(self) -> Message | None:
        """Return the next message, None if no message waits."""
        if not self._waiting:
            return None
        message = self._waiting.popleft()
        self._next[self._waiting_of] = message.queue_offset + 1 if self._waiting else self._waiting_end
        return message

    def take(self, count: int) -> list[Message]:
        """Return the next messages, up to `count` of those that wait."""
        taken = [self._waiting.popleft() for _ in range(min(count, len(self._waiting)))]
        if taken:
            self._next[self._waiting_of] = taken[-1].queue_offset + 1 if self._waiting else self._waiting_end
        return taken

    def move(self, queue: TopicQueue, queue_offset: int) -> None:
        """Set the position of a queue, and drop its waiting messages."""
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
        """Record committed offsets."""
        self._committed.update({TopicQueue(each.topic, each.queue_id): each.queue_offset for each in offsets})
