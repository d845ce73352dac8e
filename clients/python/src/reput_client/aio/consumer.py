# SPDX-License-Identifier: Apache-2.0
"""AsyncConsumer: the asyncio twin of Consumer: one Subscribe stream and one task per queue."""

import asyncio
from collections.abc import AsyncIterator, Iterable
from typing import TypeAlias

import grpc
from reput.indexer.v1.queue_service_pb2 import SubscribeResponse

from reput_client.aio.channels import AsyncChannels
from reput_client.aio.closing import AsyncClosing
from reput_client.aio.parts import AsyncGroups
from reput_client.aio.start import find_start
from reput_client.core.consuming import SUBSCRIBE_RESPONSE_COUNT_MAX, Positions, subscribe
from reput_client.core.errors import ReputError, from_rpc_error, stream_ended
from reput_client.core.types import Message, Place, check_place, check_queue_offset

Delivery: TypeAlias = tuple[int, asyncio.Semaphore, SubscribeResponse | ReputError]
"""What a reader got: the id of its queue, its room for further answers, and an answer or why there is none."""


class AsyncConsumer(AsyncClosing):
    """Iterates over the messages of a topic as they are stored, each queue in order. Made by `AsyncClient.consumer`.

    The promises are those of Consumer. Use it on the event loop where it was made.
    """

    def __init__(
        self,
        channels: AsyncChannels,
        *,
        topic: str,
        group: str | None,
        queue_ids: Iterable[int] | None,
        start: Place,
        tags: str,
        where: str,
    ) -> None:
        check_place(start)
        self.topic, self.group = topic, group
        self._channels, self._tags, self._where = channels, tags, where
        self._queue_ids, self._start = queue_ids, start
        self._deliveries: asyncio.Queue[Delivery | None] = asyncio.Queue()
        self._positions = Positions(topic)
        self._readers: dict[int, tuple[asyncio.Task[None], asyncio.Semaphore]] = {}
        self._is_begun = self._is_closed = False

    def __repr__(self) -> str:
        return f"AsyncConsumer({self.topic!r}, group={self.group!r}, positions={self._positions.all()})"

    async def poll(self, timeout_s: float | None = None) -> Message | None:
        """Return the next message, None after `timeout_s` without one, or when the consumer is closed.

        Raises ReputError if a stream broke and could not be opened again, or if the topic does not exist.
        """
        try:
            async with asyncio.timeout(timeout_s):
                await self._begin()
                while (message := self._positions.pop()) is None:
                    if self._is_closed:
                        return None
                    self._enter(await self._deliveries.get())
        except TimeoutError:
            return None
        return message

    async def __aiter__(self) -> AsyncIterator[Message]:
        while (message := await self.poll()) is not None:
            yield message

    async def positions(self) -> dict[int, int]:
        """Return the next queue offset of each queue: behind the last message that was handed out."""
        await self._begin()
        return self._positions.all()

    async def commit(self) -> None:
        """Store the group's offsets: all messages handed out so far are done. Raises ValueError without a group."""
        if self.group is None:
            raise ValueError("a consumer without a group has nothing to commit to")
        offsets = self._positions.uncommitted()
        if offsets:
            await AsyncGroups(self._channels).commit(self.group, offsets)
            self._positions.committed(offsets)

    async def seek(self, queue_id: int, queue_offset: int) -> None:
        """Go on at another place of a queue. Raises KeyError for a queue that is not consumed."""
        check_queue_offset(queue_offset)
        await self._begin()
        task, _ = self._readers[queue_id]
        task.cancel()
        self._positions.move(queue_id, queue_offset)
        self._read(queue_id, queue_offset)

    async def close(self) -> None:
        """End all streams. Commits nothing. May be repeated."""
        self._is_closed = True
        self._deliveries.put_nowait(None)
        tasks = [task for task, _ in self._readers.values()]
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)

    async def _begin(self) -> None:
        """Find where to begin, and begin. Only the first call does anything."""
        if self._is_begun:
            return
        self._positions.begin(await find_start(self._channels, self.topic, self.group, self._queue_ids, self._start))
        self._is_begun = True
        for queue_id, queue_offset in self._positions.all().items():
            self._read(queue_id, queue_offset)

    def _read(self, queue_id: int, queue_offset: int) -> None:
        """Begin to follow a queue."""
        room = asyncio.Semaphore(SUBSCRIBE_RESPONSE_COUNT_MAX)
        task = asyncio.create_task(self._follow(queue_id, queue_offset, room))
        self._readers[queue_id] = task, room

    def _enter(self, item: Delivery | None) -> None:
        """Take note of a delivery, unless its reader was replaced. Raises its error."""
        if item is None:
            return
        queue_id, room, content = item
        if self._readers[queue_id][1] is not room:
            return
        if isinstance(content, ReputError):
            self._read(queue_id, self._positions.all()[queue_id])  # who polls on goes on there
            raise content
        room.release()
        self._positions.add(queue_id, content)

    async def _follow(self, queue_id: int, queue_offset: int, room: asyncio.Semaphore) -> None:
        """Follow one queue, until no stream can be opened any more."""
        attempt = 0
        while True:
            error: ReputError = stream_ended()
            target = self._channels.target("indexer")
            call = self._channels.open(subscribe(self.topic, queue_id, queue_offset, self._tags, self._where))
            try:
                async for response in call:
                    attempt = 0
                    queue_offset = response.next_queue_offset
                    await room.acquire()
                    self._deliveries.put_nowait((queue_id, room, response))
            except grpc.RpcError as failure:
                error = from_rpc_error(failure, "indexer")
            finally:
                call.cancel()
            self._channels.on_failure("indexer", target, error)
            delay_s = self._channels.retry.delay_s(attempt, error)
            if delay_s is None:
                self._deliveries.put_nowait((queue_id, room, error))
                return
            attempt += 1
            await asyncio.sleep(delay_s)
