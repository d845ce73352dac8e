# SPDX-License-Identifier: Apache-2.0
"""Calls of a single group to the engine of Delivery over a store in memory."""

from collections.abc import Sequence

from services.delivery.engine.own.group_engine import GroupEngine
from services.delivery.engine.ports.messages import Wanted
from services.delivery.engine.receive.batch import Delivered
from services.delivery.engine.receive.settling import SettleRequest
from tests.support.memory_delivery import MemoryStore
from tests.support.patience import LIMIT_S

GROUP, TOPIC = "g", "t"


async def filled(count: int) -> MemoryStore:
    """A store whose topic has a single queue with some messages of three keys."""
    store = MemoryStore(queue_count=1)
    store.queues(TOPIC)
    for number in range(count):
        await store.append(TOPIC, f"m{number}", key=number % 3 + 1)
    return store


async def receive(engine: GroupEngine, count: int = 10, wait_s: float = LIMIT_S) -> list[Delivered]:
    """Receive messages, which are invisible for a second."""
    return await engine.receive(GROUP, TOPIC, count=count, invisible_ms=1_000, wanted=Wanted("*"), wait_s=wait_s)


async def ack(engine: GroupEngine, delivered: Sequence[Delivered]) -> None:
    """Acknowledge messages. Raises the error of the first that was refused."""
    for outcome in await engine.settling.settle([SettleRequest(one.handle, "ack") for one in delivered]):
        if outcome.error is not None:
            raise outcome.error
