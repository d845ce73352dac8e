# SPDX-License-Identifier: Apache-2.0
"""Process: a service's process in the simulation, which can die at any call that it makes.

Invariants: all tasks that code of a process starts belong to it (a context variable has the process whose code runs).
After `die` they only unwind, and no call on the file system has any effect. Bytes that it wrote into mapped files
before stay, like the page cache of a killed process.
"""

import asyncio
import contextlib
import contextvars
from collections.abc import Coroutine, Generator
from pathlib import Path
from typing import Any, TypeVar

from libs.machine.fs import Fs, Lock
from libs.machine.testing.faulty_fs import Fault, FaultyFs
from tests.crash.sim.workers import pause

T = TypeVar("T")

_current: contextvars.ContextVar["Process | None"] = contextvars.ContextVar("process", default=None)


class Killed(BaseException):
    """The process that called is dead. No Exception, so that nothing handles it."""


def current_process() -> "Process | None":
    """Whose code is running."""
    return _current.get()


def check_alive() -> None:
    """Raise Killed in the code of a dead process."""
    process = _current.get()
    if process is not None and process.is_dead:
        raise Killed


def pass_failpoint() -> None:
    """Let others run for a while, and go no further if the process died meanwhile."""
    pause()
    check_alive()


def task_factory(loop: asyncio.AbstractEventLoop, work: Any, **options: Any) -> asyncio.Task[Any]:
    """Make tasks belong to the process whose code makes them."""
    task: asyncio.Task[Any] = asyncio.Task(work, loop=loop, **options)
    process = _current.get()
    if process is not None:
        process.tasks[task] = None
        task.add_done_callback(process.forget)
    return task


class _ProcessFs(FaultyFs):
    """The file system of a process: its locks end with the process."""

    def __init__(self, fs: Fs, process: "Process") -> None:
        super().__init__(fs, process.before_call)
        self.locks: list[Lock] = []
        self._process = process

    def lock(self, path: Path) -> Lock:
        lock = super().lock(path)
        self.locks.append(lock)
        return _ProcessLock(lock, self._process)

    def lock_directory(self, path: Path) -> Lock:
        lock = super().lock_directory(path)
        self.locks.append(lock)
        return _ProcessLock(lock, self._process)


class _ProcessLock:
    def __init__(self, lock: Lock, process: "Process") -> None:
        self._lock = lock
        self._process = process

    def release(self) -> None:
        if not self._process.is_dead:
            self._lock.release()


class Process:
    """A run of a service. `faults` has the coming calls that fail, `die_at_call` the call at which it dies."""

    def __init__(self, name: str, disk: Fs) -> None:
        self.name = name
        self.is_dead = False
        self.tasks: dict[asyncio.Task[Any], None] = {}
        """In the order in which they began, so that a seed repeats."""
        self.failures: list[BaseException] = []
        """The errors for which the service gave up: it asks to be ended."""
        self.faults: dict[tuple[str, int], Fault] = {}
        self.failed_calls: list[str] = []
        self.die_at_call: int | None = None
        self.call_count = 0
        self._operation_counts: dict[str, int] = {}
        self.fs = _ProcessFs(disk, self)

    def before_call(self, operation: str, path: Path) -> Fault | None:
        """Count a call on the file system; die or let it fail if it is due."""
        pause()
        if self.is_dead:
            raise Killed
        self.call_count += 1
        if self.die_at_call == self.call_count:
            self.die()
            raise Killed
        count = self._operation_counts[operation] = self._operation_counts.get(operation, 0) + 1
        fault = self.faults.pop((operation, count), None)
        if fault is not None:
            self.failed_calls.append(f"{operation} {path.name}")
        return fault

    def fail_call(self, operation: str, ahead: int, fault: Fault) -> None:
        """Let the `ahead`-th call of an operation from now on fail, 1 being the next."""
        self.faults[operation, self._operation_counts.get(operation, 0) + ahead] = fault

    def die_ahead(self, ahead: int) -> None:
        """Let the process die at its `ahead`-th call from now on."""
        self.die_at_call = self.call_count + ahead

    def forget(self, task: asyncio.Task[Any]) -> None:
        """A task is done."""
        self.tasks.pop(task, None)

    def die(self) -> None:
        """End at once, with nothing tidied up."""
        if self.is_dead:
            return
        self.is_dead = True
        for lock in self.fs.locks:
            lock.release()
        for task in list(self.tasks):
            task.cancel()

    @contextlib.contextmanager
    def running(self) -> Generator[None]:
        """Run the block as code of this process."""
        token = _current.set(self)
        try:
            yield
        finally:
            _current.reset(token)

    def start(self, work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        """Run something in this process."""
        with self.running():
            return asyncio.get_running_loop().create_task(work)
