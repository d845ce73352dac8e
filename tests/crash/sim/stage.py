# SPDX-License-Identifier: Apache-2.0
"""Stage: the place where simulated processes run: a loop, its time, its workers, and independent clocks."""

import asyncio
import contextlib
import math
from collections.abc import Coroutine
from typing import Any, TypeVar
from unittest import mock

from libs.machine.workers import using
from services.commitlog.engine.follow import reader
from services.commitlog.engine.start import scan as log_scan
from services.commitlog.engine.write import append
from tests.crash.sim.loop import SimulatedLoop
from tests.crash.sim.process import Killed, Process, task_factory
from tests.crash.sim.workers import Interleaver, SimulatedWorkers

T = TypeVar("T")

START_TIME_MS = 1_700_000_000_000
FINISH_S = 30.0
"""In simulated time: by then everything is over that dead processes have begun."""
SMALL_COLUMNS = (
    (append, "BATCH_MESSAGE_COUNT_MAX", 64),
    (log_scan, "SCAN_RECORD_COUNT_MAX", 32),
    (log_scan, "SCAN_KEY_COUNT_MAX", 128),
    (reader, "STREAM_RECORD_COUNT_MAX", 32),
)
"""Buffers for columns that are made large for speed: small buffers are made sooner, and are full sometimes."""


class SimulatedClock:
    """The loop's time at a rate of its own, and a wall clock that may be stepped."""

    def __init__(self, loop: SimulatedLoop, rate: float = 1.0) -> None:
        self.step_ms = 0
        self._loop = loop
        self._rate = rate

    def now_ms(self) -> int:
        """See `Clock.now_ms`."""
        return START_TIME_MS + self.step_ms + int(self.monotonic_s() * 1000)

    def monotonic_s(self) -> float:
        """See `Clock.monotonic_s`."""
        return self._loop.time() * self._rate


class Stage:
    """The place of simulated processes: their loop, workers and clocks. `counts` are totals for the report."""

    def __init__(self, loop: SimulatedLoop, *, has_workers: bool) -> None:
        self.loop = loop
        loop.set_task_factory(task_factory)
        if has_workers:
            loop.threads = Interleaver(loop, lambda: loop.chance)
        self.workers = SimulatedWorkers(lambda: loop.chance, loop.threads)
        self.counts: dict[str, int] = {}

    def count(self, name: str, amount: int = 1) -> None:
        """Add to a total for the report."""
        self.counts[name] = self.counts.get(name, 0) + amount

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Let simulated time pass until this is done."""
        with contextlib.ExitStack() as stack:
            stack.enter_context(using(self.workers))
            for module, name, count in SMALL_COLUMNS:
                stack.enter_context(mock.patch.object(module, name, count))
            return self.loop.run_until_complete(work)

    async def call(self, process: Process, work: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine in a process and return its result.

        Raises its error, Killed if the process dies meanwhile.
        """
        if process.is_dead:
            work.close()
            raise Killed
        task = process.start(work)
        await asyncio.wait([task])
        if task.cancelled():
            raise Killed
        return task.result()

    def finish(self) -> None:
        """End all that is left of processes that are dead, and the loop."""
        self.loop.time_max_s = math.inf
        self.run(self._finish())
        self.loop.close()

    async def _finish(self) -> None:
        if self.loop.threads is not None:
            self.loop.threads.finish()
        await asyncio.sleep(FINISH_S)
