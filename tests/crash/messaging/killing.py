# SPDX-License-Identifier: Apache-2.0
"""Killing: SIGKILLs processes of a store at random moments, alone or several at once, and starts them again.

Some are started at once, some after a while, some are killed again while they start. Each death is in the history,
until the process serves again. Callers: a single event loop.
"""

import asyncio
import random
import signal
from collections.abc import Awaitable, Callable, Mapping, Sequence

from tests.crash.live_store import LiveStore
from tests.crash.messaging.history import Death, History
from tests.crash.messaging.members import now_ms
from tests.crash.nursery import Child, EndedEarly

SERVICES = ("commitlog", "indexer", "delivery", "gateway")
"""In the order in which they are started."""
ALONE: Sequence[Sequence[str]] = (("gateway",),)
ANYBODY: Sequence[Sequence[str]] = (
    *(("delivery",), ("delivery",), ("delivery",), ("commitlog",), ("commitlog",), ("indexer",), ("gateway",)),
    *(("commitlog", "delivery"), ("delivery", "gateway"), ("indexer", "delivery"), SERVICES),
)
KILL_COUNT = 12
"""Moments of a seed at which services are killed."""
BETWEEN_S_MIN, BETWEEN_S_MAX = 0.05, 1.2
AWAY_S_MAX, AWAY_CHANCE = 0.8, 0.4
EARLY_S_MAX, EARLY_CHANCE = 0.12, 0.2


class Killing:
    """The kills of a store. `children` are all processes that were ever started."""

    def __init__(
        self, store: LiveStore, history: History, chance: random.Random, mode: str, whom: Sequence[Sequence[str]]
    ) -> None:
        self.children: list[Child] = []
        self._whom = whom
        self._store, self._history, self._chance = store, history, chance
        self._starts: Mapping[str, Callable[[], Awaitable[None]]] = {
            "commitlog": lambda: store.start_commitlog(mode),
            "indexer": store.start_indexer,
            "delivery": store.start_delivery,
            "gateway": store.start_gateway,
        }

    async def start(self) -> None:
        """Start services that do not run. Raises EndedEarly."""
        for service in SERVICES:
            if not self._store.is_running(service):
                await self._start(service)

    async def run(self) -> None:
        """See `Trouble`. Raises EndedEarly for a process that ended by itself."""
        for _ in range(KILL_COUNT):
            await asyncio.sleep(self._chance.uniform(BETWEEN_S_MIN, BETWEEN_S_MAX))
            await self._kill(self._chance.choice(self._whom))

    async def _kill(self, victims: Sequence[str]) -> None:
        killed_ms = dict.fromkeys(victims, now_ms())
        await self._store.kill(*victims)
        if self._chance.random() < AWAY_CHANCE:
            await asyncio.sleep(self._chance.random() * AWAY_S_MAX)
        if self._chance.random() < EARLY_CHANCE:
            await self._start_and_kill(victims[0], killed_ms[victims[0]])
        await self.start()
        self._history.deaths += [Death(service, at_ms, now_ms()) for service, at_ms in killed_ms.items()]

    async def _start_and_kill(self, service: str, killed_ms: float) -> None:
        """Kill it once more while it starts, if it is not too late for that."""
        starting = asyncio.ensure_future(self._start(service))
        await asyncio.wait([starting], timeout=self._chance.random() * EARLY_S_MAX)
        if not starting.done() and self._store.is_running(service):
            await self._store.kill(service)
            self._history.deaths.append(Death(service, killed_ms, now_ms()))
        try:
            await starting
        except EndedEarly as ended:
            if ended.code != -signal.SIGKILL:
                raise

    async def _start(self, service: str) -> None:
        await self._starts[service]()
        self.children.append(self._store.children[service])
