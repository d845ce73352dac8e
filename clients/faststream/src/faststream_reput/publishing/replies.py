# SPDX-License-Identifier: Apache-2.0
"""Replies: the answers that this process waits for, read from the topic of replies by its own tag."""

import asyncio
import contextlib
import logging
import uuid

from faststream.exceptions import SetupError
from reput_client import AlreadyExistsError, Message, NotFoundError, ReputError
from reput_client.aio import AsyncClient, AsyncConsumer

from faststream_reput.messages.parser import CORRELATION_ID

log = logging.getLogger("faststream_reput")
PAUSE_S = 1.0


def split_address(address: str) -> tuple[str, str | None]:
    """Return topic and tag of an address for replies, `topic` or `topic:tag`."""
    topic, _, tag = address.partition(":")
    return topic, tag or None


class Replies:
    """Waits for replies. Each broker has its own tag, so a process reads only the replies to its own requests."""

    def __init__(self, client: AsyncClient, topic: str) -> None:
        self._client, self._topic, self._tag = client, topic, uuid.uuid4().hex
        self._waiting: dict[str, asyncio.Future[Message]] = {}
        self._beginning = asyncio.Lock()
        self._reading: asyncio.Task[None] | None = None

    @property
    def address(self) -> str:
        """The `reply_to` of requests."""
        return f"{self._topic}:{self._tag}"

    async def expect(self, correlation_id: str) -> asyncio.Future[Message]:
        """Return a future for the reply with this correlation id. Cancel it when the caller gives up."""
        if correlation_id in self._waiting:
            raise SetupError(f"correlation_id is {correlation_id!r}: another request waits for a reply with it")
        future = self._waiting[correlation_id] = asyncio.get_running_loop().create_future()
        future.add_done_callback(lambda _: self._waiting.pop(correlation_id, None))
        try:
            async with self._beginning:
                await self._begin()
        except BaseException:
            future.cancel()
            raise
        return future

    async def close(self) -> None:
        """Stop reading. Requests that wait get a CancelledError."""
        if self._reading is not None:
            self._reading.cancel()
            await asyncio.wait([self._reading])
        for future in list(self._waiting.values()):
            future.cancel()

    async def _begin(self) -> None:
        """Read the topic of replies from its end on, which is fixed before the first request is sent."""
        if self._reading is not None:
            return
        try:
            await self._client.topics.get(self._topic)
        except NotFoundError:
            with contextlib.suppress(AlreadyExistsError):
                await self._client.topics.create(self._topic)
        consumer = self._client.consumer(self._topic, start="latest", tags=self._tag)
        await consumer.positions()
        self._reading = asyncio.create_task(self._read(consumer), name="reput-replies")

    async def _read(self, consumer: AsyncConsumer) -> None:
        async with consumer:
            while True:
                try:
                    async for message in consumer:
                        self._found(message)
                except ReputError as error:
                    log.warning("replies are late: %s", error)
                    await asyncio.sleep(PAUSE_S)

    def _found(self, message: Message) -> None:
        future = self._waiting.get(message.properties.get(CORRELATION_ID, ""))
        if future is not None and not future.done():
            future.set_result(message)
