# SPDX-License-Identifier: Apache-2.0
"""SimulatedLoop: an asyncio loop without sockets, threads or waiting. Its time jumps to the next event that is due.

Invariants: the seed alone decides the order in which tasks run. A job for an executor begins at once or at a later
moment that chance picks, and runs whole, or with pauses if there are `threads`; jobs of the same executor never overlap
and keep their order, jobs of the default executor (`asyncio.to_thread`) overtake each other. If nothing is ready and
nothing is due, waiting tasks would wait for ever: the loop raises `Stuck`. It also raises it after a time that no run
should take.
"""

import asyncio
import contextvars
import random
from collections import deque
from collections.abc import Callable
from concurrent.futures import Executor
from typing import Any

from tests.crash.sim.workers import Interleaver

DELAYS_S = (0.0, 0.0, 0.0, 0.0005, 0.003, 0.02, 0.2)
"""How long a job may take, all equally likely."""

Job = Callable[[], None]


TIME_MAX_S = 20_000.0
"""Simulated time by which everything has ended; the longest runs take a few thousand seconds."""


class Stuck(Exception):
    """A task waits for an event that will never happen."""


class SimulatedLoop(asyncio.BaseEventLoop):
    """An event loop of simulated time.

    `chance` may be replaced at any time; `check_alive` may refuse jobs by raising.
    """

    def __init__(self, chance: random.Random, check_alive: Callable[[], None] = lambda: None) -> None:
        super().__init__()
        self.chance = chance
        self.job_count = 0
        self.time_max_s = TIME_MAX_S
        self.threads: Interleaver | None = None
        self._check_alive = check_alive
        self._now_s = 0.0
        self._queues: dict[Executor, deque[Job]] = {}
        self._selector = self  # the object that BaseEventLoop asks for events
        self._clock_resolution = 1e-6
        self.set_exception_handler(lambda _loop, _context: None)

    def time(self) -> float:
        """See asyncio. Starts at 0."""
        return self._now_s

    def select(self, timeout_s: float | None) -> list[Any]:
        """Let the time until the next timer pass at once."""
        if timeout_s is None or self._now_s > self.time_max_s:
            raise Stuck
        self._now_s += timeout_s
        return []

    def run_in_executor(  # type: ignore[override]
        self, executor: Executor | None, work: Callable[..., Any], *arguments: Any
    ) -> asyncio.Future[Any]:
        """Run the work in this thread, at once or later."""
        self._check_alive()
        self.job_count += 1
        future: asyncio.Future[Any] = self.create_future()
        context = contextvars.copy_context()
        queue = self._queues.setdefault(executor, deque()) if executor is not None else None

        def job() -> None:
            outcome = _outcome(work, arguments)
            self.call_soon(_settle, future, outcome)
            if queue is not None:
                queue.popleft()
                if queue:
                    self._begin(queue[0])

        def begin() -> None:
            if self.threads is not None:
                self.threads.run(context, job)
            else:
                context.run(job)

        if queue is None:
            self._begin(begin)
        else:
            queue.append(begin)
            if len(queue) == 1:
                self._begin(begin)
        return future

    def _begin(self, begin: Job) -> None:
        delay_s = self.chance.choice(DELAYS_S)
        if delay_s == 0.0 and (self.threads is None or self.threads.running is None):
            begin()
        else:
            self.call_later(delay_s, begin)

    def _process_events(self, event_list: list[Any]) -> None:
        assert not event_list

    def _write_to_self(self) -> None:
        """Wake the selector, which never sleeps."""


def _outcome(work: Callable[..., Any], arguments: tuple[Any, ...]) -> tuple[Any, BaseException | None]:
    try:
        return work(*arguments), None
    except BaseException as error:  # noqa: BLE001 - handed to whoever waits, as an executor does
        return None, error


def _settle(future: asyncio.Future[Any], outcome: tuple[Any, BaseException | None]) -> None:
    """The cancellation of the waiting task has not stopped the thread."""
    result, error = outcome
    if future.done():
        return
    if error is None:
        future.set_result(result)
    else:
        future.set_exception(error)
        future.exception()
