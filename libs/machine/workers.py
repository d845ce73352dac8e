# SPDX-License-Identifier: Apache-2.0
"""Workers: where code gets its own threads, what threads share, and chance. The third seam, beside `Fs` and `Clock`.

One for the whole process, and not a parameter of each class: a lock is made deep inside of a room and says nothing
about its owner. A simulation that decides by a seed which thread goes on puts its own here for as long as it runs.
Work that may run in any thread goes through the event loop (`asyncio.to_thread`), which is such a seam already.
"""

import random
import threading
from collections.abc import Callable, Generator
from concurrent.futures import Executor, ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager
from types import TracebackType
from typing import Protocol


class Condition(Protocol):
    """A lock whose holders wait for what others change."""

    def __enter__(self) -> bool: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None, /
    ) -> None: ...

    def wait_for(self, predicate: Callable[[], bool]) -> object:
        """Wait until the predicate holds, without the lock meanwhile."""
        ...

    def notify_all(self) -> None:
        """Let all who wait look again."""
        ...


class Workers(Protocol):
    """Safe to use from any thread."""

    def one_thread(self, name: str) -> Executor:
        """Return an executor with one thread: what is submitted to it runs in that order, one at a time."""
        ...

    def lock(self) -> AbstractContextManager[object]:
        """Return a new lock for a `with` statement. The thread that holds it may take it again."""
        ...

    def condition(self) -> Condition:
        """Return a new condition for which nobody waits."""
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
    """Put other workers in place for as long as the context lasts. What was made before keeps the former ones."""
    _in_use.append(stand_in)
    try:
        yield
    finally:
        _in_use.pop()
