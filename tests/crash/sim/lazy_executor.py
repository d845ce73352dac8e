# SPDX-License-Identifier: Apache-2.0
"""LazyExecutor: the twin of a ThreadPoolExecutor with a single thread.

Its work is done at a later moment of simulated time.

A caller that asks for a result that is not there yet has the work done at once, as if the thread had just been in time.
"""

import asyncio
import contextvars
import random
from collections.abc import Callable
from concurrent.futures import Executor, Future
from typing import Any, TypeVar

T = TypeVar("T")
DELAYS_S = (0.0, 0.001, 0.05)


class _LazyFuture(Future[T]):
    def __init__(self, work: Callable[[], T]) -> None:
        super().__init__()
        self._work: Callable[[], T] | None = work

    def do(self) -> None:
        """Do the work unless it is done."""
        work, self._work = self._work, None
        if work is not None:
            try:
                self.set_result(work())
            except BaseException as error:  # noqa: BLE001 - handed to whoever asks for the result
                self.set_exception(error)

    def result(self, timeout: float | None = None) -> T:
        self.do()
        return super().result(timeout)

    def exception(self, timeout: float | None = None) -> BaseException | None:
        self.do()
        return super().exception(timeout)


class LazyExecutor(Executor):
    """Takes the arguments of a ThreadPoolExecutor and needs none."""

    def __init__(self, chance: random.Random) -> None:
        super().__init__()
        self._chance = chance
        self._futures: list[_LazyFuture[Any]] = []

    def submit(self, fn: Callable[..., T], /, *args: Any, **kwargs: Any) -> Future[T]:
        """Do it later, in the order of the calls."""
        context = contextvars.copy_context()
        future = _LazyFuture(lambda: context.run(fn, *args, **kwargs))
        self._futures.append(future)
        try:
            loop = asyncio.get_running_loop()
        except RuntimeError:  # a worker's thread
            self._do_all()
        else:
            loop.call_later(self._chance.choice(DELAYS_S), self._do_all)
        return future

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Do the remaining work."""
        self._do_all()

    def _do_all(self) -> None:
        futures, self._futures = self._futures, []
        for future in futures:
            future.do()
