# SPDX-License-Identifier: Apache-2.0
"""The first step of a coroutine without a task, and its continuation in a task."""

import asyncio
from collections.abc import Awaitable

import pytest

from libs.runtime.rpc.first_step import Rest, first_step


async def _run(rest: bytes | Rest) -> bytes:
    assert not isinstance(rest, bytes)
    return await rest()


def _task(rest: bytes | Rest) -> "asyncio.Task[bytes]":
    return asyncio.create_task(_run(rest))


async def _of(waits_for: Awaitable[bytes]) -> bytes:
    return b"got " + await waits_for


async def test_a_result_without_a_wait() -> None:
    """The coroutine ran in the caller's step, without a task."""

    async def work() -> bytes:
        assert asyncio.current_task() is test
        return b"done"

    test = asyncio.current_task()
    assert first_step(work()) == b"done"


@pytest.mark.parametrize("error", [ValueError("bad"), asyncio.CancelledError("by itself")])
async def test_an_error_without_a_wait(error: BaseException) -> None:
    """It is raised by the rest, not by the step."""

    async def work() -> bytes:
        raise error

    with pytest.raises(type(error), match=str(error)):
        await _run(first_step(work()))


@pytest.mark.parametrize("is_early", [True, False])
async def test_a_wait_goes_on_in_a_task(is_early: bool) -> None:
    """The result of the future arrives, whether it is there before the task begins or after it."""
    future = asyncio.get_running_loop().create_future()
    rest = first_step(_of(future))
    if is_early:
        future.set_result(b"it")
    task = _task(rest)
    await asyncio.sleep(0)
    if not is_early:
        future.set_result(b"it")
    assert await task == b"got it"


async def test_an_error_of_the_future() -> None:
    """The coroutine gets it, and may handle it."""

    async def work(future: "asyncio.Future[bytes]") -> bytes:
        try:
            return await future
        except ValueError:
            await asyncio.sleep(0)
            return b"handled"

    future = asyncio.get_running_loop().create_future()
    task = _task(first_step(work(future)))
    await asyncio.sleep(0)
    future.set_exception(ValueError())
    assert await task == b"handled"


async def test_a_turn_of_others() -> None:
    """A coroutine that lets others have their turn is continued."""

    async def work() -> bytes:
        for _ in range(3):
            await asyncio.sleep(0)
        return b"done"

    assert await _run(first_step(work())) == b"done"


async def test_others_may_wait_for_the_same_future() -> None:
    """Tasks and other coroutines that were stepped all get the result."""
    future = asyncio.get_running_loop().create_future()
    before = asyncio.create_task(_of(future))
    await asyncio.sleep(0)
    rests = [first_step(_of(future)) for _ in range(2)]
    after = asyncio.create_task(_of(future))
    await asyncio.sleep(0)
    tasks = [before, after, *map(_task, rests)]
    await asyncio.sleep(0)
    future.set_result(b"it")
    assert await asyncio.gather(*tasks) == [b"got it"] * 4


async def test_a_cancellation_reaches_the_coroutine() -> None:
    """It arrives at the place of the wait, and the coroutine may clean up with further waits."""
    ends: list[str] = []

    async def work(future: "asyncio.Future[bytes]") -> bytes:
        try:
            return await future
        finally:
            await asyncio.sleep(0)
            ends.append("clean")

    future = asyncio.get_running_loop().create_future()
    task = _task(first_step(work(future)))
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert (ends, future.cancelled()) == (["clean"], True)


async def test_a_rest_that_is_dropped_is_closed() -> None:
    """The end of a coroutine that nobody continues is its clean-up."""
    ends: list[str] = []

    async def work(future: "asyncio.Future[bytes]") -> bytes:
        try:
            return await future
        finally:
            ends.append("closed")

    rest = first_step(work(asyncio.get_running_loop().create_future()))
    assert not isinstance(rest, bytes)
    del rest
    assert ends == ["closed"]
