# SPDX-License-Identifier: Apache-2.0
"""ReputSubscriber and ReputBatchSubscriber: their handlers get the messages of a topic that their group shares."""

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Sequence
from typing import TYPE_CHECKING, Any

from faststream._internal.endpoint.subscriber import SubscriberUsecase
from faststream._internal.endpoint.utils import process_msg
from faststream.exceptions import SetupError
from faststream.message import StreamMessage
from faststream.middlewares import AckPolicy
from reput_client import NotFoundError, Received, ReputError
from reput_client.aio import AsyncShareConsumer

from faststream_reput.config import ReputBrokerConfig
from faststream_reput.messages.delivery import Delivery, held_by, settle
from faststream_reput.messages.message import ReputBatchMessage
from faststream_reput.messages.parser import ReputBatchParser, ReputParser
from faststream_reput.publishing.publisher import ReputReplyPublisher
from faststream_reput.subscribing.config import ReputSubscriberConfig, group_of

if TYPE_CHECKING:
    from faststream._internal.endpoint.publisher import PublisherProto
    from faststream._internal.endpoint.subscriber import SubscriberSpecification
    from faststream._internal.endpoint.subscriber.call_item import CallsCollection

NO_TOPIC_PAUSE_S = 0.2
REFUSED_PAUSE_S = 5.0
"""The time between attempts when the store refuses to deliver, for example because of a missing right."""
WAIT_S_MAX = 30.0
"""Longest wait that the store takes."""


class ReputSubscriber(SubscriberUsecase[Any]):
    """A member of a group: each message goes to a single member, and comes again until it is settled."""

    __slots__ = ("_config", "_consumer", "_ending", "_running", "_stopped", "_working")

    _outer_config: ReputBrokerConfig

    def __init__(
        self,
        config: ReputSubscriberConfig,
        specification: "SubscriberSpecification[Any, Any]",
        calls: "CallsCollection[Any]",
    ) -> None:
        self._set_parser(config)
        super().__init__(config, specification, calls)
        self._config = config
        self._consumer: AsyncShareConsumer | None = None
        self._stopped = asyncio.Event()
        self._running: asyncio.Task[None] | None = None
        self._ending: asyncio.Task[None] | None = None
        self._working = set[asyncio.Task[Any]]()
        """The tasks that process messages."""

    @property
    def topic(self) -> str:
        """The topic with the prefixes of the routers."""
        return f"{self._outer_config.prefix}{self._config.topic}"

    @property
    def group(self) -> str:
        """The group of the subscriber, its router or its broker. Empty without any."""
        return self._config.group or group_of(self._outer_config)

    @property
    def tags(self) -> str:
        """The tags that the group gets."""
        return self._config.tags

    @property
    def where(self) -> str:
        """The condition on properties of the messages that the group gets."""
        return self._config.where

    async def start(self) -> None:
        """Receive messages, if a handler is there. Only the first start has an effect, until `stop`.

        Raises SetupError without a group, and ReputError if the group's policy can't be set.
        """
        if self._consumer is not None:
            return
        if not self.group:
            raise SetupError(f"the subscriber of {self.topic} has no group: give `group` to it, its router or broker")
        await super().start()
        if self._config.policy is not None:
            await self._outer_config.client.share_groups.set(self.group, self._config.policy)
        self._stopped = asyncio.Event()
        self._consumer, self._ending = self._open(), None
        self._post_start()
        if self.calls:
            self._running = asyncio.create_task(self._run(), name=f"reput {self.topic} {self.group}")

    async def stop(self) -> None:
        """Receive no more, and wait for the handlers: then they are cancelled, and their messages come again.

        Messages that no handler has begun are given back at once. A handler that stops its own subscriber does not wait
        for the others.
        """
        self.running = False
        self._stopped.set()
        if self._consumer is not None:
            consumer, self._consumer = self._consumer, None
            self._ending = asyncio.create_task(consumer.close())
        if self._ending is None or asyncio.current_task() in self._working:
            return
        await super().stop()
        for task in self._working:
            task.cancel()
        await asyncio.wait([one for one in (self._ending, self._running) if one is not None])

    async def get_one(self, *, timeout: float = 5.0) -> StreamMessage[Any] | None:
        """Return a message, None without a message in time. Settle it: its lease is extended until then."""
        received = await self._take(timeout)
        if not received:
            return None
        return await self._processed(held_by(self._held(), received[0]))

    async def __aiter__(self) -> AsyncIterator[StreamMessage[Any]]:
        """Yield messages until `stop`. Settle each: its lease is extended until then."""
        self._assert_no_handlers()
        consumer = self._held()
        async for received in consumer:
            message = await self._processed(held_by(consumer, received))
            if message is not None:
                yield message

    def get_log_context(self, message: StreamMessage[Any] | None) -> dict[str, str]:
        """Return the columns of a line of the log."""
        return {"topic": self.topic, "group": self.group, "message_id": getattr(message, "message_id", "")}

    def _set_parser(self, config: ReputSubscriberConfig) -> None:
        parser = ReputParser()
        config.parser, config.decoder = parser.parse_message, parser.decode_message

    def _make_response_publisher(self, message: StreamMessage[Any]) -> "Sequence[PublisherProto]":
        return (ReputReplyPublisher(self._outer_config.producer, message.reply_to),)

    def _open(self) -> AsyncShareConsumer:
        config = self._config
        return self._outer_config.client.share_consumer(
            self.topic,
            group=self.group,
            tags=config.tags,
            where=config.where,
            invisible_s=config.invisible_s,
            hold_s_max=config.hold_s_max,
            poll_s=self._outer_config.poll_s,
        )

    async def _run(self) -> None:
        """Receive until `stop`, also after refusals."""
        while not self._stopped.is_set() and (consumer := self._consumer) is not None:
            try:
                await self._receive(consumer)
            except ReputError as error:
                self._log(logging.ERROR, f"`{self.topic}` gives no messages: {error}", self.get_log_context(None))
            else:
                return
            await consumer.close()
            try:
                async with asyncio.timeout(REFUSED_PAUSE_S):
                    await self._stopped.wait()
            except TimeoutError:
                self._consumer = self._open()

    async def _receive(self, consumer: AsyncShareConsumer) -> None:
        async def handle(received: Received) -> None:
            await self._work(held_by(consumer, received))

        await consumer.run(handle, concurrency=self._config.max_workers, acks=False)

    async def _work(self, *deliveries: Delivery) -> None:
        """Process deliveries. Raises the error of a failed settlement, after which their messages come again."""
        if not self.running:
            await settle(deliveries, "release")
            return
        task = asyncio.current_task()
        assert task is not None
        self._working.add(task)
        try:
            await self.consume(self.raw(deliveries))
        finally:
            self._working.discard(task)
        for one in deliveries:
            if one.failure is not None:
                raise one.failure

    def raw(self, deliveries: Sequence[Delivery]) -> Any:
        """Return deliveries as the parser takes them."""
        (delivery,) = deliveries
        return delivery

    def _held(self) -> AsyncShareConsumer:
        if self._consumer is None:
            raise SetupError(f"the subscriber of {self.topic} is not started")
        return self._consumer

    def _assert_no_handlers(self) -> None:
        assert not self.calls, f"the subscriber of {self.topic} has handlers, which get its messages"

    async def _take(self, timeout_s: float, count: int = 1) -> list[Received]:
        """Return messages for a caller, an empty list if none comes in time."""
        self._assert_no_handlers()
        consumer, end_s = self._held(), time.monotonic() + timeout_s
        while True:
            wait_s = end_s - time.monotonic()
            received = await _receive(consumer, count, min(max(wait_s, 0.0), WAIT_S_MAX))
            if received or time.monotonic() >= end_s:
                return received

    async def _processed(self, raw: Any) -> StreamMessage[Any] | None:
        """Return the message of a delivery behind the middlewares."""
        context = self._outer_config.context
        parser, decoder = self._get_parser_and_decoder()
        message: StreamMessage[Any] | None = await process_msg(
            msg=raw,
            middlewares=(one(raw, context=context) for one in self._broker_middlewares),
            parser=parser,
            decoder=decoder,
        )
        if message is not None and self.ack_policy is AckPolicy.ACK_FIRST:
            await message.ack()
        return message


