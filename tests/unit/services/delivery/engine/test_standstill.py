# SPDX-License-Identifier: Apache-2.0
"""The reasons that are reported for a queue in which a group makes no progress."""

import logging

import pytest

from libs.formats.records.delivery_record import Policy
from libs.machine.testing.manual_clock import ManualClock
from services.delivery.engine.own.group_engine import GroupEngine
from services.delivery.engine.own.lag_metrics import GroupStandstill, LagMetrics
from services.delivery.engine.own.standstill import Reason
from services.delivery.engine.ports.messages import Pulled, Wanted
from services.delivery.engine.receive.settling import SettleRequest
from services.delivery.engine.receive.subscriptions import ASKED_S
from services.delivery.errors import MessageDamaged
from tests.support.memory_delivery import MemoryStore, delivering, engine_of
from tests.support.patience import eventually

GROUP, TOPIC = "g", "t"


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


class Damaged(MemoryStore):
    """A store whose message 1 of each queue can't be read."""

    async def pull(self, topic: str, queue_id: int, queue_offset: int, **how: object) -> Pulled:
        if topic == TOPIC and queue_offset == 1:
            raise MessageDamaged("indexer", "segment 0 is damaged at byte 7")
        count = 1 if queue_offset == 0 else how["count"]
        return await super().pull(topic, queue_id, queue_offset, **{**how, "count": count})  # type: ignore[arg-type]


async def receive(engine: GroupEngine, count: int = 10) -> list[str]:
    found = await engine.receive(GROUP, TOPIC, count=count, invisible_ms=None, wanted=Wanted(), wait_s=0.2)
    return [one.handle for one in found]


async def told(engine: GroupEngine) -> list[tuple[Reason, int | None]]:
    return [(one.reason, one.queue_offset) for lag in await engine.lags.of(GROUP) for one in lag.standstills]


async def test_whether_a_member_asks_is_told(clock: ManualClock) -> None:
    """A topic is asked for while a member receives and a moment later, not while members only keep messages."""
    store = MemoryStore(queue_count=2)
    await store.append(TOPIC, "0", queue_id=0)
    await store.append(TOPIC, "1", queue_id=1)
    async with delivering(store, clock) as owner:
        engine = await engine_of(owner)
        await receive(engine, 1)
        assert {lag.is_asked for lag in await engine.lags.of(GROUP)} == {True}
        clock.advance(round(ASKED_S * 1_000) - 1)
        assert {lag.is_asked for lag in await engine.lags.of(GROUP)} == {True}
        clock.advance(1)
        assert {lag.is_asked for lag in await engine.lags.of(GROUP)} == {False}


async def test_a_blocked_key_a_limit_and_a_pause_are_told(clock: ManualClock) -> None:
    """Each with the message that causes it, as long as it holds."""
    store = MemoryStore(queue_count=1)
    for number in range(3):
        await store.append(TOPIC, str(number), key=7)
    async with delivering(store, clock, queue_open_count_max=2) as owner:
        engine = await engine_of(owner)
        await engine.set_policy(GROUP, Policy(is_ordered=True))
        (handle,) = await receive(engine)
        assert await told(engine) == [(Reason.KEY_BLOCKED, 0), (Reason.OPEN_LIMIT, 2)]
        await engine.set_policy(GROUP, Policy(is_paused=True, is_ordered=True))
        assert (Reason.PAUSED, None) in await told(engine)
        await engine.set_policy(GROUP, Policy(is_ordered=True))
        await engine.settling.settle([SettleRequest(handle, "nack", 60_000)])
        assert (Reason.WAITS_FOR_ATTEMPT, None) in await told(engine)


@pytest.mark.parametrize(("count", "text"), [(1, "1 message waits for"), (2, "2 messages wait for")])
async def test_counts_have_their_form_of_the_verb(clock: ManualClock, count: int, text: str) -> None:
    """A reason about a single message is a sentence, too."""
    store = MemoryStore(queue_count=1)
    for number in range(1 + count):
        await store.append(TOPIC, str(number), key=7)
    async with delivering(store, clock) as owner:
        engine = await engine_of(owner)
        await engine.set_policy(GROUP, Policy(is_ordered=True))
        (handle,) = await receive(engine)
        (lag,) = await engine.lags.of(GROUP)
        assert [one.text for one in lag.standstills if one.text.startswith(f"{text} the message at offset 0, which")]
        await engine.settling.settle([SettleRequest(handle, "nack", 60_000)])
        (lag,) = await engine.lags.of(GROUP)
        assert "1 message waits for the next attempt" in [one.text for one in lag.standstills]


async def test_a_damaged_record_is_told_and_what_is_before_it_comes(clock: ManualClock) -> None:
    """The group gets the undamaged messages before it, and its state names the queue offset and the error."""
    store = Damaged(queue_count=1)
    for number in range(3):
        await store.append(TOPIC, str(number))
    async with delivering(store, clock) as owner:
        engine = await engine_of(owner)
        (handle,) = await receive(engine)
        await engine.settling.settle([SettleRequest(handle, "ack")])
        assert await receive(engine) == []
        (lag,) = await engine.lags.of(GROUP)
        (one,) = lag.standstills
        assert (one.reason, one.queue_offset, lag.unsettled_count) == (Reason.FEED_FAILS, 1, 2)
        assert "damaged at byte 7" in one.text


async def test_a_standstill_is_logged_and_counted_from_its_beginning_to_its_end(
    clock: ManualClock, caplog: pytest.LogCaptureFixture
) -> None:
    """A line when a queue made no progress between two looks, no line for further looks, and a line at the end."""
    caplog.set_level(logging.WARNING, "services.delivery.engine.own.standstill_log")
    store = MemoryStore(queue_count=1)
    await store.append(TOPIC, "a")
    async with delivering(store, clock) as owner:
        engine, measuring = await engine_of(owner), LagMetrics(owner)
        assert len(await receive(engine)) == 1
        await engine.set_policy(GROUP, Policy(is_paused=True))
        for _ in range(3):
            await measuring.look()
        assert measuring.standstills == {(GROUP, TOPIC, "PAUSED"): GroupStandstill(1)}
        assert [record.getMessage() for record in caplog.records] == [
            "group g at t/0, PAUSED: stands still: the group is paused"
        ]
        await engine.set_policy(GROUP, Policy())
        await measuring.look()
        assert measuring.standstills == {}
        await eventually(lambda: len(caplog.records) == 2)
