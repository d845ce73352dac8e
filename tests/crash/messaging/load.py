# SPDX-License-Identifier: Apache-2.0
"""Load: producers and receivers on the Python client of this project, which write down what they did and were told.

Producers send plain messages, messages of a key one after the other, delayed ones, and transactions that commit, roll
back or are left open. Receivers acknowledge nearly all, give some back, and some leave a message now and then.
Invariants: a message is in the history before it is sent, a settlement before it is asked for; an acknowledgement is
asked for until somebody answers. Callers: one event loop.
"""

import asyncio
import itertools
import random
import time
from collections.abc import Awaitable, Callable, Sequence

from reput_client import Durability, ProducerOptions, Received, ReputError
from reput_client.aio import AsyncClient, AsyncShareConsumer

from tests.crash.messaging.history import Delivery, Group, History, Place, Sent, Verb

TOPIC, KEYED_TOPIC = "orders", "lanes"
QUEUE_COUNT = 2
GROUPS = {"billing": Group(TOPIC), "audit": Group(TOPIC), "ordered": Group(KEYED_TOPIC, is_ordered=True)}
RECEIVER_COUNT = 2
PLAIN_COUNT, KEY_COUNT = 2, 3
INVISIBLE_S = 4.0
WAIT_S = 1.0
PAUSE_S_MAX, SLOW_PAUSE_S_MAX = 0.04, 0.25
AGAIN_S = 0.05
DELAY_MS_MIN, DELAY_MS_MAX = 200, 2_500
NACK_CHANCE, NACK_S, LEAVE_CHANCE = 0.03, 0.2, 0.01
PRODUCER_GROUP = "shop"
NEVER_CHECKED_S = 24 * 3600
"""Nobody is asked how an open transaction ends."""
REFUSED = ("TRANSACTION_ENDED", "TRANSACTION_NOT_FOUND")
END_TIMEOUT_S = 60.0


def now_ms() -> float:
    """The time of the history."""
    return time.time_ns() / 1e6


