# SPDX-License-Identifier: Apache-2.0
"""Official: load on RocketMQ's own client for Python, unmodified, through the gateway; it is not always there.

`make clients` fetches it into build/gateway. Each producer and each consumer is a process of its own that carries out
its commands in turn; an error of the client is an answer like any other. Receipt handles are read for the place of a
message, which the client does not tell. Callers: a single event loop.
"""

import asyncio
import contextlib
import itertools
import random
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

from services.delivery.engine.state.handle import Handle
from tests.crash.messaging.history import Delivery, Group, History, Place, Sent
from tests.crash.messaging.load import KEYED_TOPIC, TOPIC
from tests.crash.messaging.members import now_ms
from tests.gateway import drivers

GROUPS = {
    "official": Group(TOPIC, is_native=False),
    "official-ordered": Group(KEYED_TOPIC, is_ordered=True, is_native=False),
}
KEYS = ("message-group-a", "message-group-b")
INVISIBLE_S = 15
"""Not less than the client needs to find a gateway again, and to repeat an acknowledgement."""
RECEIVE_COUNT = 4
PAUSE_S_MAX, AGAIN_S = 0.1, 0.1
OUTDATED = "was delivered again since"
"""Delivery's text for a receipt handle that does not fit any more."""


def is_there() -> bool:
    """Whether the client was fetched."""
    return (drivers.BUILD / "python" / "ready").exists()


class Official:
    """The load within `running`; `end_producer` ends its first half."""

    def __init__(self, history: History, chance: random.Random) -> None:
        self._history, self._chance = history, chance
        self._is_over = False
        self._producer: asyncio.Task[None] | None = None

    @contextlib.asynccontextmanager
    async def running(self, port: int, directory: Path) -> AsyncIterator[None]:
        """Send and receive at the gateway on a port, within the block. Raises AssertionError if a driver ends."""
        async with contextlib.AsyncExitStack() as stack:
            producer, *consumers = [
                await stack.enter_async_context(drivers.running(drivers.python(), directory, directory / "drivers.log"))
                for _ in ("producer", *GROUPS)
            ]
            for driver in (producer, *consumers):
                await driver.ask("connect", endpoints=f"127.0.0.1:{port}")
            self._producer = asyncio.create_task(self._send(producer))
            tasks = [
                self._producer,
                *(
                    asyncio.create_task(self._receive(driver, name, group.topic))
                    for driver, (name, group) in zip(consumers, GROUPS.items(), strict=True)
                ),
            ]
            try:
                yield
            finally:
                for task in tasks:
                    task.cancel()
                results = await asyncio.gather(*tasks, return_exceptions=True)
            for result in results:
                if isinstance(result, Exception):
                    raise result

    async def end_producer(self) -> None:
        """Send nothing more."""
        self._is_over = True
        if self._producer is not None:
            await self._producer

    async def _send(self, driver: drivers.Driver) -> None:
        for number in itertools.count():
            if self._is_over:
                return
            key = self._chance.choice(("", *KEYS))
            name, topic = f"official-{number}", KEYED_TOPIC if key else TOPIC
            sent = Sent(name, topic, "keyed" if key else "plain", now_ms(), is_native=False, key=key)
            self._history.sent[name] = sent
            if await _asked(driver, "send", topic=topic, body=name, group=key) is None:
                sent.given_up_ms = now_ms()
                await asyncio.sleep(AGAIN_S)
            else:
                sent.answered_ms = now_ms()
            await asyncio.sleep(self._chance.random() * PAUSE_S_MAX)

    async def _receive(self, driver: drivers.Driver, group: str, topic: str) -> None:
        asked = {"topic": topic, "consumer_group": group, "count": RECEIVE_COUNT, "invisible_s": INVISIBLE_S}
        while True:
            began_ms = now_ms()
            answer = await _asked(driver, "receive", **asked)
            arrived_ms = now_ms()
            if answer is None:
                await asyncio.sleep(AGAIN_S)
                continue
            deliveries = [_delivery(group, one, began_ms, arrived_ms) for one in answer["messages"]]
            self._history.deliveries += deliveries
            for one, delivery in zip(answer["messages"], deliveries, strict=True):
                await self._acknowledge(driver, one["number"], delivery)

    async def _acknowledge(self, driver: drivers.Driver, number: int, delivery: Delivery) -> None:
        """Repeat the acknowledgement until it is answered, or the time of the message is over for certain."""
        delivery.verb, delivery.settle_began_ms = "ack", now_ms()
        while delivery.settled_ms is None and now_ms() < delivery.arrived_ms + delivery.invisible_ms:
            try:
                await driver.ask("ack", number=number)
                delivery.settled_ms = now_ms()
            except drivers.ClientError as error:
                if OUTDATED in str(error):
                    return  # an earlier try counted, or another member has got it
                await asyncio.sleep(AGAIN_S)


async def _asked(driver: drivers.Driver, do: str, **arguments: Any) -> Any:
    """Return the answer of a driver, None if its client met an error. Raises AssertionError if it has ended."""
    try:
        return await driver.ask(do, **arguments)
    except drivers.ClientError:
        return None


def _delivery(group: str, message: dict[str, Any], began_ms: float, arrived_ms: float) -> Delivery:
    handle = Handle.decode(message["handle"])
    place = Place(handle.topic, handle.queue_id, handle.offset)
    attempt, invisible_ms = message["attempt"], INVISIBLE_S * 1000.0
    return Delivery(group, place, message["body"], attempt, began_ms, arrived_ms, invisible_ms)
