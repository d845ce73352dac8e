# SPDX-License-Identifier: Apache-2.0
"""Workers: the source of threads, locks, conditions and chance. The third interface beside `Fs` and `Clock`.

The whole process shares a single object, which is not a parameter of each class: a lock is created deep inside of a
room and has no meaning for its owner. A simulation that chooses the next thread by a seed replaces the workers while it
runs. Work that may run in any thread uses the event loop (`asyncio.to_thread`), which a simulation can replace already.
"""

import random
import threading
from collections.abc import Callable, Generator
from concurrent.futures import Executor, ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager
from types import TracebackType
from typing import Protocol


class Condition(Protocol):
    """A lock whose holders can wait for a change by other threads."""

    def __enter__(self) -> bool: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None, /
    ) -> None: ...

    def wait_for(self, predicate: Callable[[], bool]) -> object:
        """Wait until the predicate holds. The lock is released meanwhile."""
        ...

    def notify_all(self) -> None:
        """Make all waiting threads check their predicate again."""
        ...


class Workers(Protocol):
    """The interface of the workers. Safe to use from any thread."""

    def one_thread(self, name: str) -> Executor:
        """Return an executor with a single thread, which runs submitted work in order."""
        ...

    def lock(self) -> AbstractContextManager[object]:
        """Return a new lock for a `with` statement. The thread that holds it may take it again."""
        ...

    def condition(self) -> Condition:
        """Return a new condition, for which no thread waits."""
        ...

    def chance(self) -> random.Random:
        """Return a source of jitter. Not for secrets."""
        ...


class SystemWorkers:
    """The machine's own threads."""

    def one_thread(self, name: str) -> Executor:
        """See `Workers.one_thread`."""
        return ThreadPoolExecutor(max_workers=1, thread_name_prefix=name)

    def lock(self) -> AbstractContextManager[object]:
        """See `Workers.lock`."""
        return threading.RLock()

    def condition(self) -> Condition:
        """See `Workers.condition`."""
        return threading.Condition()

    def chance(self) -> random.Random:
        """See `Workers.chance`."""
        return random.Random()  # noqa: S311 - jitter, not a secret


_in_use: list[Workers] = [SystemWorkers()]


def workers() -> Workers:
    """Return the workers of this process."""
    return _in_use[-1]


@contextmanager
def using(stand_in: Workers) -> Generator[None]:
    """Replace the workers within the context. Objects that exist already keep the former workers."""
    _in_use.append(stand_in)
    try:
        yield
    finally:
        _in_use.pop()
