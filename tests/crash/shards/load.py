# SPDX-License-Identifier: Apache-2.0
"""Load: producers of keys and members of an ordered group, by RocketMQ's protocol at the gateway.

A producer sends the messages of its key one after the other, each until it is acknowledged. So each message of a key
is stored behind all messages before it, wherever their queues are.
"""

import asyncio
import random
import time

import grpc
import grpc.aio
from google.protobuf.duration_pb2 import Duration

from services.gateway.rpc.wire import messaging_pb2 as wire
from tests.crash.shards.history import Delivery, History, Place, Sent
from tests.support.served_gateway import Caller
from tests.support.trusted import trusted

TOPIC, GROUP = "orders", "ordered"
KEY_COUNT, MEMBER_COUNT = 16, 3
SEND_PAUSE_S_MAX, WORK_S_MAX = 0.4, 0.005
AGAIN_S, INVISIBLE_S, WAIT_S = 0.1, 10, 2
BATCH_SIZE = 8
END_S = 120.0


def now_ms() -> float:
    """Return the harness's own time."""
    return time.monotonic() * 1_000


class Load:
    """The producers and the members. `end_producers`, then `end`, in the end."""

    def __init__(self, target: str, history: History, chance: random.Random) -> None:
        self._history, self._chance = history, chance
        options = (("grpc.use_local_subchannel_pool", 1), ("grpc.initial_reconnect_backoff_ms", 50))
        more = (("grpc.max_reconnect_backoff_ms", 300), ("grpc.enable_http_proxy", 0))
        self._channel = trusted(grpc.aio.insecure_channel(target, options=(*options, *more)))
        self._is_over = False
        self._producers: list[asyncio.Task[None]] = []
        self._members: list[asyncio.Task[None]] = []

    def start(self) -> None:
        """Begin."""
        self._producers = [asyncio.create_task(self._produce(f"key-{number}")) for number in range(KEY_COUNT)]
        self._members = [asyncio.create_task(self._consume(f"member-{number}")) for number in range(MEMBER_COUNT)]

    def check(self) -> None:
        """Raise the error of a producer or a member that ended by a fault of the harness."""
        for task in (*self._producers, *self._members):
            if task.done() and not self._is_over:
                task.result()

    async def end_producers(self) -> None:
        """Send no new message, and return when the last messages are acknowledged. Raises TimeoutError after END_S."""
        self._is_over = True
        async with asyncio.timeout(END_S):
            await asyncio.gather(*self._producers)

    async def end(self) -> None:
        """End all."""
        for task in (*self._producers, *self._members):
            task.cancel()
        await asyncio.gather(*self._producers, *self._members, return_exceptions=True)
        await self._channel.close()

    def unreceived(self) -> list[str]:
        """Return acknowledged messages that no member has received yet."""
        received = {one.name for one in self._history.deliveries}
        return [name for name, sent in self._history.sent.items() if sent.answered_ms and name not in received]

    async def _produce(self, key: str) -> None:
        client, number = Caller(self._channel, f"producer of {key}"), 0
        while not self._is_over:
            sent = Sent(key, number, now_ms())
            self._history.sent[sent.name] = sent
            while sent.answered_ms is None:
                sent.tries += 1
                message = client.message(TOPIC, sent.name.encode(), message_group=key)
                try:
                    answer = await client.send(TOPIC, message)
                    if answer.status.code == wire.CODE_OK:
                        sent.answered_ms = now_ms()
                        break
                except grpc.aio.AioRpcError:
                    pass
                await asyncio.sleep(AGAIN_S)
            number += 1
            await asyncio.sleep(self._chance.random() * SEND_PAUSE_S_MAX)

    async def _consume(self, name: str) -> None:
        client = Caller(self._channel, name)
        while True:
            began_ms = now_ms()
            try:
                messages = await client.receive(
                    TOPIC, GROUP, wait_s=WAIT_S, batch_size=BATCH_SIZE, invisible_duration=Duration(seconds=INVISIBLE_S)
                )
            except (grpc.aio.AioRpcError, AssertionError):
                await asyncio.sleep(AGAIN_S)
                continue
            arrived_ms = now_ms()
            deliveries = [_delivery(message, began_ms, arrived_ms) for message in messages]
            self._history.deliveries += deliveries
            for message, delivery in zip(messages, deliveries, strict=True):
                await asyncio.sleep(self._chance.random() * WORK_S_MAX)
                await self._acknowledge(client, message.system_properties.receipt_handle, delivery)

    async def _acknowledge(self, client: Caller, handle: str, delivery: Delivery) -> None:
        """Repeat the acknowledgement until it is answered, or the time of the message is over for certain."""
        delivery.settle_began_ms = now_ms()
        while now_ms() < delivery.arrived_ms + INVISIBLE_S * 1_000:
            try:
                answer = await client.ack(TOPIC, handle, group=GROUP)
            except grpc.aio.AioRpcError:
                await asyncio.sleep(AGAIN_S)
                continue
            code = answer.entries[0].status.code if answer.entries else answer.status.code
            if code == wire.CODE_OK:
                delivery.settled_ms = now_ms()
                return
            if code == wire.CODE_INVALID_RECEIPT_HANDLE:
                return  # an earlier try counted, or another member has the message
            await asyncio.sleep(AGAIN_S)


def _delivery(message: wire.Message, began_ms: float, arrived_ms: float) -> Delivery:
    system = message.system_properties
    place = Place(system.queue_id, system.queue_offset)
    return Delivery(message.body.decode(), place, system.delivery_attempt, began_ms, arrived_ms)
