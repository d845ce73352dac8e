# SPDX-License-Identifier: Apache-2.0
"""TestReputBroker: handlers in a test, called by `publish` itself, or by a real store."""

import asyncio
from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from types import SimpleNamespace, TracebackType
from typing import Any, cast, overload
from uuid import uuid4

from faststream._internal.parser import DefaultCodec
from faststream._internal.testing.broker import EnterType, TestBroker, change_producer
from faststream.exceptions import FeatureNotSupportedException, SubscriberNotFound
from reput_client import Durability, Received, SendResult
from reput_client.aio import AsyncClient

from faststream_reput.broker.broker import ReputBroker
from faststream_reput.messages.delivery import Delivery
from faststream_reput.messages.response import ReputPublishCommand
from faststream_reput.publishing.producer import REQUEST_TIMEOUT_S, ReputProducer, new_message
from faststream_reput.publishing.publisher import ReputPublisher
from faststream_reput.subscribing.subscriber import ReputBatchSubscriber, ReputSubscriber

__all__ = ["FakeProducer", "TestReputBroker"]

POLL_S = 0.1
"""Subscribers of a real store stop this fast in a test."""


class TestReputBroker(TestBroker[ReputBroker, EnterType], broker=ReputBroker):
    """Runs handlers in a test.

    By itself `publish` calls the handlers, waits for them and raises their errors; there is no store, no time and no
    retry. With `with_real=True` the broker is connected to a store, for example that of the fixture `reput` of
    pytest-reput, which is in the test process.
    """

    @overload
    def __init__(
        self: "TestReputBroker[ReputBroker]",
        broker: ReputBroker,
        /,
        *,
        with_real: bool = False,
        connect_only: bool | None = None,
    ) -> None: ...
    @overload
    def __init__(
        self: "TestReputBroker[tuple[ReputBroker, ...]]",
        *brokers: ReputBroker,
        with_real: bool = False,
        connect_only: bool | None = None,
    ) -> None: ...
    def __init__(self, *brokers: ReputBroker, with_real: bool = False, connect_only: bool | None = None) -> None:
        super().__init__(*brokers, with_real=with_real, connect_only=connect_only)
        self._poll_s = [broker.config.broker_config.poll_s for broker in brokers]

    async def __aenter__(self) -> EnterType:
        for broker in self.brokers:
            broker.config.broker_config.poll_s = POLL_S
        return await super().__aenter__()

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None = None,
        exc_val: BaseException | None = None,
        exc_tb: TracebackType | None = None,
    ) -> None:
        try:
            await super().__aexit__(exc_type, exc_val, exc_tb)
        finally:
            for broker, poll_s in zip(self.brokers, self._poll_s, strict=True):
                broker.config.broker_config.poll_s = poll_s

    def create_publisher_fake_subscriber(
        self, broker: ReputBroker, publisher: ReputPublisher
    ) -> tuple[ReputSubscriber, bool]:
        """Return a subscriber of the publisher's topic, and whether the program declared it."""
        for subscriber in _subscribers(self.brokers):
            if subscriber.topic == publisher.topic:
                return subscriber, True
        return broker.subscriber(publisher.topic, group=f"test-{uuid4().hex}", persistent=False), False

    @contextmanager
    def _patch_producer(self, broker: ReputBroker) -> Generator[None, None, None]:
        config = broker.config.broker_config
        connected, config.connected = config.connected, cast("AsyncClient", _Unconnected())
        try:
            with change_producer(config, FakeProducer(broker, self.brokers)):
                yield
        finally:
            config.connected = connected

    async def _fake_connect(self, broker: ReputBroker, *_: Any, **__: Any) -> Any:
        return broker.config.broker_config.connected


@dataclass(frozen=True, slots=True)
class _Sent:
    """A message as a subscriber would get it from the store."""

    topic: str
    body: bytes
    properties: dict[str, str]
    tag: str | None
    keys: tuple[str, ...]
    unique_id: str
    offset_message_id: str = ""


