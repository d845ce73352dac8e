# SPDX-License-Identifier: Apache-2.0
"""LongPolls: a wait ends with its event, its time or its caller, and is small compared to its call."""

import asyncio
import gc

import pytest

from libs.requests.errors import Stopping, WindowFull
from services.indexer.engine.follow.long_poll import LongPolls
from tests.support.patience import LIMIT_S

WAIT_COUNT = 1_000
LONG_S = 3_600.0


async def waiting(polls: LongPolls, timeout_s: float, count: int = 1) -> list[asyncio.Task[None]]:
    tasks = [asyncio.create_task(polls.wait("T", 0, timeout_s)) for _ in range(count)]
    await asyncio.sleep(0)
    return tasks


async def test_a_wait_ends_with_its_queue_its_time_or_its_caller() -> None:
    """A wait ends with a message, its time or its caller, and nothing is left behind."""
    polls = LongPolls(2)
    (woken, gone), (late,) = await waiting(polls, LONG_S, 2), await waiting(polls, LONG_S)
    with pytest.raises(WindowFull):
        await late
    gone.cancel()
    polls.wake([("U", 0), ("T", 0)], 0)
    async with asyncio.timeout(LIMIT_S):
        await asyncio.wait([woken, gone])
        assert (woken.exception(), gone.cancelled(), polls.count) == (None, True, 0)
        await polls.wait("T", 0, 0.001)
    assert (polls.count, polls._waiters) == (0, {})


async def test_a_wait_for_a_record_ends_with_it_its_time_or_its_caller() -> None:
    """Waits for a record behind the indexed end continue; pulls have their own limit, and nothing is left behind."""
    polls = LongPolls(4)
    waits = [asyncio.create_task(polls.wait_indexed(offset, LONG_S)) for offset in (300, 100, 100, 200)]
    (queue,) = await waiting(polls, LONG_S)
    with pytest.raises(WindowFull):
        await polls.wait_indexed(0, LONG_S)
    waits[2].cancel()
    polls.wake([], 200)
    async with asyncio.timeout(LIMIT_S):
        await asyncio.wait(waits[1:3])
        assert [wait.done() for wait in waits] == [False, True, True, False]
        await polls.wait_indexed(250, 0.001)
        polls.wake([], 201)
        await waits[3]
        assert (waits[0].done(), polls.count) == (False, 1)
        polls.close()
        for wait in (waits[0], queue):
            with pytest.raises(Stopping):
                await wait
    assert polls.count == 0


async def test_a_wait_is_a_few_objects() -> None:
    """A wait has few objects, because thousands may wait, and objects cost memory and time of the collector."""
    polls = LongPolls(WAIT_COUNT)
    gc.collect()
    before = len(gc.get_objects())
    tasks = await waiting(polls, LONG_S, WAIT_COUNT)
    assert (len(gc.get_objects()) - before) / WAIT_COUNT < 15
    polls.close()
    await asyncio.wait(tasks)
