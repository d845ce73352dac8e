# SPDX-License-Identifier: Apache-2.0
"""AsyncShardedProducer: the asyncio twin of ShardedProducer, over the same routing.

The tasks of the shards' producers bring outcomes. A task for each shard asks it about topics.
"""

import asyncio
import contextlib
import random
from collections.abc import Callable, Coroutine, Mapping, Sequence
from functools import partial
from typing import Any

import grpc
from reput.commitlog.v1 import topic_service_pb2

from reput_client.aio.channels import AsyncChannels
from reput_client.aio.closing import AsyncClosing
from reput_client.aio.producer import AsyncProducer, BatchFuture, SendFuture
from reput_client.core.answers import topic_in
from reput_client.core.call import Call
from reput_client.core.errors import ReputError, UnavailableError
from reput_client.core.options import ProducerOptions
from reput_client.core.process.birthplace import Birthplace
from reput_client.core.producing import Sender, SpanEncoder, fail, store, tell_given_up
from reput_client.core.sending import Outcome, Settlement, Stored
from reput_client.core.shards.chunks import key_of
from reput_client.core.shards.counting import Hurry, all_of, is_away, metrics_of
from reput_client.core.shards.entries import Encoded
from reput_client.core.shards.routing import Routing
from reput_client.core.shards.targets import ASK_S
from reput_client.core.sharing.outage import AT_ONCE
from reput_client.core.telemetry.metrics import ProducerMetrics
from reput_client.core.telemetry.unread import Unread
from reput_client.core.types import NewMessage, SendResult, Topic


