# SPDX-License-Identifier: Apache-2.0
"""An ordered group settles sealed queues, here and at other shards, before the queues that got their keys."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from dataclasses import dataclass

import pytest

from libs.formats.config.topic_share import Place as QueuePlace
from libs.formats.records.delivery_record import Place, Policy
from libs.machine.testing.manual_clock import ManualClock
from services.delivery.engine.own.group_engine import GroupEngine
from services.delivery.engine.own.journal_owner import JournalOwner
from services.delivery.engine.own.standstill import Reason
from services.delivery.engine.ports.log import TopicQueues
from services.delivery.engine.ports.messages import SealedStage, Wanted
from services.delivery.engine.receive.batch import Delivered
from services.delivery.engine.receive.parents import LOOK_S
from services.delivery.engine.receive.positions import TOPIC_LOOK_S
from services.delivery.engine.receive.sealed_queues import END_S
from services.delivery.engine.receive.settling import SettleRequest
from tests.support.memory_delivery import MemoryStore, delivering, engine_of
from tests.support.patience import LIMIT_S, eventually

GROUP, TOPIC, KEY = "g", "t", 7
ORDERED = Policy(is_ordered=True, backoffs_ms=(0,))


@dataclass
class Shards:
    """Two shards: queue 0 of the topic is at `a`, and queue 1, which gets its keys, at `b`."""

    a: MemoryStore
    b: MemoryStore
    owners: dict[str, JournalOwner]
    clock: ManualClock

    async def engine(self, shard: str) -> GroupEngine:
        """Return the engine of a shard's Delivery."""
        return await self.owners[shard].engine()

    def seal(self) -> None:
        """Seal queue 0, and open queue 1."""
        self.a.shares[TOPIC] = TopicQueues([0], frozenset({0}))
        self.b.shares[TOPIC] = TopicQueues([1], parents={1: (QueuePlace("a", 0),)})
        self.clock.advance(round(1_000 * TOPIC_LOOK_S) + 1)

    async def receive(self, shard: str) -> list[Delivered]:
        """Receive at a shard, without a wait, after its Delivery has asked about parents again."""
        engine = await self.engine(shard)
        for _ in range(4):
            found = await engine.receive(GROUP, TOPIC, count=10, invisible_ms=None, wanted=Wanted(), wait_s=0)
            if found:
                return found
            self.clock.advance(round(1_000 * LOOK_S) + 1)
            await asyncio.sleep(0.02)
        return []

    async def texts(self, shard: str) -> list[str]:
        """Return the messages of a receive at a shard."""
        return [one.message for one in await self.receive(shard)]


async def ack(engine: GroupEngine, *some: Delivered) -> None:
    """Acknowledge messages."""
    outcomes = await engine.settling.settle([SettleRequest(one.handle, "ack") for one in some])
    assert all(outcome.error is None for outcome in outcomes)


@pytest.fixture
async def shards() -> AsyncIterator[Shards]:
    """Two shards, of which the second has no queue of the topic yet."""
    clock = ManualClock()
    found = Shards(MemoryStore(), MemoryStore(), {}, clock)
    found.a.shares[TOPIC] = TopicQueues([0])
    for store in (found.a, found.b):
        store.queues(TOPIC)  # makes the topic
    async with AsyncExitStack() as running:
        for name, store in (("a", found.a), ("b", found.b)):
            found.owners[name] = await running.enter_async_context(delivering(store, clock))
            await (await engine_of(found.owners[name])).set_policy(GROUP, ORDERED)
        found.b.shards = {"a": found.owners["a"]}
        yield found


async def test_a_queue_waits_for_its_parent_at_another_shard(shards: Shards) -> None:
    """The new queue is delivered when the group has settled all messages of its parent, and not before."""
    for text in ("1", "2"):
        await shards.a.append(TOPIC, text, key=KEY)
    (first,) = await shards.receive("a")
    shards.seal()
    await shards.b.append(TOPIC, "3", queue_id=1, key=KEY)
    assert await shards.texts("b") == []
    (lag,) = await (await shards.engine("b")).lags.of(GROUP)
    (standstill,) = lag.standstills
    assert (lag.place.queue_id, lag.unsettled_count, standstill.reason) == (1, 1, Reason.PARENT_QUEUES)
    assert "queue 0 of shard a has 2 messages that are not settled" in standstill.text
    await ack(await shards.engine("a"), first)
    assert await shards.texts("b") == []
    (second,) = await shards.receive("a")
    assert second.message == "2"
    assert await shards.texts("b") == []
    await ack(await shards.engine("a"), second)
    assert await shards.texts("b") == ["3"]


async def test_a_parent_from_which_the_group_never_received(shards: Shards) -> None:
    """A group without a position in the parent gets one by a receive there. Until then the new queue waits."""
    await shards.a.append(TOPIC, "1", key=KEY)
    shards.seal()
    await shards.b.append(TOPIC, "2", queue_id=1, key=KEY)
    assert await shards.texts("b") == []
    engine = await shards.engine("b")
    (reason,) = engine.positions.parents.unfinished(GROUP, TOPIC, 1).values()
    assert reason == "the group did not receive from queue 0 of shard a yet"
    (first,) = await shards.receive("a")
    await ack(await shards.engine("a"), first)
    assert await shards.texts("b") == ["2"]


