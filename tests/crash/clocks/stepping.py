# SPDX-License-Identifier: Apache-2.0
"""Stepping: sets the wall clocks of a store's services by up to an hour, ahead and back, alone or all at once.

Some services are killed at the same moment, and start with the wrong clock. Each step is in the history. In the end
each clock is two hours wrong until its service has logged it. Then all are set right, and waiting messages are
delivered. Callers: a single event loop.
"""

import asyncio
import functools
import random
import struct
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from tests.crash.live_store import LiveStore
from tests.crash.messaging.case import run_troubled
from tests.crash.messaging.history import ClockStep, Death, History
from tests.crash.messaging.killing import SERVICES, Killing
from tests.crash.messaging.members import now_ms
from tests.crash.nursery import Child, Nursery
from tests.crash.part import CaseReport

STEP_COUNT = 8
"""Moments of a seed at which clocks are set."""
BETWEEN_S_MIN, BETWEEN_S_MAX = 0.2, 2.5
HOUR_S = 3_600.0
AHEAD_S = (0.0, HOUR_S, -HOUR_S, 60.0, -60.0)
ALL_CHANCE, KILL_CHANCE = 0.25, 0.3
TOLD = "the machine's clock was set"
TOLD_TIMEOUT_S, LOOK_S = 60.0, 0.2


async def run_case(seed: int, nursery: Nursery) -> CaseReport:
    """Run the case of a seed."""
    with tempfile.TemporaryDirectory() as directory:
        clocks = {service: Path(directory) / service for service in SERVICES}
        for clock in clocks.values():
            clock.write_bytes(bytes(8))
        return await run_troubled(seed, nursery, functools.partial(Stepping, clocks=clocks), clocks=clocks)


class Stepping:
    """The clock steps of a store."""

    def __init__(
        self, store: LiveStore, history: History, chance: random.Random, mode: str, *, clocks: Mapping[str, Path]
    ) -> None:
        self._store, self._history, self._chance, self._clocks = store, history, chance, clocks
        self._starting = Killing(store, history, chance, mode, ())

    @property
    def children(self) -> Sequence[Child]:
        """All processes that were ever started."""
        return self._starting.children

    async def start(self) -> None:
        """Start services that do not run. Raises EndedEarly."""
        await self._starting.start()

    async def run(self) -> None:
        """See `Trouble`. Raises EndedEarly for a process that ended by itself, TimeoutError for a step not told."""
        for _ in range(STEP_COUNT):
            await asyncio.sleep(self._chance.uniform(BETWEEN_S_MIN, BETWEEN_S_MAX))
            await self._step()
        await self._be_told()
        for service in SERVICES:
            self._set(service, 0.0)

    async def _step(self) -> None:
        """Set some clocks. At times kill their services, and start them with the new clocks."""
        is_all = self._chance.random() < ALL_CHANCE
        services = SERVICES if is_all else (self._chance.choice(SERVICES),)
        ahead_s = self._chance.choice(AHEAD_S)
        for service in services:
            self._set(service, ahead_s)
        if self._chance.random() < KILL_CHANCE:
            killed_ms = now_ms()
            await self._store.kill(*services)
            await self.start()
            self._history.deaths += [Death(service, killed_ms, now_ms()) for service in services]

    def _set(self, service: str, ahead_s: float) -> None:
        self._history.clock_steps.append(ClockStep(service, now_ms(), ahead_s * 1000))
        with self._clocks[service].open("r+b") as file:
            file.write(struct.pack("q", round(ahead_s * 1e9)))

    async def _be_told(self) -> None:
        """Set each clock once more, and wait until each service says so."""
        told = {service: self._told_count(service) for service in SERVICES}
        way = self._chance.choice((1, -1))
        for service in SERVICES:
            self._set(service, way * 2 * HOUR_S)
        async with asyncio.timeout(TOLD_TIMEOUT_S):
            while any(self._told_count(service) <= told[service] for service in SERVICES):  # noqa: ASYNC110 - of lines
                await asyncio.sleep(LOOK_S)

    def _told_count(self, service: str) -> int:
        return sum(TOLD in line for line in self._store.children[service].lines)