class FakeProducer(ReputProducer):
    """Hands messages to the handlers of the brokers, to a single member of each group."""

    def __init__(self, broker: ReputBroker, brokers: Sequence[ReputBroker]) -> None:
        super().__init__(broker._parser, broker._decoder)
        self._brokers = brokers
        self.codec = broker.config.broker_codec or DefaultCodec()
        self.serializer = broker.config.fd_config._serializer

    async def publish(self, cmd: ReputPublishCommand) -> SendResult:
        """Call the handlers of a message, and raise their errors."""
        body, content_type = await self.codec.encode(cmd.body, self.serializer)
        sent = _sent(cmd, body, content_type)
        await self._hand_out([sent])
        return _result(sent)

    async def publish_batch(self, cmd: ReputPublishCommand) -> list[SendResult]:
        """Call the handlers of messages, and raise their errors."""
        some = [_sent(cmd, body, content_type) for body, content_type in await self._encode_all(cmd)]
        await self._hand_out(some)
        return [_result(one) for one in some]

    async def request(self, cmd: ReputPublishCommand) -> Delivery:
        """Call the first handler of a message, and return its result as a reply."""
        body, content_type = await self.codec.encode(cmd.body, self.serializer)
        sent = _sent(cmd, body, content_type)
        for subscriber in self._members(sent):
            async with asyncio.timeout(REQUEST_TIMEOUT_S if cmd.timeout is None else cmd.timeout):
                result = await subscriber.process_message(_raw(subscriber, [sent]))
            reply = ReputPublishCommand.from_cmd(result.as_publish_command())
            reply.destination = cmd.destination
            body, content_type = await self.codec.encode(reply.body, self.serializer)
            return Delivery(_sent(reply, body, content_type))
        raise SubscriberNotFound(f"topic {cmd.destination} has no subscriber")

    async def _hand_out(self, some: Sequence[_Sent]) -> None:
        """Hand messages of a topic out: together to subscribers of batches, otherwise in sequence."""
        if not some:
            return
        for subscriber in self._members(some[0]):
            for part in [some] if isinstance(subscriber, ReputBatchSubscriber) else [[one] for one in some]:
                await subscriber.process_message(_raw(subscriber, part))

    def _members(self, sent: _Sent) -> Iterator[ReputSubscriber]:
        """Yield a subscriber of each group that gets the message."""
        groups = set[str]()
        for subscriber in _subscribers(self._brokers):
            if subscriber.topic != sent.topic or subscriber.group in groups:
                continue
            if subscriber.where:
                raise FeatureNotSupportedException(
                    f"where is {subscriber.where!r}: conditions are evaluated by a store, use `with_real=True`"
                )
            if subscriber.tags == "*" or sent.tag in [one.strip() for one in subscriber.tags.split("||")]:
                groups.add(subscriber.group)
                yield subscriber


class _Unconnected:
    """The client of a broker without a store: consumers that get nothing until they are closed."""

    share_groups = SimpleNamespace(set=lambda *_: asyncio.sleep(0))

    def share_consumer(self, _: str, **__: Any) -> "_Silent":
        return _Silent()


class _Silent:
    def __init__(self) -> None:
        self._closed = asyncio.Event()

    async def run(self, *_: Any, **__: Any) -> None:
        await self._closed.wait()

    async def receive(self, _: int, wait_s: float) -> list[Received]:
        await asyncio.sleep(wait_s)
        return []

    async def close(self) -> None:
        self._closed.set()


def _subscribers(brokers: Sequence[ReputBroker]) -> list[ReputSubscriber]:
    return [cast("ReputSubscriber", one) for broker in brokers for one in broker.subscribers]


def _sent(cmd: ReputPublishCommand, body: bytes, content_type: str | None) -> _Sent:
    message = new_message(cmd, body, content_type)
    keys = (message.keys,) if isinstance(message.keys, str) else tuple(message.keys)
    return _Sent(message.topic, bytes(message.body), dict(message.properties), message.tag, keys, uuid4().hex.upper())


def _raw(subscriber: ReputSubscriber, some: Sequence[_Sent]) -> Any:
    return subscriber.raw([Delivery(one) for one in some])


def _result(sent: _Sent) -> SendResult:
    return SendResult(0, 0, 0, 0, Durability.DEFAULT, sent.unique_id, b"")
