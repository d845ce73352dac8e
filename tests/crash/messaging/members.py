# SPDX-License-Identifier: Apache-2.0
"""Members of groups on the Python client: they receive and settle messages, and write deliveries and answers down.

Members acknowledge nearly all messages, give a few back, and leave a message now and then. Invariants: a delivery is in
the history before its member settles it; a member repeats an acknowledgement until it is answered. Callers: a single
event loop.
"""

import asyncio
import random
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence

from reput_client import Received, ReputError
from reput_client.aio import AsyncClient, AsyncShareConsumer

from tests.crash.messaging.history import Delivery, Group, History, Place, Verb

RECEIVER_COUNT = 2
INVISIBLE_S = 4.0
WAIT_S = 1.0
HOLD_S_MAX = 60.0
PAUSE_S_MAX = 0.04
AGAIN_S = 0.05
NACK_CHANCE, NACK_S, LEAVE_CHANCE = 0.03, 0.2, 0.01


def now_ms() -> float:
    """The time of the history."""
    return time.time_ns() / 1e6


class Members:
    """RECEIVER_COUNT members of each group. `start` them, then `end` them."""

    def __init__(self, client: AsyncClient, history: History, chance: random.Random) -> None:
        self._client, self._history, self._chance = client, history, chance
        self._tasks: list[asyncio.Task[None]] = []

    def start(self, groups: Mapping[str, Group]) -> None:
        """Begin to receive."""
        self._tasks += [
            asyncio.create_task(self._receive(name, group.topic, keeps=bool(number)))
            for name, group in groups.items()
            for number in range(RECEIVER_COUNT)
        ]

    async def end(self) -> None:
        """End all members. Raises the error that ended a member too early."""
        for task in self._tasks:
            task.cancel()
        for result in await asyncio.gather(*self._tasks, return_exceptions=True):
            if isinstance(result, Exception):
                raise result

    async def _receive(self, group: str, topic: str, *, keeps: bool) -> None:
        """Run a member. With `keeps` the member asks for more time; without, it may leave a message."""
        hold_s_max = HOLD_S_MAX if keeps else 0.0
        consumer = self._client.share_consumer(topic, group=group, invisible_s=INVISIBLE_S, hold_s_max=hold_s_max)
        try:
            while True:
                await self._receive_once(consumer, keeps=keeps)
        finally:
            await consumer.close()

    async def _receive_once(self, consumer: AsyncShareConsumer, *, keeps: bool) -> None:
        began_ms = now_ms()
        try:
            received = await consumer.receive(self._chance.choice((1, 4, 16)), wait_s=WAIT_S)
        except ReputError:
            await asyncio.sleep(AGAIN_S)
            return
        deliveries = [_delivery(consumer.group, one, began_ms, now_ms()) for one in received]
        self._history.deliveries += deliveries
        await asyncio.sleep(self._chance.random() * PAUSE_S_MAX)
        await self._settle(consumer, list(zip(received, deliveries, strict=True)), keeps=keeps)

    async def _settle(
        self, consumer: AsyncShareConsumer, pairs: list[tuple[Received, Delivery]], *, keeps: bool
    ) -> None:
        """Acknowledge messages together. Give a message back, or leave a message, now and then."""
        if pairs and self._chance.random() < NACK_CHANCE * len(pairs):
            received, delivery = pairs.pop()
            delivery.delay_ms = NACK_S * 1000
            await _settled("nack", [delivery], lambda: consumer.nack(received, delay_s=NACK_S))
        if pairs and not keeps and self._chance.random() < LEAVE_CHANCE * len(pairs):
            pairs.pop()
        messages = [received for received, _ in pairs]
        await _settled("ack", [delivery for _, delivery in pairs], lambda: consumer.ack(*messages))


async def _settled(verb: Verb, deliveries: Sequence[Delivery], ask: Callable[[], Awaitable[None]]) -> None:
    """Repeat the call until it is answered. It is unknown which outdated handles an earlier try settled."""
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