class ReputBatchSubscriber(ReputSubscriber):
    """Its handler gets up to `max_records` messages that have arrived, and settles them together."""

    __slots__ = ()

    async def get_one(self, *, timeout: float = 5.0) -> ReputBatchMessage | None:
        """Return messages that have arrived, None without any in time."""
        received = await self._take(timeout, self._config.max_records)
        if not received:
            return None
        return await self._processed(tuple(held_by(self._held(), one) for one in received))  # type: ignore[return-value]

    async def __aiter__(self) -> AsyncIterator[ReputBatchMessage]:
        """Yield messages that have arrived, together, until `stop`."""
        while self.running:
            message = await self.get_one(timeout=self._outer_config.poll_s)
            if message is not None:
                yield message

    def _set_parser(self, config: ReputSubscriberConfig) -> None:
        parser = ReputBatchParser()
        config.parser, config.decoder = parser.parse_batch, parser.decode_batch

    async def _receive(self, consumer: AsyncShareConsumer) -> None:
        while not self._stopped.is_set():
            received = await _receive(consumer, self._config.max_records, self._outer_config.poll_s)
            if received:
                await self._work(*(held_by(consumer, one) for one in received))

    def raw(self, deliveries: Sequence[Delivery]) -> Any:
        """Return deliveries as the parser takes them."""
        return tuple(deliveries)


async def _receive(consumer: AsyncShareConsumer, count: int, wait_s: float) -> list[Received]:
    """Return messages that have arrived, an empty list if none comes in time or the topic does not exist yet."""
    try:
        return await consumer.receive(count, wait_s)
    except NotFoundError:
        await asyncio.sleep(min(wait_s, NO_TOPIC_PAUSE_S))
        return []
