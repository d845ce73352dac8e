# SPDX-License-Identifier: Apache-2.0
"""A group is deleted while calls of its members wait: no call restores it, and later calls begin a new group."""

import asyncio
import json
from collections.abc import Coroutine, Mapping, Sequence
from typing import Any

import pytest

from libs.formats.records.delivery_record import Policy
from libs.machine.testing.manual_clock import ManualClock
from services.delivery.engine.journal import copier as copying
from services.delivery.engine.own.group_engine import GroupEngine
from services.delivery.engine.ports.messages import JournaledMessage, Pulled, Wanted, Written
from services.delivery.engine.receive import subscriptions as subscriptions_module
from services.delivery.engine.receive.batch import Delivered
from services.delivery.engine.receive.settling import SettleRequest
from tests.support.memory_delivery import MemoryStore, delivering, engine_of
from tests.support.patience import LIMIT_S, eventually

GROUP, TOPIC = "g", "t"


class HeldStore(MemoryStore):
    """A store that holds the next call of a kind until the test releases it."""

    def __init__(self, queue_count: int = 1) -> None:
        super().__init__(queue_count)
        self.held_call = ""
        self.is_held, self.goes_on = asyncio.Event(), asyncio.Event()
        self.ended_copies: list[bytes] = []
        """Records with an edge of a copy."""
        self.keeps_reading = False
        """Whether a cancelled pull ends only when the test releases it."""

    async def hold(self, name: str) -> None:
        """Wait if this call is held."""
        if name == self.held_call:
            self.held_call = ""
            self.goes_on.clear()
            self.is_held.set()
            await self.goes_on.wait()

    async def until_held(self, name: str, call: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        """Begin a call, and return once it waits."""
        self.held_call = name
        self.is_held.clear()
        task = asyncio.create_task(call)
        async with asyncio.timeout(LIMIT_S):
            await self.is_held.wait()
        return task

    async def pull(self, topic: str, queue_id: int, queue_offset: int, **words: Any) -> Pulled:
        """See Index."""
        if not words["wait_s"]:
            await self.hold("read")
        try:
            return await super().pull(topic, queue_id, queue_offset, **words)
        except asyncio.CancelledError:
            if self.keeps_reading:
                self.is_held.set()
                await self.goes_on.wait()
            raise

    async def write(self, number: int, body: bytes, letters: Sequence[JournaledMessage], *, is_safe: bool) -> Written:
        """See Log."""
        kinds = [event[0] for event in json.loads(body)["events"]]
        for name in ("letter" if letters else "write", *kinds[:1]):
            await self.hold(name)
        written = await super().write(number, body, letters, is_safe=is_safe)
        if kinds[-1:] == ["edge"]:
            self.ended_copies.append(body)
        return written

    async def store_policies(self, policies: Mapping[str, Policy | None]) -> None:
        """See Index."""
        await self.hold("policies")
        await super().store_policies(policies)

    async def store_offsets(self, group: str, offsets: Mapping[tuple[str, int], int]) -> None:
        """See Index."""
        await self.hold(f"offsets of {group}")
        await super().store_offsets(group, offsets)


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


async def filled(*queues: int) -> HeldStore:
    """A store whose queues have these numbers of messages."""
    store = HeldStore(len(queues))
    for queue_id, count in enumerate(queues):
        for number in range(count):
            await store.append(TOPIC, f"{number}/{queue_id}", queue_id=queue_id)
    return store


async def receive(engine: GroupEngine, count: int = 10, **words: Any) -> list[Delivered]:
    defaults = {"invisible_ms": 1_000, "wanted": Wanted(), "wait_s": 0.0}
    return await engine.receive(GROUP, TOPIC, count=count, **(defaults | words))


async def until_received(engine: GroupEngine, count: int) -> list[Delivered]:
    """Receive until `count` messages came."""
    found: list[Delivered] = []
    async with asyncio.timeout(LIMIT_S):
        while len(found) < count:
            found += await receive(engine, count - len(found), wait_s=LIMIT_S)
    return found


async def deleted(engine: GroupEngine) -> None:
    """Delete the group."""
    await engine.set_policy(GROUP, None)


async def is_forgotten(store: MemoryStore, clock: ManualClock, engine: GroupEngine) -> bool:
    """Whether neither this process nor the next process knows the group."""
    if engine.groups.is_known(GROUP):
        return False
    async with delivering(store, clock) as owner:
        return not (await engine_of(owner)).groups.is_known(GROUP)


async def test_a_receive_that_reads_again_what_failed(clock: ManualClock) -> None:
    """It returns no message, and the group stays deleted."""
    store = await filled(2)
    async with delivering(store, clock) as owner:
        engine = await engine_of(owner)
        await until_received(engine, 2)
        clock.advance(1_000)
        receiving = await store.until_held("read", receive(engine))
        await deleted(engine)
        store.goes_on.set()
        assert await receiving == []
        assert await is_forgotten(store, clock, engine)


async def test_a_receive_that_goes_while_the_group_is_deleted(clock: ManualClock) -> None:
    """Its messages are not given back to the deleted group."""
    store = await filled(2)
    async with delivering(store, clock) as owner:
        engine = await engine_of(owner)
        await until_received(engine, 2)
        clock.advance(1_000)
        receiving = await store.until_held("write", receive(engine))
        deleting = asyncio.create_task(deleted(engine))
        await eventually(lambda: not engine.groups.is_known(GROUP))
        receiving.cancel()
        await asyncio.gather(receiving, return_exceptions=True)
        store.goes_on.set()
        await deleting
        assert await is_forgotten(store, clock, engine)


async def test_a_receive_that_is_repeated(clock: ManualClock) -> None:
    """It begins the group anew: at the committed offset, not at the former group's position."""
    store = await filled(1)
    async with delivering(store, clock) as owner:
        engine = await engine_of(owner)
        await receive(engine, wait_s=LIMIT_S, attempt_id="a")
        store.offsets[GROUP] = {(TOPIC, 0): 1}
        repeating = await store.until_held("read", receive(engine, attempt_id="a"))
        await deleted(engine)
        store.goes_on.set()
        assert await repeating == []
        assert [queue.next for queue in engine.groups.queues(GROUP)] == [1]


async def test_a_last_attempt_that_is_over(clock: ManualClock) -> None:
    """Its message becomes no dead letter if the group is deleted while the message is read."""
    store = await filled(1)
    async with delivering(store, clock) as owner:
        engine = await engine_of(owner)
        await engine.set_policy(GROUP, Policy(attempts_max=1))
        (one,) = await until_received(engine, 1)
        nacking = await store.until_held("read", engine.settling.settle([SettleRequest(one.handle, "nack")]))
        await deleted(engine)
        store.goes_on.set()
        await nacking
        await engine.set_policy("another", Policy())
        assert not any(store.queues(f"%DLQ%{GROUP}"))
        assert await is_forgotten(store, clock, engine)


async def test_a_letter_that_is_written(clock: ManualClock) -> None:
    """The dead letter is written, and the group stays deleted."""
    store = await filled(1)
    async with delivering(store, clock) as owner:
        engine = await engine_of(owner)
        (one,) = await until_received(engine, 1)
        burying = await store.until_held("letter", engine.settling.settle([SettleRequest(one.handle, "bury")]))
        deleting = asyncio.create_task(deleted(engine))
        await eventually(lambda: not engine.groups.is_known(GROUP))
        store.goes_on.set()
        await asyncio.gather(burying, deleting)
        assert len(store.queues(f"%DLQ%{GROUP}")[0]) == 1
        assert await is_forgotten(store, clock, engine)


@pytest.mark.parametrize("part", ["policy", "copied"])
async def test_a_copy_of_the_journal(part: str, clock: ManualClock, monkeypatch: pytest.MonkeyPatch) -> None:
    """A copy has policies and queues as of the write of their part, not as of its begin."""
    monkeypatch.setattr(copying, "PART_FLIGHT_COUNT", 1)
    store = await filled(1, 1, 1)
    async with delivering(store, clock) as owner:
        engine = await engine_of(owner)
        for group in ("before", GROUP):
            await engine.set_policy(group, Policy())
        await until_received(engine, 3)
        store.segment_size_bytes, store.held_call = 1, part
        async with asyncio.timeout(LIMIT_S):
            await store.is_held.wait()  # with the first call of this kind
        deleting = asyncio.create_task(deleted(engine))
        await eventually(lambda: not engine.groups.is_known(GROUP))
        copy_count = len(store.ended_copies)
        store.goes_on.set()
        await deleting
        await eventually(lambda: len(store.ended_copies) > copy_count)
        assert await is_forgotten(store, clock, engine)


async def test_a_group_that_begins_anew_while_the_former_one_ends(clock: ManualClock) -> None:
    """The deletion drops nothing of the new group: neither its filter nor its feeds."""
    store = await filled(5)
    async with delivering(store, clock) as owner:
        engine = await engine_of(owner)
        await until_received(engine, 5)
        store.keeps_reading = True
        deleting = asyncio.create_task(deleted(engine))
        async with asyncio.timeout(LIMIT_S):
            await store.is_held.wait()
        store.keeps_reading = False
        assert len(await until_received(engine, 5)) == 5
        store.goes_on.set()
        await deleting
        assert [filters.topic for filters in engine.subscriptions.filters.of_group(GROUP)] == [TOPIC]
        clock.advance(int(subscriptions_module.IDLE_S * 1000) + 1)
        await engine.run_maintenance()
        assert not [task for task in asyncio.all_tasks() if task.get_name().startswith("feed of ")]


async def test_a_place_that_is_told_while_the_group_is_deleted(clock: ManualClock) -> None:
    """The position is published again for the next group with this name."""
    store = await filled(1)
    async with delivering(store, clock) as owner:
        engine = await engine_of(owner)
        (one,) = await until_received(engine, 1)
        await engine.settling.settle([SettleRequest(one.handle, "ack")])
        telling = await store.until_held(f"offsets of {GROUP}", engine.published.publish())
        await deleted(engine)
        store.offsets[GROUP].clear()
        store.goes_on.set()
        await telling
        store.offsets[GROUP].clear()
        (one,) = await until_received(engine, 1)
        await engine.settling.settle([SettleRequest(one.handle, "ack")])
        await engine.published.publish()
        assert store.offsets[GROUP] == {(TOPIC, 0): 1}


async def test_a_policy_that_changes_while_it_is_told(clock: ManualClock) -> None:
    """The index gets the change, too."""
    store = await filled(1)
    async with delivering(store, clock) as owner:
        engine = await engine_of(owner)
        await engine.set_policy(GROUP, Policy(attempts_max=2))
        telling = await store.until_held("policies", engine.published.publish())
        await engine.set_policy(GROUP, Policy(attempts_max=3))
        store.goes_on.set()
        await telling
        await engine.published.publish()
        assert store.policies[GROUP].attempts_max == 3


async def test_a_member_that_reads_what_is_for_others_while_deliveries_end(clock: ManualClock) -> None:
    """Messages that it read for others do not count as read ahead: nothing would subtract them again."""
    store = HeldStore()
    for text in ("a1", "b1"):
        await store.append(TOPIC, text)
    async with delivering(store, clock) as owner:
        engine = await engine_of(owner)
        size_bytes_max, engine.subscriptions.read_ahead.size_bytes_max = (
            engine.subscriptions.read_ahead.size_bytes_max,
            0,
        )
        for tag in ("a", "b"):
            await receive(engine, wait_s=LIMIT_S, wanted=Wanted(tag))
        clock.advance(1_000)
        engine.subscriptions.read_ahead.size_bytes_max = size_bytes_max
        receiving = await store.until_held("read", receive(engine, wanted=Wanted("c")))
        await engine.stop()
        store.goes_on.set()
        await asyncio.gather(receiving, return_exceptions=True)
        assert engine.subscriptions.read_ahead.size_bytes == 0
