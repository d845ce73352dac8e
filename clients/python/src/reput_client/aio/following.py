# SPDX-License-Identifier: Apache-2.0
"""AsyncFollower: follows queues, with a Subscribe stream and a task per queue."""

import asyncio
from collections import deque
from typing import TypeAlias

import grpc
from reput.indexer.v1.queue_service_pb2 import SubscribeResponse

from reput_client.aio.channels import AsyncChannels
from reput_client.core.consuming import SUBSCRIBE_RESPONSE_COUNT_MAX, MessageFilter, subscribe
from reput_client.core.errors import ReputError, from_rpc_error, stream_ended
from reput_client.core.records import count_in
from reput_client.core.types import TopicQueue

Answer: TypeAlias = SubscribeResponse | ReputError
"""An answer of a stream, or the error after which no stream is open any more."""


class AsyncFollower:
    """Follows queues until it is closed, and returns their answers, oldest first."""

    def __init__(self, channels: AsyncChannels, message_filter: MessageFilter) -> None:
        self.broken_count = 0
        """Number of streams that ended so far."""
        self._channels, self._message_filter = channels, message_filter
        self._deliveries: deque[tuple[TopicQueue, asyncio.Semaphore, Answer]] = deque()
        """Each answer with its queue, and the semaphore that limits the answers of this queue."""
        self._arrived = asyncio.Event()
        self._tasks: dict[TopicQueue, asyncio.Task[None]] = {}
        self._is_closed = False

    @property
    def waiting_count(self) -> int:
        """Number of messages in answers that were not returned yet."""
        answers = [answer for _, _, answer in self._deliveries]
        return sum(count_in(answer) for answer in answers if not isinstance(answer, ReputError))

    def follow(self, queue: TopicQueue, queue_offset: int) -> None:
        """Follow a queue from a queue offset on. An earlier stream of the queue ends."""
        self.leave(queue)
        if not self._is_closed:
            self._tasks[queue] = asyncio.create_task(self._run(queue, queue_offset))

    def leave(self, queue: TopicQueue) -> None:
        """Stop following a queue, and drop its answers."""
        if queue in self._tasks:
            self._tasks.pop(queue).cancel()
            self._deliveries = deque(delivery for delivery in self._deliveries if delivery[0] != queue)

    async def next(self, timeout_s: float | None) -> tuple[TopicQueue, Answer] | None:
        """Return the oldest answer and its queue, None after `timeout_s` without an answer, or when it is closed.

        A queue whose answer is an error is not followed any more.
        """
        try:
            async with asyncio.timeout(timeout_s):
                while not self._deliveries and not self._is_closed:
                    self._arrived.clear()
                    await self._arrived.wait()
        except TimeoutError:
            pass
        return self.take()

    def take(self) -> tuple[TopicQueue, Answer] | None:
        """Do as `next` does, without waiting."""
        if self._is_closed or not self._deliveries:
            return None
        queue, room, answer = self._deliveries.popleft()
        room.release()
        return queue, answer

    async def close(self) -> None:
        """End all streams. May be repeated."""
        self._is_closed = True
        self._arrived.set()
        for task in self._tasks.values():
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks.values())

    async def _run(self, queue: TopicQueue, queue_offset: int) -> None:
        """Follow a queue, until no stream can be opened any more."""
        room = asyncio.Semaphore(SUBSCRIBE_RESPONSE_COUNT_MAX)
        attempt = 0
        while True:
            error: ReputError = stream_ended()
            target = self._channels.target("indexer")
            call = self._channels.open(subscribe(queue, queue_offset, self._message_filter))
            try:
                async for response in call:
                    attempt = 0
                    queue_offset = response.next_queue_offset
                    await room.acquire()
                    self._deliveries.append((queue, room, response))
                    self._arrived.set()
            except grpc.RpcError as failure:
                error = from_rpc_error(failure, "indexer", target)
            finally:
                call.cancel()
            self.broken_count += 1
            self._channels.on_failure("indexer", target, error)
            delay_s = self._channels.retry.delay_s(attempt, error)
            if delay_s is None:
                self._deliveries.append((queue, room, error))
                self._arrived.set()
                return
            attempt += 1
            await asyncio.sleep(delay_s)
