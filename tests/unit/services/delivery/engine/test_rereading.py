# SPDX-License-Identifier: Apache-2.0
"""Failed messages are delivered again without holding up new messages, over a log and an index in memory."""

from collections.abc import Sequence
from typing import Any

import pytest

from libs.formats.records.delivery_record import Policy
from libs.machine.testing.manual_clock import ManualClock
from services.delivery.engine.own.group_engine import GroupEngine
from services.delivery.engine.ports.messages import Pulled, Wanted
from services.delivery.engine.receive.batch import Delivered
from services.delivery.engine.receive.rereading import GAP_COUNT_MAX, GAP_SIZE_BYTES
from services.delivery.engine.receive.settling import SettleRequest
from tests.support.memory_delivery import MemoryStore, delivering, engine_of
from tests.support.patience import LIMIT_S

GROUP, TOPIC = "g", "t"


class WatchedStore(MemoryStore):
    """A store that counts pulls without a wait: messages that are delivered again are read so."""

    def __init__(self) -> None:
        super().__init__(queue_count=2)
        self.again_count = 0

    async def pull(self, topic: str, queue_id: int, queue_offset: int, **how: Any) -> Pulled:
        """See Index."""
        self.again_count += not how["wait_s"]
        return await super().pull(topic, queue_id, queue_offset, **how)


async def receive(engine: GroupEngine, count: int = 32, wait_s: float = LIMIT_S) -> list[Delivered]:
    return await engine.receive(GROUP, TOPIC, count=count, invisible_ms=None, wanted=Wanted(), wait_s=wait_s)


async def settle(engine: GroupEngine, verb: str, some: Sequence[Delivered]) -> None:
    await engine.settling.settle([SettleRequest(one.handle, verb, 0) for one in some])  # type: ignore[arg-type]


async def failed(
    store: WatchedStore, engine: GroupEngine, count: int, *, each: int = 2, size_bytes: int = 100
) -> list[str]:
    """Let a group receive messages of a queue, and let each second, third and so on fail. Returns the failed."""
    await engine.set_policy(GROUP, Policy(attempts_max=9))
    for number in range(count):
        await store.append(TOPIC, str(number), size_bytes=size_bytes)
    got: list[Delivered] = []
    while len(got) < count:
        got += await receive(engine, count)
    got.sort(key=lambda one: int(one.message))
    await settle(engine, "ack", [one for one in got if int(one.message) % each])
    again = [one for one in got if not int(one.message) % each]
    await settle(engine, "nack", again)
    return [one.message for one in again]


async def drained(engine: GroupEngine, count: int) -> list[str]:
    got: list[str] = []
    while len(got) < count:
        some = await receive(engine)
        assert all(one.attempt == 2 for one in some)
        got += [one.message for one in some]
        await settle(engine, "ack", some)
    return got


@pytest.mark.parametrize("each", [1, 2, GAP_COUNT_MAX])
async def test_messages_that_lie_near_each_other_come_again_in_few_calls(each: int) -> None:
    """The messages between them are read and dropped, and each failed message is delivered once."""
    store = WatchedStore()
    store.queues(TOPIC)
    async with delivering(store, ManualClock()) as owner:
        engine = await engine_of(owner)
        again = await failed(store, engine, 640, each=each)
        assert sorted(await drained(engine, len(again))) == sorted(again)
        assert store.again_count <= 2 * len(again) // 32 + 2
        assert await receive(engine, wait_s=0) == []


async def test_large_messages_between_cost_a_bounded_answer() -> None:
    """A call ends at GAP_SIZE_BYTES, and the next call begins at the next wanted message."""
    store = WatchedStore()
    store.queues(TOPIC)
    async with delivering(store, ManualClock()) as owner:
        engine = await engine_of(owner)
        again = await failed(store, engine, 40, each=8, size_bytes=GAP_SIZE_BYTES // 4)
        assert sorted(await drained(engine, len(again))) == sorted(again)
        assert store.again_count <= 2 * len(again)


async def test_both_have_their_turn() -> None:
    """After a receive that begins with failed messages, the next receive begins with new messages."""
    store = WatchedStore()
    store.queues(TOPIC)
    async with delivering(store, ManualClock()) as owner:
        engine = await engine_of(owner)
        again = await failed(store, engine, 64)
        (first,) = await receive(engine, 1)
        for number in range(64):
            await store.append(TOPIC, f"fresh{number}")
        attempts = [first.attempt]
        while len(attempts) < 20:
            (one,) = await receive(engine, 1)
            attempts.append(one.attempt)
        assert 5 <= attempts.count(1) <= 12
        assert len(again) == 32


async def test_failed_messages_of_all_queues_have_their_turn() -> None:
    """Messages of a queue that fail each time and are due at once hold up no failed message of another queue."""
    store = WatchedStore()
    store.queues(TOPIC)
    async with delivering(store, ManualClock()) as owner:
        engine = await engine_of(owner)
        await failed(store, engine, 64, each=1)
        await store.append(TOPIC, "other", queue_id=1)
        while not (found := [one for one in await receive(engine, 1) if one.message == "other"]):
            pass
        await settle(engine, "nack", found)
        seen: set[Any] = set()
        for _ in range(4):
            some = await receive(engine)
            seen |= {one.message for one in some}
            await settle(engine, "nack", some)
        assert "other" in seen


async def test_messages_that_are_gone_are_settled() -> None:
    """Retention removed them while they waited."""
    store = WatchedStore()
    store.queues(TOPIC)
    async with delivering(store, ManualClock()) as owner:
        engine = await engine_of(owner)
        await failed(store, engine, 100)
        store.min_offsets[TOPIC, 0] = 98
        assert await drained(engine, 1) == ["98"]
        assert await receive(engine, wait_s=0) == []
        assert engine.groups.open_count == 0