class AsyncShardedProducer(AsyncClosing, Sender[Coroutine[Any, Any, "asyncio.Future[SendResult]"]]):
    """Sends messages to the shards of their queues. Made by `AsyncShardedClient.producer`.

    It has the same guarantees as ShardedProducer. Use it on the event loop where it was made.
    """

    def __init__(self, channels: Mapping[str, AsyncChannels], options: ProducerOptions) -> None:
        self._channels, self._birthplace = dict(channels), Birthplace()
        first = next(iter(self._channels.values()))
        self._timeout_s = first.options.timeout_s
        self._encoder = SpanEncoder(options, lambda: first.target("commitlog"))
        self._loop = asyncio.get_running_loop()
        self._routing = Routing(
            list(channels),
            window_bytes=options.window_bytes,
            patience_s=self._timeout_s,
            clock=self._loop.time,
            chance=random.random,
        )
        self._unread = Unread()
        self._changed: asyncio.Future[None] = self._loop.create_future()
        self._waiter_count = 0
        self._asking = {shard: asyncio.Event() for shard in channels}
        self._is_closing, self._closing_since_s = False, 0.0
        self._listeners = {shard: partial(self._on_failure, shard) for shard in channels}
        for shard, listener in self._listeners.items():
            channels[shard].listeners.append(listener)
        self._producers = {shard: AsyncProducer(one, options, self._on_outcomes) for shard, one in channels.items()}
        self._tasks = [self._loop.create_task(self._ask(shard), name=f"reput-shard-{shard}") for shard in channels]

    def __repr__(self) -> str:
        shards = ", ".join(self._channels)
        return f"AsyncShardedProducer({shards}, {self._routing.unsettled_bytes} bytes without an outcome)"

    async def send_message(self, message: NewMessage) -> "asyncio.Future[SendResult]":
        """Send a message like `send`, given as a NewMessage."""
        self._birthplace.check("producer")
        future = SendFuture(loop=self._loop)
        future.stored = None
        await self._add(message, (*self._encoder.one(message, future), future))
        future.hurry = all_of(self._push())
        return future

    async def send_batch(self, messages: Sequence[NewMessage]) -> "asyncio.Future[list[Outcome]]":
        """Send many messages with a single future, as Producer.send_batch does. This is the fast way."""
        self._birthplace.check("producer")
        future = BatchFuture(loop=self._loop)
        if not messages:
            future.set_result([])
            return future
        for message, encoded in zip(messages, self._encoder.many(messages, future), strict=True):
            await self._add(message, encoded)
        future.hurry = all_of(self._push())
        return future

    def metrics(self) -> ProducerMetrics:
        """Return the counters of this producer, over all shards."""
        return metrics_of(self._routing, [producer.metrics() for producer in self._producers.values()])

    async def flush(self) -> None:
        """Send the collected messages and wait until every message has its outcome, as Producer.flush does."""
        for producer in self._producers.values():
            await producer.flush()
        await self._wait_for(lambda: self._routing.is_idle)
        self._unread.tell()

    def begin_close(self) -> None:
        """Accept no more messages. `close` waits for outcomes. Its time begins here."""
        if not self._is_closing:
            self._is_closing, self._closing_since_s = True, self._loop.time()
        self._notify()

    async def close(self, timeout_s: float | None = None) -> None:
        """Flush, then end the streams, as Producer.close does. May be repeated."""
        self.begin_close()
        end_s = self._closing_since_s + (self._timeout_s if timeout_s is None else timeout_s)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout_at(end_s):
                await self.flush()
        self._give_up()
        for producer in self._producers.values():
            producer.begin_close()
        for producer in self._producers.values():
            await producer.close(max(0.0, end_s - self._loop.time()))
        self._give_up()  # messages that a shard refused meanwhile
        for task in self._tasks:
            task.cancel()
        await asyncio.wait(self._tasks)
        for shard, listener in self._listeners.items():
            with contextlib.suppress(ValueError):
                self._channels[shard].listeners.remove(listener)
        self._unread.tell()

    def _on_outcomes(self, settlements: Sequence[Settlement], _unread: Unread | None) -> None:
        """Accept outcomes from the producer of a shard, whose sinks are entries."""
        for entries, outcome in settlements:
            if isinstance(outcome, Stored):
                self._routing.on_stored(entries)
                store([entry.sink for entry in entries], outcome)
            else:
                self._routing.on_failed(entries, outcome)
        self._go_on()

    async def _add(self, message: NewMessage, encoded: Encoded) -> None:
        """Add a message to the routing. Waits for room."""
        topic, key, queue_id = message.topic, key_of(message), message.queue_id

        def has_room() -> bool:
            return self._is_closing or self._routing.has_room(len(encoded[0]), topic, key=key, queue_id=queue_id)

        if not has_room():
            self._push()
            await self._wait_for(has_room)
        if self._is_closing:
            raise ReputError("the producer is closed", code=grpc.StatusCode.CANCELLED)
        self._routing.add(topic, encoded, key=key, queue_id=queue_id)

    def _push(self) -> list[Hurry]:
        """Give messages to the producers of their shards. Returns the functions that hurry them."""
        hurries: list[Hurry | None] = []
        while sends := self._routing.pop_sends():
            for shard, placed in sends:
                try:
                    hurries.append(self._producers[shard].add_encoded(placed))
                except ReputError as error:
                    self._routing.on_unsent(placed, error)
        if self._routing.pop_questions():
            for asking in self._asking.values():
                asking.set()
        return [hurry for hurry in hurries if hurry is not None]

    def _go_on(self) -> None:
        """Send the messages that need not wait any more, at once, fail others, and wake the callers that wait."""
        for hurry in self._push():
            hurry()
        for sink, error in self._routing.pop_failed():
            fail([sink], error, self._unread)
        self._notify()

    def _give_up(self) -> None:
        """Fail the messages that wait for a queue: the producer closes."""
        tell_given_up(
            self._routing.fail_all(UnavailableError("the producer was closed", code=grpc.StatusCode.CANCELLED))
        )
        self._go_on()

    def _notify(self) -> None:
        """Wake all tasks that wait for a change of the routing."""
        if self._waiter_count:
            changed, self._changed = self._changed, self._loop.create_future()
            if not changed.done():
                changed.set_result(None)

    async def _wait_for(self, predicate: Callable[[], bool]) -> None:
        self._waiter_count += 1
        try:
            while not predicate():
                await asyncio.shield(self._changed)
        finally:
            self._waiter_count -= 1

    def _on_failure(self, shard: str, service: str, error: ReputError) -> None:
        if service == "commitlog" and is_away(error):
            self._routing.on_away(shard)

    async def _ask(self, shard: str) -> None:
        """Ask a shard about topics, as the routing needs it. This is a task."""
        while True:
            name = await self._question(shard)
            try:
                call = Call(topic_service_pb2.GetTopicRequest(name=name), topic_in, timeout_s=ASK_S)
                answer: Topic | ReputError = await self._channels[shard].run(call, AT_ONCE)
            except ReputError as error:
                answer = error
            self._routing.answer(shard, name, answer)
            self._go_on()

    async def _question(self, shard: str) -> str:
        """Return the topic to ask for, as soon as there is one."""
        while True:
            self._routing.expire()
            self._go_on()
            if (name := self._routing.question(shard)) is not None:
                return name
            self._asking[shard].clear()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self._routing.question_wait_s(shard)):
                    await self._asking[shard].wait()
