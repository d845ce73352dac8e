# SPDX-License-Identifier: Apache-2.0
"""Follower: follows queues, with a Subscribe stream and a thread per queue.

A condition guards the answers. A reader that was replaced or stopped may still be in a call: its later answers are
dropped.
"""

import threading
from collections import deque
from typing import Any, TypeAlias

import grpc
from reput.indexer.v1.queue_service_pb2 import SubscribeResponse

from reput_client.core.consuming import SUBSCRIBE_RESPONSE_COUNT_MAX, MessageFilter, subscribe
from reput_client.core.errors import ReputError, from_rpc_error, stream_ended
from reput_client.core.records import count_in
from reput_client.core.types import TopicQueue
from reput_client.sync.channels import Channels

Answer: TypeAlias = SubscribeResponse | ReputError
"""An answer of a stream, or the error after which no stream is open any more."""


class Follower:
    """Follows queues until it is closed, and returns their answers, oldest first.

    `close` may be called from another thread.
    """

    def __init__(self, channels: Channels, message_filter: MessageFilter) -> None:
        self._channels, self._message_filter = channels, message_filter
        self._inbox = _Inbox()
        self._readers: dict[TopicQueue, _Reader] = {}
        self._is_closed = False

    @property
    def broken_count(self) -> int:
        """Number of streams that ended so far."""
        return self._inbox.broken_count

    @property
    def waiting_count(self) -> int:
        """Number of messages in answers that were not returned yet."""
        with self._inbox.changed:
            answers = [answer for _, answer in self._inbox.deliveries]
        return sum(count_in(answer) for answer in answers if not isinstance(answer, ReputError))

    def follow(self, queue: TopicQueue, queue_offset: int) -> None:
        """Follow a queue from a queue offset on. An earlier stream of the queue ends."""
        self.leave(queue)
        with self._inbox.changed:
            if not self._is_closed:
                self._readers[queue] = _Reader(self._inbox, self._channels, self._message_filter, queue, queue_offset)

    def leave(self, queue: TopicQueue) -> None:
        """Stop following a queue, and drop its answers."""
        with self._inbox.changed:
            old = self._readers.pop(queue, None)
            if old is not None:
                old.stop()
                self._inbox.deliveries = deque(pair for pair in self._inbox.deliveries if pair[0] is not old)
                self._inbox.changed.notify_all()

    def next(self, timeout_s: float | None) -> tuple[TopicQueue, Answer] | None:
        """Return the oldest answer and its queue, None after `timeout_s` without an answer, or when it is closed.

        A queue whose answer is an error is not followed any more.
        """
        with self._inbox.changed:
            self._inbox.changed.wait_for(lambda: bool(self._inbox.deliveries) or self._is_closed, timeout_s)
            if self._is_closed or not self._inbox.deliveries:
                return None
            reader, answer = self._inbox.deliveries.popleft()
            reader.waiting_count -= 1
            self._inbox.changed.notify_all()
            return reader.queue, answer

    def take(self) -> tuple[TopicQueue, Answer] | None:
        """Do as `next` does, without waiting."""
        return self.next(0.0)

    def close(self) -> None:
        """End all streams. May be repeated."""
        with self._inbox.changed:
            self._is_closed = True
            for reader in self._readers.values():
                reader.stop()
            self._inbox.changed.notify_all()


class _Inbox:
    """The queue of the answers of all readers. `changed` guards it and the state of the follower and its readers."""

    def __init__(self) -> None:
        self.changed = threading.Condition()
        self.deliveries: deque[tuple[_Reader, Answer]] = deque()
        self.broken_count = 0


class _Reader:
    """The thread that follows a queue."""

    def __init__(
        self, inbox: _Inbox, channels: Channels, message_filter: MessageFilter, queue: TopicQueue, queue_offset: int
    ) -> None:
        self.queue, self.waiting_count = queue, 0
        self._inbox, self._channels, self._message_filter = inbox, channels, message_filter
        self._queue_offset = queue_offset
        self._is_stopped = False
        self._call: Any = None
        threading.Thread(target=self._run, name=f"reput-consumer-{queue.topic}-{queue.queue_id}", daemon=True).start()

    def stop(self) -> None:
        """End the stream. Called under the lock."""
        self._is_stopped = True
        if self._call is not None:
            self._call.cancel()

    def _run(self) -> None:
        """Follow the queue, until no stream can be opened any more."""
        attempt = 0
        while True:
            error: ReputError = stream_ended()
            with self._inbox.changed:
                if self._is_stopped:
                    return
                target = self._channels.target("indexer")
                self._call = self._channels.open(subscribe(self.queue, self._queue_offset, self._message_filter))
            try:
                for response in self._call:
                    attempt = 0
                    self._queue_offset = response.next_queue_offset
                    if not self._put(response):
                        return
            except grpc.RpcError as failure:
                error = from_rpc_error(failure, "indexer", target)
            with self._inbox.changed:
                if self._is_stopped:
                    return
                self._inbox.broken_count += 1
            self._channels.on_failure("indexer", target, error)
            delay_s = self._channels.retry.delay_s(attempt, error)
            if delay_s is None:
                self._put(error)
                return
            attempt += 1
            with self._inbox.changed:
                self._inbox.changed.wait_for(lambda: self._is_stopped, delay_s)

    def _put(self, answer: Answer) -> bool:
        """Put an answer into the inbox, when there is room. Returns False if the reader was stopped."""
        with self._inbox.changed:
            self._inbox.changed.wait_for(lambda: self._is_stopped or self.waiting_count < SUBSCRIBE_RESPONSE_COUNT_MAX)
            if self._is_stopped:
                return False
            self.waiting_count += 1
            self._inbox.deliveries.append((self, answer))
            self._inbox.changed.notify_all()
            return True