class Load:
    """`start` it; `end_producers`, and when all is drained `end`. `wrong` is what an answer said that can't be."""

    def __init__(self, client: AsyncClient, history: History, chance: random.Random) -> None:
        self.wrong: list[str] = []
        self._client, self._history, self._chance = client, history, chance
        self._producer = client.producer(ProducerOptions(linger_ms=1, durability=Durability.LOCAL_DISK))
        self._is_over = False
        self._producers: list[asyncio.Task[None]] = []
        self._receivers: list[asyncio.Task[None]] = []

    def start(self) -> None:
        """Begin to send and to receive."""
        producers = [
            *(self._send_plain(f"plain{number}") for number in range(PLAIN_COUNT)),
            *(self._send_keyed(f"key{number}", number % QUEUE_COUNT) for number in range(KEY_COUNT)),
            *(self._send_delayed(), self._send_transactions()),
        ]
        self._producers = [asyncio.create_task(one) for one in producers]
        self._receivers = [
            asyncio.create_task(self._receive(name, group.topic, keeps=bool(number)))
            for name, group in GROUPS.items()
            for number in range(RECEIVER_COUNT)
        ]

    async def end_producers(self) -> None:
        """Send nothing more; all that was sent has its outcome then. Raises TimeoutError, and what ended a task."""
        self._is_over = True
        async with asyncio.timeout(END_TIMEOUT_S):
            await asyncio.gather(*self._producers)

    async def end(self) -> None:
        """Receive nothing more. Raises what ended a task too early."""
        for task in (*self._producers, *self._receivers):
            task.cancel()
        for result in await asyncio.gather(*self._producers, *self._receivers, return_exceptions=True):
            if isinstance(result, Exception):
                raise result

    async def _send_plain(self, name: str) -> None:
        for number in itertools.count():
            if self._is_over:
                return
            await self._send(Sent(f"{name}-{number}", TOPIC, "plain", now_ms()))
            await self._pause(PAUSE_S_MAX)

    async def _send_keyed(self, key: str, queue_id: int) -> None:
        for number in itertools.count():
            if self._is_over:
                return
            sent = Sent(f"{key}-{number}", KEYED_TOPIC, "keyed", now_ms(), key=key)
            await self._send(sent, queue_id)
            await self._pause(SLOW_PAUSE_S_MAX)  # one of a key is on its way at a time, so more would pile up

    async def _send_delayed(self) -> None:
        for number in itertools.count():
            if self._is_over:
                return
            began_ms = now_ms()
            due_ms = round(began_ms) + self._chance.randint(DELAY_MS_MIN, DELAY_MS_MAX)
            sent = Sent(f"delayed-{number}", TOPIC, "delayed", began_ms, deliver_ms=due_ms)
            sent.is_after_delay = bool(number % 2)
            await self._send(sent)
            await self._pause(SLOW_PAUSE_S_MAX)

    async def _send(self, sent: Sent, queue_id: int | None = None) -> None:
        self._history.sent[sent.name] = sent
        try:
            future = await self._producer.send(
                sent.topic,
                sent.name.encode(),
                queue_id=queue_id,
                sharding_key=sent.key or None,
                deliver_at=None if sent.is_after_delay else sent.deliver_ms or None,
                delay_s=(sent.deliver_ms - sent.began_ms) / 1000 if sent.is_after_delay else None,
            )
            result = await future
        except ReputError:
            sent.given_up_ms = now_ms()
        else:
            sent.answered_ms = now_ms()
            if not sent.deliver_ms:
                sent.place = Place(sent.topic, result.queue_id, result.queue_offset)

    async def _send_transactions(self) -> None:
        for number in itertools.count():
            if self._is_over:
                return
            sent = Sent(f"transaction-{number}", TOPIC, "transaction", now_ms())
            self._history.sent[sent.name] = sent
            try:
                transaction = await self._client.transactions.begin(
                    TOPIC, sent.name.encode(), group=PRODUCER_GROUP, check_after_s=NEVER_CHECKED_S
                )
            except ReputError:
                sent.given_up_ms = now_ms()
                continue
            sent.answered_ms = now_ms()
            await self._pause(SLOW_PAUSE_S_MAX)
            sent.end = self._chance.choices(("commit", "rollback", ""), (6, 3, 1))[0]
            if sent.end:
                await self._end_transaction(sent, transaction.commit if sent.end == "commit" else transaction.rollback)

    async def _end_transaction(self, sent: Sent, end: Callable[[], Awaitable[None]]) -> None:
        sent.end_began_ms = now_ms()
        while sent.ended_ms is None:
            try:
                await end()
                sent.ended_ms = now_ms()
            except ReputError as error:
                if error.reason in REFUSED:
                    self.wrong.append(f"the {sent.end} of {sent.name} is refused: {error}")
                    return
                await asyncio.sleep(AGAIN_S)

    async def _receive(self, group: str, topic: str, *, keeps: bool) -> None:
        """Be one member. One that `keeps` its messages asks for more time; any other may leave one."""
        hold_s_max = END_TIMEOUT_S if keeps else 0.0
        consumer = self._client.share_consumer(topic, group=group, invisible_s=INVISIBLE_S, hold_s_max=hold_s_max)
        while True:
            began_ms = now_ms()
            try:
                received = await consumer.receive(self._chance.choice((1, 4, 16)), wait_s=WAIT_S)
            except ReputError:
                await asyncio.sleep(AGAIN_S)
                continue
            deliveries = [_delivery(group, one, began_ms, now_ms()) for one in received]
            self._history.deliveries += deliveries
            await self._pause(PAUSE_S_MAX)
            await self._settle(consumer, list(zip(received, deliveries, strict=True)), keeps=keeps)

    async def _settle(
        self, consumer: AsyncShareConsumer, pairs: list[tuple[Received, Delivery]], *, keeps: bool
    ) -> None:
        """Acknowledge messages together; give one back, or leave one, now and then."""
        if pairs and self._chance.random() < NACK_CHANCE * len(pairs):
            received, delivery = pairs.pop()
            delivery.delay_ms = NACK_S * 1000
            await _settled("nack", [delivery], lambda: consumer.nack(received, delay_s=NACK_S))
        if pairs and not keeps and self._chance.random() < LEAVE_CHANCE * len(pairs):
            pairs.pop()
        messages = [received for received, _ in pairs]
        await _settled("ack", [delivery for _, delivery in pairs], lambda: consumer.ack(*messages))

    async def _pause(self, s_max: float) -> None:
        await asyncio.sleep(self._chance.random() * s_max)


async def _settled(verb: Verb, deliveries: Sequence[Delivery], ask: Callable[[], Awaitable[None]]) -> None:
    """Ask for it until somebody answers. Of outdated handles nobody knows which of them an earlier try settled."""
    for one in deliveries:
        one.verb, one.settle_began_ms = verb, now_ms()
    while True:
        try:
            await ask()
        except ReputError as error:
            if error.reason == "HANDLE_OUTDATED":
                return
            await asyncio.sleep(AGAIN_S)
        else:
            break
    for one in deliveries:
        one.settled_ms = now_ms()


def _delivery(group: str, received: Received, began_ms: float, arrived_ms: float) -> Delivery:
    message = received.message
    place = Place(message.topic, message.queue_id, message.queue_offset)
    invisible_ms = INVISIBLE_S * 1000
    return Delivery(group, place, message.body.decode(), received.attempt, began_ms, arrived_ms, invisible_ms)
