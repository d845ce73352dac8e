# SPDX-License-Identifier: Apache-2.0
"""Messages within a caller's credit, over a log and an index in memory, and rules that receives share."""

import asyncio
from unittest import mock

import pytest

from libs.formats.records.delivery_record import Policy
from libs.machine.testing.manual_clock import ManualClock
from services.delivery.engine.own.consumption import Consumption
from services.delivery.engine.own.group_engine import GroupEngine
from services.delivery.engine.own.journal_owner import JournalOwner
from services.delivery.engine.own.lag_metrics import GroupLag, LagMetrics
from services.delivery.engine.ports.messages import Wanted
from services.delivery.engine.receive.batch import Delivered
from services.delivery.engine.receive.settling import SettleRequest
from services.delivery.engine.receive.subscription import Subscription
from services.delivery.errors import JournalLost
from tests.support.memory_delivery import RECORD_SIZE_BYTES, MemoryStore, delivering, engine_of
from tests.support.patience import LIMIT_S

GROUP, TOPIC = "g", "t"


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


async def filled(*messages: str) -> MemoryStore:
    store = MemoryStore(queue_count=1)
    store.queues(TOPIC)
    for message in messages:
        await store.append(TOPIC, message)
    return store


def consumption(owner: JournalOwner, *topics: str) -> Consumption:
    return Consumption(owner, GROUP, topics or (TOPIC,), invisible_ms=None, wanted=Wanted())


async def some(one: Consumption, count: int) -> list[str]:
    """The next `count` messages."""
    found: list[Delivered] = []
    async with asyncio.timeout(LIMIT_S):
        while len(found) < count:
            found += await one.next()
    return [delivered.message for delivered in found]


async def test_no_more_comes_than_there_is_credit_for(clock: ManualClock) -> None:
    """Messages and bytes are bounds; only the last message may be larger than the rest of the credit."""
    store = await filled(*map(str, range(10)))
    async with delivering(store, clock) as owner:
        engine = await engine_of(owner)
        slow = consumption(owner)
        slow.credit(3, 1 << 20)
        assert await some(slow, 3) == ["0", "1", "2"]
        waiting = asyncio.create_task(slow.next())
        await asyncio.sleep(0.1)
        assert not waiting.done()
        quick = consumption(owner)
        quick.credit(100, RECORD_SIZE_BYTES + 1)
        assert await some(quick, 2) == ["3", "4"]
        slow.credit(1, 0)
        assert [one.message for one in await waiting] == ["5"]
        assert engine.groups.open_count == 6


async def test_topics_take_turns(clock: ManualClock) -> None:
    """A busy topic does not keep another topic from being served."""
    store = await filled(*("a" * 20))
    for _ in range(20):
        await store.append("u", "b")
    async with delivering(store, clock) as owner:
        await engine_of(owner)
        both = consumption(owner, TOPIC, "u")
        both.credit(1, 1 << 20)
        found = []
        for _ in range(8):
            found += await some(both, 1)
            both.credit(1, 0)
        assert 2 <= found.count("b") <= 6


async def test_a_message_wakes_who_waits(clock: ManualClock) -> None:
    """The first message of any of its topics is delivered."""
    store = await filled()
    store.queues("u")
    async with delivering(store, clock) as owner:
        await engine_of(owner)
        both = consumption(owner, TOPIC, "u")
        both.credit(10, 1 << 20)
        waiting = asyncio.create_task(both.next())
        await asyncio.sleep(0.1)
        await store.append("u", "late")
        async with asyncio.timeout(LIMIT_S):
            assert [one.message for one in await waiting] == ["late"]


async def test_a_stop_ends_it(clock: ManualClock) -> None:
    """A waiting call returns at the stop, and no further message is received."""
    store = await filled()
    async with delivering(store, clock) as owner:
        await engine_of(owner)
        one = consumption(owner)
        one.credit(10, 1 << 20)
        waiting = asyncio.create_task(one.next())
        await asyncio.sleep(0.05)
        one.stop()
        assert await waiting == []
        await store.append(TOPIC, "a")
        assert await one.next() == []


async def test_it_goes_on_when_the_journal_is_read_anew(clock: ManualClock) -> None:
    """A call that waits when the process begins anew gets later messages."""
    store = await filled()
    async with delivering(store, clock) as owner:
        engine = await engine_of(owner)
        one = consumption(owner)
        one.credit(10, 1 << 20)
        waiting = asyncio.create_task(one.next())
        await asyncio.sleep(0.05)
        store.lost_answers = 1
        with pytest.raises(JournalLost):
            await engine.set_policy(GROUP, Policy())
        await store.append(TOPIC, "a")
        async with asyncio.timeout(LIMIT_S):
            assert [delivered.message for delivered in await waiting] == ["a"]


