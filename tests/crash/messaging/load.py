# SPDX-License-Identifier: Apache-2.0
"""Load: producers and members of groups on the Python client of this project; all answers are recorded.

Producers send plain messages, messages of a key in turn, delayed messages, and transactions that commit, roll back or
are left open. Invariants: a message is in the history before it is sent. Callers: a single event loop.
"""

import asyncio
import itertools
import random

from reput_client import Durability, ProducerOptions, ReputError
from reput_client.aio import AsyncClient

from tests.crash.messaging.history import Group, History, Place, Sent
from tests.crash.messaging.members import Members, now_ms
from tests.crash.messaging.transactions import Transactions

TOPIC, KEYED_TOPIC = "orders", "lanes"
QUEUE_COUNT = 2
GROUPS = {"billing": Group(TOPIC), "audit": Group(TOPIC), "ordered": Group(KEYED_TOPIC, is_ordered=True)}
PLAIN_COUNT, KEY_COUNT = 2, 3
PAUSE_S_MAX, SLOW_PAUSE_S_MAX = 0.04, 0.25
DELAY_MS_MIN, DELAY_MS_MAX = 200, 2_500
LEVEL, LEVEL_MS = 2, 1_000
"""A delay level of the LiveStore, and its delay."""
END_TIMEOUT_S = 60.0


class Load:
    """`start` it; `end_producers`, and when all is drained `end`."""

    def __init__(self, client: AsyncClient, history: History, chance: random.Random) -> None:
        self._history, self._chance = history, chance
        self._producer = client.producer(ProducerOptions(linger_ms=1, durability=Durability.LOCAL_DISK))
        self._is_over = False
        self._producers: list[asyncio.Task[None]] = []
        self._transactions = Transactions(client, history, chance, TOPIC, numbers=itertools.count())
        self._members = Members(client, history, chance)

    @property
    def wrong(self) -> list[str]:
        """The answers that can't be right."""
        return self._transactions.wrong

    def start(self) -> None:
        """Begin to send and to receive."""
        producers = [
            *(self._send_plain(f"plain{number}") for number in range(PLAIN_COUNT)),
            *(self._send_keyed(f"key{number}", number % QUEUE_COUNT) for number in range(KEY_COUNT)),
            *(self._send_delayed(), self._transactions.run(lambda: self._is_over)),
        ]
        self._producers = [asyncio.create_task(one) for one in producers]
        self._members.start(GROUPS)

    async def end_producers(self) -> None:
        """Send nothing more. Then all sent messages have their outcome.

        Raises TimeoutError, and the error that ended a task.
        """
        self._is_over = True
        async with asyncio.timeout(END_TIMEOUT_S):
            await asyncio.gather(*self._producers)

    async def end(self) -> None:
        """Receive nothing more. Raises the error that ended a task too early."""
        for task in self._producers:
            task.cancel()
        results = await asyncio.gather(*self._producers, return_exceptions=True)
        await self._members.end()
        for result in results:
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
            await self._pause(SLOW_PAUSE_S_MAX)  # a key has a single message on its way, so more would pile up

    async def _send_delayed(self) -> None:
        for number in itertools.count():
            if self._is_over:
                return
            began_ms = now_ms()
            level = LEVEL if number % 3 == 2 else 0
            delay_ms = LEVEL_MS if level else self._chance.randint(DELAY_MS_MIN, DELAY_MS_MAX)
            sent = Sent(f"delayed-{number}", TOPIC, "delayed", began_ms, deliver_ms=int(began_ms) + delay_ms)
            sent.is_after_delay, sent.delay_level = number % 3 > 0, level
            await self._send(sent)
            await self._pause(SLOW_PAUSE_S_MAX)

    async def _send(self, sent: Sent, queue_id: int | None = None) -> None:
        self._history.sent[sent.name] = sent
        has_delay = sent.is_after_delay and not sent.delay_level
        try:
            future = await self._producer.send(
                sent.topic,
                sent.name.encode(),
                queue_id=queue_id,
                sharding_key=sent.key or None,
                deliver_at=None if sent.is_after_delay else sent.deliver_ms or None,
                delay_s=(sent.deliver_ms - sent.began_ms) / 1000 if has_delay else None,
                delay_level=sent.delay_level,
            )
            result = await future
        except ReputError:
            sent.given_up_ms = now_ms()
        else:
            sent.answered_ms = now_ms()
            if not sent.deliver_ms:
                sent.place = Place(sent.topic, result.queue_id, result.queue_offset)

    async def _pause(self, s_max: float) -> None:
        await asyncio.sleep(self._chance.random() * s_max)
