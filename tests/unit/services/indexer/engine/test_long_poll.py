# SPDX-License-Identifier: Apache-2.0
"""LongPolls: a wait ends with a message, with its time or with its caller, and is little beside the call it is of."""

import asyncio
import gc

import pytest

from libs.requests.errors import WindowFull
from services.indexer.engine.follow.long_poll import LongPolls
from tests.support.patience import LIMIT_S

WAIT_COUNT = 1_000
LONG_S = 3_600.0


async def waiting(polls: LongPolls, timeout_s: float, count: int = 1) -> list[asyncio.Task[None]]:
    tasks = [asyncio.create_task(polls.wait("T", 0, timeout_s)) for _ in range(count)]
    await asyncio.sleep(0)
    return tasks


async def test_a_wait_ends_with_its_queue_its_time_or_its_caller() -> None:
    """Whichever comes first; nothing is left behind."""
    polls = LongPolls(2)
    (woken, gone), (late,) = await waiting(polls, LONG_S, 2), await waiting(polls, LONG_S)
    with pytest.raises(WindowFull):
        await late
    gone.cancel()
    polls.wake([("U", 0), ("T", 0)])
    async with asyncio.timeout(LIMIT_S):
        await asyncio.wait([woken, gone])
        assert (woken.exception(), gone.cancelled(), polls.count) == (None, True, 0)
        await polls.wait("T", 0, 0.001)
    assert (polls.count, polls._waiters) == (0, {})


async def test_a_wait_is_a_few_objects() -> None:
    """Thousands may wait: each object is memory, and time of the collector."""
    polls = LongPolls(WAIT_COUNT)
    gc.collect()
    before = len(gc.get_objects())
    tasks = await waiting(polls, LONG_S, WAIT_COUNT)
    assert (len(gc.get_objects()) - before) / WAIT_COUNT < 15
    polls.close()
    await asyncio.wait(tasks)