async def test_a_receive_that_waits_hears_that_the_process_begins_anew(clock: ManualClock) -> None:
    """A receive does not wait for its whole time if the journal is lost."""
    store = await filled()
    async with delivering(store, clock) as owner:
        engine = await engine_of(owner)
        receiving = engine.receive(GROUP, TOPIC, count=1, invisible_ms=None, wanted=Wanted(), wait_s=LIMIT_S)
        waiting = asyncio.create_task(receiving)
        await asyncio.sleep(0.05)
        store.refused_writes = 1
        with pytest.raises(Exception, match="disk is full"):
            await engine.set_policy(GROUP, Policy())
        async with asyncio.timeout(LIMIT_S / 2):
            with pytest.raises(JournalLost):
                await waiting


async def receive(engine: GroupEngine, *, wait_s: float) -> list[Delivered]:
    return await engine.receive(GROUP, TOPIC, count=10, invisible_ms=None, wanted=Wanted(), wait_s=wait_s)


async def test_a_receive_of_a_paused_group_sleeps_until_it_goes_on(clock: ManualClock) -> None:
    """Due messages of a paused group cause no repeated looks; the end of the pause wakes the member at once."""
    store = await filled("a")
    async with delivering(store, clock) as owner:
        engine = await engine_of(owner)
        (a,) = await receive(engine, wait_s=LIMIT_S)
        await engine.settling.settle([SettleRequest(a.handle, "nack", 0)])
        await engine.set_policy(GROUP, Policy(is_paused=True))
        with mock.patch.object(Subscription, "take", autospec=True, side_effect=Subscription.take) as take:
            waiting = asyncio.create_task(receive(engine, wait_s=LIMIT_S))
            await asyncio.sleep(1.0)
            assert take.call_count <= 2
            await engine.set_policy(GROUP, Policy())
            async with asyncio.timeout(LIMIT_S / 2):
                (again,) = await waiting
        assert again.attempt == 2


async def test_a_message_that_was_not_tried_keeps_its_attempts(clock: ManualClock) -> None:
    """A consumer that gives back a message as untried does not use up its attempts."""
    store = await filled("a")
    async with delivering(store, clock) as owner:
        engine = await engine_of(owner)
        await engine.set_policy(GROUP, Policy(attempts_max=2))
        for _ in range(5):
            (a,) = await receive(engine, wait_s=LIMIT_S)
            assert a.attempt == 1
            await engine.settling.settle([SettleRequest(a.handle, "nack", 0, is_untried=True)])


async def test_lags_are_measured_while_this_process_delivers(clock: ManualClock) -> None:
    """Metrics show the lag of each group in a topic, and nothing while the process does not deliver."""
    store = await filled()
    for number in range(3):
        await store.append(TOPIC, str(number), store_time_ms=clock.now_ms())
    async with delivering(store, clock) as owner:
        measuring = LagMetrics(owner)
        await measuring.look()
        assert measuring.lags == {}
        assert not owner.is_owner
        engine = await engine_of(owner)
        first, *_ = await receive(engine, wait_s=LIMIT_S)
        await engine.settling.settle([SettleRequest(first.handle, "ack")])
        clock.advance(2_500)
        await measuring.look()
        assert measuring.lags == {(GROUP, TOPIC): GroupLag(2, 2.5, 2 * RECORD_SIZE_BYTES, in_flight_messages=2)}


async def test_lag_is_told_in_messages_and_in_time(clock: ManualClock) -> None:
    """The lag counts the messages that are not settled and their bytes; the oldest gives the time."""
    store = await filled()
    for number in range(4):
        await store.append(TOPIC, str(number), store_time_ms=clock.now_ms() + number * 1_000)
    async with delivering(store, clock) as owner:
        engine = await engine_of(owner)
        first, second, *_ = await receive(engine, wait_s=LIMIT_S)
        await engine.settling.settle([SettleRequest(first.handle, "ack")])
        clock.advance(10_000)
        (lag,) = await engine.lags.of(GROUP)
        assert (lag.unsettled_count, lag.lag_ms, lag.lag_bytes) == (3, 9_000, 3 * RECORD_SIZE_BYTES)
        await engine.settling.settle([SettleRequest(second.handle, "ack")])
        assert (await engine.lags.of(GROUP))[0].lag_ms == 8_000
        await engine.move(GROUP, TOPIC, {0: 4})
        assert (await engine.lags.of(GROUP))[0].lag_ms is None
