# SPDX-License-Identifier: Apache-2.0
"""SupervisedLoop: continues after failures, waits longer each time, wakes on notice, stops at once."""

import asyncio
import logging

import pytest

from libs.machine.loop import SupervisedLoop
from tests.support.patience import LIMIT_S


class Steps:
    """A step that counts its runs, fails the given number of times, and notifies a test of its runs."""

    def __init__(self, failure_count: int = 0, error: type[BaseException] = ConnectionError) -> None:
        self.failure_count = failure_count
        self.error = error
        self.count = 0
        self._ran = asyncio.Event()

    async def __call__(self) -> None:
        self.count += 1
        self._ran.set()
        if self.count <= self.failure_count:
            raise self.error(f"failure {self.count}")

    async def reach(self, count: int) -> None:
        async with asyncio.timeout(LIMIT_S):
            while self.count < count:
                self._ran.clear()
                await self._ran.wait()


async def test_steps_follow_each_other() -> None:
    """With no interval the loop runs step after step until stopped, and other tasks get their turn."""
    steps = Steps()
    loop = SupervisedLoop("test", steps)
    assert not loop.is_running
    loop.start()
    await steps.reach(3)
    assert loop.is_running
    await loop.stop()
    await loop.stop()
    assert not loop.is_running


async def test_a_failure_is_kept_and_survived() -> None:
    """`last_error` has the failure while it lasts; the loop continues and forgets it after a good step."""
    steps = Steps(failure_count=2)
    loop = SupervisedLoop("test", steps, interval_ms=60_000, backoff_ms_min=1, backoff_ms_max=2)
    loop.start()
    await steps.reach(2)
    assert str(loop.last_error) == f"failure {loop.failures_in_row_count}"
    await steps.reach(3)
    await asyncio.sleep(0)
    assert (loop.last_error, loop.failures_in_row_count, loop.step_count) == (None, 0, 1)
    await loop.stop()


async def test_a_cancellation_that_nobody_asked_for_is_survived() -> None:
    """A call ends so when its connection is closed; that must not end the loop in silence."""
    steps = Steps(failure_count=2, error=asyncio.CancelledError)
    loop = SupervisedLoop("test", steps, interval_ms=60_000, backoff_ms_min=1, backoff_ms_max=2)
    loop.start()
    await steps.reach(3)
    await asyncio.sleep(0)
    assert (loop.last_error, loop.step_count, loop.is_running) == (None, 1, True)
    await loop.stop()
    assert not loop.is_running


@pytest.mark.parametrize(
    ("error", "expected_errors", "has_trace"),
    [(ValueError, (ValueError,), False), (IsADirectoryError, (), False), (ValueError, (), True)],
)
async def test_an_expected_failure_takes_one_line_of_log(
    caplog: pytest.LogCaptureFixture,
    error: type[Exception],
    expected_errors: tuple[type[Exception], ...],
    has_trace: bool,
) -> None:
    """A refusal of the system, or a peer that is away, is logged without a traceback.

    Every other error keeps its traceback.
    """
    caplog.set_level(logging.INFO)
    steps = Steps(failure_count=1, error=error)
    loop = SupervisedLoop("test", steps, backoff_ms_min=1, expected_errors=expected_errors)
    loop.start()
    await steps.reach(2)
    await loop.stop()
    record = caplog.records[0]
    assert "test failed, next attempt in" in record.getMessage()
    assert record.getMessage().endswith("failure 1")
    assert bool(record.exc_info) is has_trace


async def test_failures_in_a_row_take_two_lines(caplog: pytest.LogCaptureFixture) -> None:
    """A peer that is away does not fill the log.

    The first failure is logged, and that the loop works again. No start logs a warning.
    """
    caplog.set_level(logging.INFO)
    steps = Steps(failure_count=20)
    loop = SupervisedLoop("test", steps, backoff_ms_min=1, backoff_ms_max=1)
    loop.start()
    await steps.reach(22)
    await loop.stop()
    first, last = caplog.records
    assert (first.levelname, last.levelname) == ("INFO", "INFO")
    assert "test failed" in first.getMessage()
    assert last.getMessage().startswith("test works again after 20 failures in ")


