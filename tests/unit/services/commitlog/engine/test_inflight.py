# SPDX-License-Identifier: Apache-2.0
"""The limit of requests in flight."""

import asyncio

import pytest

from libs.requests.errors import WindowFull
from services.commitlog.engine.write.inflight import InflightBudget


def test_taking_at_once() -> None:
    """A charge above the limit that cannot wait is refused, and the budget does not change."""
    budget = InflightBudget("bytes", 10)
    budget.charge(7)
    with pytest.raises(WindowFull, match="bytes") as caught:
        budget.charge(4)
    assert caught.value.limit == 10
    assert budget.charged == 7
    with pytest.raises(RuntimeError), budget.held(3):
        raise RuntimeError
    assert budget.charged == 7
    budget.give_back(7)
    budget.charge(11)
    assert budget.charged == 11


async def test_waiting_in_turn() -> None:
    """Waiting callers continue in the order of their arrival, even if a later request would fit."""
    budget = InflightBudget("bytes", 10)
    await budget.charge_waiting(8)
    order: list[str] = []

    async def take(name: str, amount: int) -> None:
        await budget.charge_waiting(amount)
        order.append(name)

    tasks = [asyncio.create_task(take("large", 6)), asyncio.create_task(take("small", 2))]
    await asyncio.sleep(0)
    assert order == []
    budget.give_back(8)
    await asyncio.gather(*tasks)
    assert order == ["large", "small"]
    assert budget.charged == 8


async def test_more_than_the_limit_alone() -> None:
    """A request above the whole limit is accepted alone, instead of waiting for ever."""
    budget = InflightBudget("bytes", 10)
    await budget.charge_waiting(50)
    waiting = asyncio.create_task(budget.charge_waiting(1))
    await asyncio.sleep(0)
    assert not waiting.done()
    budget.give_back(50)
    await waiting
    assert budget.charged == 1


@pytest.mark.parametrize("is_granted", [False, True])
async def test_giving_up(is_granted: bool) -> None:
    """A caller that is cancelled while it waits, or just after the grant, takes nothing and blocks no other caller."""
    budget = InflightBudget("bytes", 10)
    await budget.charge_waiting(10)
    waiting, behind = asyncio.create_task(budget.charge_waiting(5)), asyncio.create_task(budget.charge_waiting(6))
    await asyncio.sleep(0)
    if is_granted:
        budget.give_back(10)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    if not is_granted:
        budget.give_back(10)
    await behind
    assert budget.charged == 6
