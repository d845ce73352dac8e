# SPDX-License-Identifier: Apache-2.0
"""SupervisedLoop: an asyncio task that repeats a step, and continues after failures.

`in_steps` divides a long call into steps, so that other calls run in between.
Invariants: a single step runs at a time, and none begins after `stop`, even if the running step turns its cancellation
into another error. After a failure the next step waits, longer with each failure in a row and with jitter, so that many
loops do not return in lockstep. `wake` ends the wait between good steps, but not the back-off. `hurry` ends the
back-off, for a caller that knows that the cause may be gone; then the waits begin short again.
A step that may run for ever, such as a stream, calls `succeeded` when it has reached its purpose: earlier failures do
not count any more, although the step has not returned.
Callers: the event loop's thread only. `last_error` is None since the last success.
"""

import asyncio
import itertools
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable
from typing import TypeVar

from libs.machine.trouble import Trouble
from libs.machine.workers import workers

T = TypeVar("T")

STEP_COUNT = 1_000
"""Items of a step. With some microseconds of work for each item, the step takes a few milliseconds."""


class SupervisedLoop:
    """Runs `step` until stopped.

    After a good step the next step starts when `wake` is called or `interval_ms` has passed, whichever comes first;
    0 means at once. A caller without the loop may set the event `wakes` instead. No other task waits for it.
    `backoff_ms_min` doubles with each failure in a row up to `backoff_ms_max`; a jitter of up to a half is subtracted.
    `Trouble`, which several loops may share, logs failures: `expected_errors` and errors of the operating system with a
    line, all other errors with their traceback.
    """

    def __init__(
        self,
        name: str,
        step: Callable[[], Awaitable[None]],
        *,
        interval_ms: int = 0,
        backoff_ms_min: int = 100,
        backoff_ms_max: int = 10_000,
        expected_errors: tuple[type[Exception], ...] = (),
        wakes: asyncio.Event | None = None,
        trouble: Trouble | None = None,
    ) -> None:
        assert 0 < backoff_ms_min <= backoff_ms_max
        self.name = name
        self.last_error: BaseException | None = None
        self.failures_in_row_count = 0
        self.step_count = 0
        self._step = step
        self._interval_ms = interval_ms
        self._backoff_ms_min = backoff_ms_min
        self._backoff_ms_max = backoff_ms_max
        self._expected_errors = (*expected_errors, OSError)
        self._trouble = trouble or Trouble(name)
        self._chance = workers().chance()
        self._wake = wakes or asyncio.Event()
        self._hurry = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._is_stopping = False

    @property
    def is_running(self) -> bool:
        """Whether the loop was started and has not been stopped."""
        return self._task is not None and not self._task.done()

    def start(self) -> None:
        """Start the first step at once. Needs a running event loop. Called once per object."""
        assert self._task is None, f"{self.name} was started before"
        self._task = asyncio.create_task(self._run(), name=self.name)

    def wake(self) -> None:
        """Start the next step now. After a call during a step, another step follows it."""
        self._wake.set()

    def hurry(self) -> None:
        """Start the next step now, also after a failure. If it fails, too, the wait is as short as after a first."""
        self.failures_in_row_count = 0
        self._hurry.set()
        self._wake.set()

    def succeeded(self) -> None:
        """Forget the failures so far, because the step reached its purpose. A step that returns need not call it."""
        self.last_error = None
        self.failures_in_row_count = 0
        self._trouble.ended(part=self)

    async def stop(self) -> None:
        """Cancel the running step and wait until it has ended. May be repeated."""
        if self._task is None:
            return
        self._is_stopping = True
        self._trouble.leave(self)
        self._task.cancel()
        await asyncio.wait([self._task])

    def backoff_ms(self) -> float:
        """Return the next waiting time after the failures so far, with jitter."""
        exponent = min(self.failures_in_row_count - 1, 30)
        ceiling = min(self._backoff_ms_max, self._backoff_ms_min << exponent)
        return ceiling * (1 - self._chance.random() / 2)

    async def _run(self) -> None:
        while not self._is_stopping:
            self._wake.clear()
            self._hurry.clear()
            try:
                await self._step()
            except asyncio.CancelledError as error:
                if self._is_stopping or _is_asked_to_end():
                    raise
                await self._back_off(error)
            except Exception as error:  # noqa: BLE001 - supervision is this class's job
                if self._is_stopping:
                    return
                await self._back_off(error)
            else:
                self.succeeded()
                self.step_count += 1
                await self._pause()

    async def _back_off(self, error: BaseException) -> None:
        self.last_error = error
        self.failures_in_row_count += 1
        delay_ms = self.backoff_ms()
        is_expected = isinstance(error, self._expected_errors)
        what = f"{self.name} failed, next attempt in {delay_ms:.0f} ms"
        self._trouble.failed(what, error, is_expected=is_expected, part=self)
        await _wait(self._hurry, delay_ms)

    async def _pause(self) -> None:
        if self._interval_ms == 0:
            await asyncio.sleep(0)
            return
        await _wait(self._wake, self._interval_ms)


def _is_asked_to_end() -> bool:
    """Return whether this task is being cancelled.

    A cancellation without a request is an ordinary failure: a call failed because its connection was closed here.
    """
    task = asyncio.current_task()
    return task is None or task.cancelling() > 0


async def _wait(event: asyncio.Event, timeout_ms: float) -> None:
    """Wait for an event. It is set after `timeout_ms` at the latest, which costs less than a time-out that cancels."""
    timer = asyncio.get_running_loop().call_later(timeout_ms / 1000, event.set)
    try:
        await event.wait()
    finally:
        timer.cancel()


async def in_steps(items: Iterable[T], *, count: int = STEP_COUNT) -> AsyncGenerator[list[T], None]:
    """Walk over many items, at most `count` at a time. Other tasks, and a cancellation, get their turn in between."""
    iterator = iter(items)
    while step := list(itertools.islice(iterator, count)):
        yield step
        await asyncio.sleep(0)
