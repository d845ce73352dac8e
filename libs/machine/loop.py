# SPDX-License-Identifier: Apache-2.0
"""SupervisedLoop: one asyncio task that does a step again and again, and outlives its failures.

`in_steps` is beside it: it divides a long call into steps, so that other calls run in between.
Invariants: at most one step runs at a time, and none begins after `stop`, even if the step that runs turns its
cancellation into another error; after a failure the next step waits, longer with each failure in a row and
with jitter, so that many loops do not return in lockstep; `wake` ends the waiting between good steps, not the back-off,
which `hurry` ends, for a caller that knows that the cause may be gone; then waits begin short again.
A step that may go on for ever, as a stream does, calls `succeeded` when it has done what it is for: failures before
that count no more, although the step has not returned.
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
"""Items of a step whose work is some microseconds each: all of it is a few milliseconds."""


class SupervisedLoop:
    """Runs `step` until stopped.

    After a good step the next one starts when `wake` is called or `interval_ms` has passed, whichever comes first;
    0 means at once. A caller without the loop may set the event `wakes` instead. No other task waits for it.
    `backoff_ms_min` doubles with each failure in a row up to `backoff_ms_max`; a jitter of up to a half is taken off.
    Failures are told as `Trouble` says, which several loops may share: `expected_errors` and those of the operating
    system in one line, all others with their traceback.
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
        """Begin with the first step at once. Needs a running event loop. Called once per object."""
        assert self._task is None, f"{self.name} was started before"
        self._task = asyncio.create_task(self._run(), name=self.name)

    def wake(self) -> None:
        """Do the next step now. A call during a step makes one more step follow it."""
        self._wake.set()

    def hurry(self) -> None:
        """Do the next step now, also after a failure. If it fails, too, the wait is that after a first failure."""
        self.failures_in_row_count = 0
        self._hurry.set()
        self._wake.set()

    def succeeded(self) -> None:
        """Forget the failures so far: what the step is for goes well. A step that returns need not call it."""
        self.last_error = None
        self.failures_in_row_count = 0
        self._trouble.ended(part=self)

    async def stop(self) -> None:
        """Cancel the step that runs and wait until it has ended. May be repeated."""
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

    A cancellation without a request is an ordinary failure: that of a call whose connection was closed here.
    """
    task = asyncio.current_task()
    return task is None or task.cancelling() > 0


async def _wait(event: asyncio.Event, timeout_ms: float) -> None:
    """Wait for an event, which is set after so long at the latest: that costs less than a time-out that cancels."""
    timer = asyncio.get_running_loop().call_later(timeout_ms / 1000, event.set)
    try:
        await event.wait()
    finally:
        timer.cancel()


async def in_steps(items: Iterable[T], *, count: int = STEP_COUNT) -> AsyncGenerator[list[T], None]:
    """Walk over many items, at most `count` at a time. Others run in between, and a cancelled caller stops there."""
    iterator = iter(items)
    while step := list(itertools.islice(iterator, count)):
        yield step
        await asyncio.sleep(0)