async def test_an_empty_parent_with_parents_is_not_finished_at_once(shards: Shards) -> None:
    """A queue that moved twice waits for the first queue, also if no message came to the second."""
    await shards.a.append(TOPIC, "1", key=KEY)
    await shards.receive("a")
    shards.a.shares[TOPIC] = TopicQueues([0, 2], frozenset({0}), {2: (QueuePlace("b", 1),)})
    shards.b.shares[TOPIC] = TopicQueues([1], frozenset({1}), {1: (QueuePlace("a", 0),)})
    found = await (await shards.engine("b")).sealed_queues.of(GROUP, TOPIC, [1, 0])
    assert [(one.queue_id, one.stage) for one in found] == [(1, SealedStage.NO_POSITION), (0, SealedStage.NOT_SEALED)]


async def test_a_parent_whose_shard_is_away(shards: Shards) -> None:
    """The queue waits and names the reason, other queues of the shard go on, and receives are not held up."""
    shards.seal()
    shards.b.shares[TOPIC] = TopicQueues([1, 0], parents={1: (QueuePlace("c", 5),)})
    await shards.b.append(TOPIC, "held", queue_id=1, key=KEY)
    await shards.b.append(TOPIC, "goes on", queue_id=0, key=KEY + 1)
    assert await shards.texts("b") == ["goes on"]
    engine = await shards.engine("b")
    (reason,) = engine.positions.parents.unfinished(GROUP, TOPIC, 1).values()
    assert "queue 5 of shard c" in reason
    assert "shard c is away" in reason


async def test_an_index_that_is_behind_finishes_nothing(shards: Shards) -> None:
    """A parent is finished only when the index has all of its messages."""
    await shards.a.append(TOPIC, "1", key=KEY)
    (first,) = await shards.receive("a")
    await ack(await shards.engine("a"), first)
    shards.a.transactions.seen_count = 0  # the index knows nothing of the log's end
    shards.seal()
    await shards.b.append(TOPIC, "2", queue_id=1, key=KEY)
    assert await shards.texts("b") == []
    shards.a.transactions.seen_count = None
    assert await shards.texts("b") == ["2"]


async def test_a_topic_that_is_made_again_and_sealed_again(shards: Shards) -> None:
    """The end of the log at the first seal is behind no message of the second making of the topic."""
    shards.seal()
    shards.a.shares[TOPIC] = TopicQueues([0], frozenset({0}), share_version=5)
    sealed = (await shards.engine("a")).sealed_queues
    shards.a.transactions.indexed_offset = shards.a.end  # the index has the log up to here, and no later message
    (found,) = await sealed.of(GROUP, TOPIC, [0])
    assert found.stage == SealedStage.SETTLED
    await shards.a.append(TOPIC, "1", key=KEY)
    shards.a.shares[TOPIC] = TopicQueues([0], frozenset({0}), share_version=3)
    (found,) = await sealed.of(GROUP, TOPIC, [0])
    assert found.stage == SealedStage.NOT_INDEXED, "the version fell"
    shards.a.transactions.indexed_offset = shards.a.end
    shards.a.shares[TOPIC] = TopicQueues([0], frozenset({0}), share_version=4)
    await shards.a.append(TOPIC, "2", key=KEY)
    (found,) = await sealed.of(GROUP, TOPIC, [0])
    assert found.stage != SealedStage.NOT_INDEXED, "a later message of another queue holds nothing up"
    shards.clock.advance(round(1_000 * END_S))
    (found,) = await sealed.of(GROUP, TOPIC, [0])
    assert found.stage == SealedStage.NOT_INDEXED, "the looks paused"


async def test_groups_without_order_do_not_wait(shards: Shards) -> None:
    """Without order the new queue is delivered at once, from its first message, also with `from_end`."""
    await (await shards.engine("b")).set_policy(GROUP, Policy(from_end=True))
    await shards.a.append(TOPIC, "1", key=KEY)
    shards.seal()
    await shards.b.append(TOPIC, "2", queue_id=1, key=KEY)
    assert await shards.texts("b") == ["2"]


async def test_a_hold_that_was_lifted_stays_lifted(shards: Shards) -> None:
    """The position is in the journal: the next process delivers the queue while the parent's shard is away."""
    shards.seal()
    assert await shards.texts("b") == []
    assert await shards.texts("b") == []
    await eventually(lambda: shards.b.next > 0)
    engine = await shards.engine("b")
    assert engine.groups.find(Place(GROUP, TOPIC, 1)) is not None, "the empty parent is finished"
    shards.b.shards = {}
    await shards.b.append(TOPIC, "2", queue_id=1, key=KEY)
    async with delivering(shards.b, shards.clock) as successor:
        engine = await engine_of(successor)
        found = await engine.receive(GROUP, TOPIC, count=10, invisible_ms=None, wanted=Wanted(), wait_s=LIMIT_S)
        assert [one.message for one in found] == ["2"]


async def test_an_operator_lets_a_queue_go(shards: Shards) -> None:
    """A reset of the group gives it a position in the queue, and ends the wait."""
    await shards.a.append(TOPIC, "1", key=KEY)
    await shards.receive("a")
    shards.seal()
    await shards.b.append(TOPIC, "2", queue_id=1, key=KEY)
    assert await shards.texts("b") == []
    await (await shards.engine("b")).move(GROUP, TOPIC, {1: 0})
    assert await shards.texts("b") == ["2"]


async def test_a_deleted_group_leaves_no_look_behind(shards: Shards) -> None:
    """Looks at parents end with the group, and with the ownership."""
    await shards.a.append(TOPIC, "1", key=KEY)
    shards.seal()
    assert await shards.texts("b") == []
    engine = await shards.engine("b")
    await engine.set_policy(GROUP, None)
    assert engine.positions.parents.unfinished(GROUP, TOPIC, 1) == {}
    await shards.receive("b")
    await engine.stop()
    assert not [task for task in asyncio.all_tasks() if task.get_name() == "parents of queues"]
