# SPDX-License-Identifier: Apache-2.0
"""Consumption: receives messages of several topics in turn for a caller that gives credit.

It uses the same receives as all other callers. Invariants: the messages stay within the credit; only the size of the
last message may exceed it. After `stop` no further message is received.
Callers: the event loop's thread; a single task calls `next`.
"""

import asyncio
from collections import deque
from collections.abc import Iterable

from services.delivery.engine.own.group_engine import GroupEngine
from services.delivery.engine.own.journal_owner import JournalOwner
from services.delivery.engine.ports.messages import Wanted
from services.delivery.engine.receive.batch import Delivered

BATCH_COUNT, BATCH_SIZE_BYTES = 256, 1 << 20
"""Limits of an answer. A single larger message still fits."""
OPEN_COUNT_MAX, OPEN_SIZE_BYTES_MAX = 1_000_000, 1 << 30
"""The most credit that may be open."""
LOOK_S = 5.0
"""The longest wait before it checks again whether this process still delivers."""


class Consumption:
    """The consumption of a caller: receives its messages within its credit. `stop` it in the end."""

    def __init__(
        self,
        owner: JournalOwner,
        group: str,
        topics: Iterable[str],
        *,
        invisible_ms: int | None,
        wanted: Wanted,
        connection_number: int = 0,
    ) -> None:
        self._owner = owner
        self._group, self._topics = group, deque(dict.fromkeys(topics))
        self._invisible_ms, self._wanted = invisible_ms, wanted
        self._connection_number = connection_number
        self._count = self._size_bytes = 0
        self._is_stopped = False
        self._engine: GroupEngine | None = None
        self._told: set[str] = set()
        """Topics that may have messages for this caller, and from which it has not received since then."""
        self._changed = asyncio.Event()

    def credit(self, count: int, size_bytes: int) -> None:
        """Add credit: messages and bytes that may be received."""
        self._count = min(self._count + count, OPEN_COUNT_MAX)
        self._size_bytes = min(self._size_bytes + size_bytes, OPEN_SIZE_BYTES_MAX)
        self._changed.set()

    def stop(self) -> None:
        """Receive no further message."""
        self._is_stopped = True
        self._changed.set()

    async def next(self) -> list[Delivered]:
        """Wait for messages and return them, none after `stop`. Raises the errors of a receive, and NotOwner."""
        try:
            return await self._next()
        finally:
            self._tell_on()

    async def _next(self) -> list[Delivered]:
        while not self._is_stopped:
            self._changed.clear()
            if self._count <= 0 or self._size_bytes <= 0:
                await self._changed.wait()
                continue
            engine = self._engine = await self._owner.engine()
            for topic in list(self._topics):
                self._topics.rotate(-1)
                messages = await self._take(engine, topic)
                self._told.discard(topic)
                if messages:
                    return messages
            await self._wait(engine)
        return []

    def _tell_on(self) -> None:
        """Wake other members for topics for which this caller was woken and from which it did not receive."""
        while self._told and self._engine is not None:
            self._engine.subscriptions.wake(self._group, self._told.pop())

    async def _take(self, engine: GroupEngine, topic: str) -> list[Delivered]:
        messages = await engine.receive(
            self._group,
            topic,
            count=min(self._count, BATCH_COUNT),
            size_bytes=min(self._size_bytes, BATCH_SIZE_BYTES),
            invisible_ms=self._invisible_ms,
            wanted=self._wanted,
            wait_s=0,
            connection_number=self._connection_number,
        )
        self._count -= len(messages)
        self._size_bytes -= sum(one.size_bytes for one in messages)
        return messages

    async def _wait(self, engine: GroupEngine) -> None:
        """Wait until a topic may have a message, or the credit or the process that delivers changes."""
        waits = [asyncio.create_task(self._until_told(engine, topic)) for topic in self._topics]
        waits.append(asyncio.create_task(self._until_changed()))
        try:
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in waits:
                task.cancel()
            await asyncio.gather(*waits, return_exceptions=True)

    async def _until_told(self, engine: GroupEngine, topic: str) -> None:
        if await engine.wait(self._group, topic, self._wanted, LOOK_S):
            self._told.add(topic)

    async def _until_changed(self) -> None:
        await self._changed.wait()
