# SPDX-License-Identifier: Apache-2.0
"""Workers: jobs in threads of their own of which only one runs at a time, so that jobs interleave by seed alone.

The loop's thread hands control to a worker and waits until the worker is done or pauses; a worker pauses at calls on
the file system and at failpoints, when chance says so, and goes on at a later moment of simulated time. What takes a
lock meanwhile lets those who hold it go on first, as a scheduler would. Threads that are done are used again.
Invariants: at any moment exactly one thread of all runs; a paused job of a dead process only unwinds.
"""

import asyncio
import contextvars
import random
import threading
from collections.abc import Callable
from types import TracebackType
from typing import Any, ClassVar

PAUSE_RATIO = 0.4
PAUSES_S = (0.0, 0.0001, 0.002, 0.05)


class _Thread:
    """A thread that does one job after another."""

    idle: ClassVar["list[_Thread]"] = []
    """Of this process; kept for ever, because making threads is dear."""

    def __init__(self) -> None:
        self.go = threading.Semaphore(0)
        self.job: Callable[[], None] = lambda: None
        self.back = threading.Semaphore(0)
        self.handle: asyncio.Handle | None = None
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        while True:
            self.go.acquire()
            self.job()
            self.job = lambda: None
            self.is_done = True
            self.back.release()

    is_done = True


class Workers:
    """The workers of one world. `pause` is called from anywhere and does nothing in the loop's thread."""

    current: "Workers | None" = None

    def __init__(self, loop: asyncio.AbstractEventLoop, chance: Callable[[], random.Random]) -> None:
        self._loop = loop
        self._chance = chance
        self._running: _Thread | None = None
        self._paused: dict[_Thread, None] = {}

    @property
    def running(self) -> object:
        """Who runs: a worker, or None for the loop's thread."""
        return self._running

    def run(self, context: contextvars.Context, job: Callable[[], None]) -> None:
        """Begin a job; returns when it is done or pauses. Called by the loop."""
        thread = _Thread.idle.pop() if _Thread.idle else _Thread()
        thread.is_done = False
        thread.job = lambda: context.run(job)
        self._resume(thread)

    def pause(self, *, is_forced: bool = False) -> None:
        """Let others run for a while, if this is a worker."""
        thread = self._running
        if thread is None or not (is_forced or self._chance().random() < PAUSE_RATIO):
            return
        thread.handle = self._loop.call_later(self._chance().choice(PAUSES_S), self._resume, thread)
        self._paused[thread] = None
        thread.back.release()
        thread.go.acquire()

    def let_others_run(self) -> None:
        """Let all who are paused make a step, because this one can't go on without them."""
        if self._running is not None:
            self.pause(is_forced=True)
            return
        for thread in list(self._paused):
            if thread in self._paused:
                self._resume(thread)

    def finish(self) -> None:
        """Let all jobs come to their end."""
        while self._paused:
            self.let_others_run()

    def _resume(self, thread: _Thread) -> None:
        assert self._running is None, "only the loop's thread starts workers"
        if thread.handle is not None:
            thread.handle.cancel()
            thread.handle = None
        self._paused.pop(thread, None)
        self._running = thread
        thread.go.release()
        thread.back.acquire()
        self._running = None
        if thread.is_done:
            _Thread.idle.append(thread)


class SimulatedLock:
    """Stands for threading.Lock and RLock in code that workers run."""

    def __init__(self) -> None:
        self._owner: object = ()
        self._depth = 0

    def acquire(self) -> bool:
        """Take it, letting others run until it is free. Who has it may take it again, as with an RLock."""
        workers = Workers.current
        owner = workers.running if workers is not None else None
        while self._depth and self._owner is not owner:
            assert workers is not None
            workers.let_others_run()
        self._owner = owner
        self._depth += 1
        return True

    def release(self) -> None:
        """Give it back once."""
        assert self._depth > 0
        self._depth -= 1

    def __enter__(self) -> bool:
        return self.acquire()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.release()


class SimulatedCondition(SimulatedLock):
    """Stands for threading.Condition: whoever waits lets others run, and looks again."""

    def wait_for(self, predicate: Callable[[], bool]) -> None:
        """Wait until it holds, without the lock meanwhile."""
        while not predicate():
            self.release()
            assert Workers.current is not None
            Workers.current.let_others_run()
            self.acquire()

    def notify_all(self) -> None:
        """Do nothing: nobody sleeps."""


def pause(*_: Any) -> None:
    """See `Workers.pause`."""
    if Workers.current is not None:
        Workers.current.pause()
