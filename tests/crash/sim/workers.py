# SPDX-License-Identifier: Apache-2.0
"""Interleaver: jobs in threads of their own, of which a single thread runs at a time, so the seed alone interleaves.

The loop's thread hands control to a worker and waits until the worker is done or pauses; a worker pauses at calls on
the file system and at failpoints, when chance says so, and goes on at a later moment of simulated time. A thread that
takes a lock meanwhile lets the holders continue first, as a scheduler would. Threads that are done are used again.
Invariants: at any moment a single thread of all runs; a paused job of a dead process only unwinds.
"""

import asyncio
import contextvars
import random
import threading
from collections.abc import Callable
from concurrent.futures import Executor
from typing import ClassVar

from libs.machine.workers import workers
from tests.crash.sim.lazy_executor import LazyExecutor

PAUSE_RATIO = 0.4
PAUSES_S = (0.0, 0.0001, 0.002, 0.05)


class _Thread:
    """A thread that does jobs in turn."""

    idle: ClassVar["list[_Thread]"] = []
    """The idle threads of this process, kept for ever, because making threads is expensive."""

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


class Interleaver:
    """The threads of a world. `pause` is called from anywhere and does nothing in the loop's thread."""

    def __init__(self, loop: asyncio.AbstractEventLoop, chance: Callable[[], random.Random]) -> None:
        self._loop = loop
        self._chance = chance
        self._running: _Thread | None = None
        self._paused: dict[_Thread, None] = {}

    @property
    def running(self) -> object:
        """The running worker, or None for the loop's thread."""
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
        """Let all paused threads make a step, because this thread can't continue without them."""
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
    """A lock that threads of an interleaver share. Without an interleaver all code runs in a single thread."""

    def __init__(self, threads: Interleaver | None) -> None:
        self._threads = threads
        self._owner: object = ()
        self._depth = 0

    def acquire(self) -> bool:
        """Take it, letting others run until it is free. Its holder may take it again, as with an RLock."""
        owner = self._threads.running if self._threads is not None else None
        while self._depth and self._owner is not owner:
            assert self._threads is not None
            self._threads.let_others_run()
        self._owner = owner
        self._depth += 1
        return True

    def release(self) -> None:
        """Give it back once."""
        assert self._depth > 0
        self._depth -= 1

    def __enter__(self) -> bool:
        return self.acquire()

    def __exit__(self, *exc_info: object) -> None:
        self.release()


class SimulatedCondition(SimulatedLock):
    """A condition whose waiters let others run, and look again."""

    def wait_for(self, predicate: Callable[[], bool]) -> None:
        """Wait until it holds, without the lock meanwhile."""
        while not predicate():
            self.release()
            assert self._threads is not None
            self._threads.let_others_run()
            self.acquire()

    def notify_all(self) -> None:
        """Do nothing: no thread sleeps."""


class SimulatedWorkers:
    """The workers of a world: its seed decides the order of threads. Without an interleaver each job runs whole."""

    def __init__(self, chance: Callable[[], random.Random], threads: Interleaver | None) -> None:
        self.threads = threads
        self._chance = chance

    def one_thread(self, name: str) -> Executor:
        """See `Workers.one_thread`."""
        return LazyExecutor(self._chance())

    def lock(self) -> SimulatedLock:
        """See `Workers.lock`."""
        return SimulatedLock(self.threads)

    def condition(self) -> SimulatedCondition:
        """See `Workers.condition`."""
        return SimulatedCondition(self.threads)

    def chance(self) -> random.Random:
        """See `Workers.chance`."""
        return self._chance()


def pause(*_: object) -> None:
    """See `Interleaver.pause`. Does nothing where no world runs."""
    current = workers()
    if isinstance(current, SimulatedWorkers) and current.threads is not None:
        current.threads.pause()
