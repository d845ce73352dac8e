# SPDX-License-Identifier: Apache-2.0
"""Cases with real processes, spread over worker processes, each with its own event loop and nursery.

Invariant: a worker serves many seeds in turn, and its nursery and all of their children end with it.
"""

import asyncio
import multiprocessing
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from concurrent.futures import ProcessPoolExecutor, as_completed
from typing import TypeVar

from tests.crash.nursery import Nursery

R = TypeVar("R")
Case = Callable[[int, Nursery], Awaitable[R]]


class Worker:
    """The event loop and the nursery of a worker process."""

    current: "Worker | None" = None

    def __init__(self, environment: Mapping[str, str]) -> None:
        self.runner = asyncio.Runner()
        self._environment = environment
        self.nursery = self.runner.run(Nursery.start(environment))

    def run(self, case: Case[R], seed: int) -> R:
        """Run a case."""

        async def run() -> R:
            if self.nursery.is_gone:
                self.nursery = await Nursery.start(self._environment)
            return await case(seed, self.nursery)

        return self.runner.run(run())


def run_seeds(
    case: Case[R],
    seeds: Iterable[int],
    *,
    jobs: int,
    environment: Mapping[str, str] | None = None,
    prepare: Callable[[], None] | None = None,
) -> Iterator[R]:
    """Run the case of each seed, up to `jobs` at once, and yield the reports as they come.

    `environment` has the variables that the services get on top of this process's own; each worker calls `prepare`
    before anything else. Both functions must be importable by name.
    """
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(
        jobs, mp_context=context, initializer=_set_up, initargs=(environment or {}, prepare)
    ) as pool:
        futures = [pool.submit(_run, case, seed) for seed in seeds]
        try:
            for future in as_completed(futures):
                yield future.result()
        finally:
            pool.shutdown(wait=False, cancel_futures=True)


def _set_up(environment: Mapping[str, str], prepare: Callable[[], None] | None) -> None:
    if prepare is not None:
        prepare()
    Worker.current = Worker(environment)


def _run(case: Case[R], seed: int) -> R:
    assert Worker.current is not None
    return Worker.current.run(case, seed)