async def test_wake_ends_the_pause() -> None:
    """A notice starts the next step long before the interval ends; a notice during a step is not lost."""
    steps = Steps()
    loop = SupervisedLoop("test", steps, interval_ms=60_000)
    loop.start()
    await steps.reach(1)
    loop.wake()
    await steps.reach(2)
    await loop.stop()


async def test_the_interval_ends_the_pause() -> None:
    """Without any notice the next step comes after the interval."""
    steps = Steps()
    loop = SupervisedLoop("test", steps, interval_ms=1)
    loop.start()
    await steps.reach(3)
    await loop.stop()


async def test_stop_cancels_a_step_that_hangs() -> None:
    """A step that waits for ever ends with the loop."""
    hanging = asyncio.Event()

    async def hang() -> None:
        hanging.set()
        await asyncio.Event().wait()

    loop = SupervisedLoop("test", hang)
    await loop.stop()
    loop.start()
    await hanging.wait()
    await loop.stop()
    assert not loop.is_running


async def test_waiting_grows_with_jitter_up_to_a_limit() -> None:
    """Each failure doubles the ceiling until the limit; the jitter takes off at most a half."""
    loop = SupervisedLoop("test", Steps(), backoff_ms_min=100, backoff_ms_max=1_000)
    for failures, ceiling_ms in [(1, 100), (2, 200), (3, 400), (4, 800), (5, 1_000), (1_000, 1_000)]:
        loop.failures_in_row_count = failures
        waits = [loop.backoff_ms() for _ in range(50)]
        assert ceiling_ms / 2 <= min(waits) < max(waits) <= ceiling_ms


async def test_a_loop_starts_once() -> None:
    """Starting twice is a programmer's mistake."""
    loop = SupervisedLoop("test", Steps())
    loop.start()
    with pytest.raises(AssertionError, match="was started before"):
        loop.start()
    await loop.stop()


async def test_a_step_that_swallows_its_cancellation_is_the_last_one() -> None:
    """`stop` returns and no further step begins, even if the step turns its cancellation into another error."""
    count = 0

    async def step() -> None:
        nonlocal count
        count += 1
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            raise ConnectionError("the other side has gone") from None

    loop = SupervisedLoop("test", step, backoff_ms_min=1)
    loop.start()
    await asyncio.sleep(0)
    await asyncio.wait_for(loop.stop(), LIMIT_S)
    assert not loop.is_running
    assert count == 1


async def test_an_event_wakes_the_loop() -> None:
    """An event wakes the loop without a reference to the loop; an event that was set before the start is not lost."""
    steps, found = Steps(), asyncio.Event()
    found.set()
    loop = SupervisedLoop("test", steps, interval_ms=3_600_000, wakes=found)
    loop.start()
    await steps.reach(1)
    await asyncio.sleep(0)
    found.set()
    await steps.reach(2)
    await loop.stop()


async def test_a_step_without_end_tells_that_all_is_well() -> None:
    """A stream that delivers ends the failures before it, though its step never returns."""
    steps, delivers = Steps(failure_count=3), asyncio.Event()

    async def stream() -> None:
        await steps()
        loop.succeeded()
        delivers.set()
        await asyncio.Event().wait()

    loop = SupervisedLoop("test", stream, backoff_ms_min=1)
    loop.start()
    async with asyncio.timeout(LIMIT_S):
        await delivers.wait()
    assert (loop.last_error, loop.failures_in_row_count, loop.step_count) == (None, 0, 0)
    await loop.stop()


async def test_a_hurried_step_waits_shortly_again() -> None:
    """`hurry` starts the next step at once and resets the count of failures; `last_error` stays.

    Its caller knows that the situation has changed, so that former failures do not predict the next step.
    """
    steps = Steps(failure_count=100)
    loop = SupervisedLoop("test", steps, backoff_ms_min=3_600_000, backoff_ms_max=3_600_000)
    loop.start()
    for count in (1, 2):
        await steps.reach(count)
        await asyncio.sleep(0)
        assert loop.failures_in_row_count == 1
        assert loop.last_error is not None
        loop.hurry()
    await loop.stop()
