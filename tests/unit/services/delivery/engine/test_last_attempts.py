# SPDX-License-Identifier: Apache-2.0
"""Messages whose last attempt has failed become dead letters."""

import asyncio
from collections.abc import Sequence

import pytest

from libs.formats.records.delivery_record import Flight, Place, Policy, PolicySet, Settled, Took
from libs.machine.testing.manual_clock import ManualClock
from services.delivery.engine.dead_letters.writer import LETTER_AGAIN_MS
from services.delivery.engine.own.counters import Counters
from services.delivery.engine.own.group_engine import GroupEngine
from services.delivery.engine.ports.messages import Pulled, Wanted
from services.delivery.engine.receive.batch import Delivered
from services.delivery.engine.receive.settling import SettleRequest
from services.delivery.engine.state.groups import Groups
from services.delivery.engine.state.last_attempts import STALE_COUNT_MAX
from services.delivery.errors import MessageDamaged
from tests.support.memory_delivery import MemoryStore, delivering, engine_of
from tests.support.patience import LIMIT_S, eventually

GROUP, TOPIC = "g", "t"
HOUR_MS = 3_600_000


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


class Damaged(MemoryStore):
    """A store in which some messages can't be read."""

    def __init__(self, damaged: Sequence[int]) -> None:
        super().__init__(queue_count=1)
        self.damaged = set(damaged)

    async def pull(self, topic: str, queue_id: int, queue_offset: int, **how: object) -> Pulled:
        pulled = await super().pull(topic, queue_id, queue_offset, **how)  # type: ignore[arg-type]
        if how["size_bytes"] == 1 and self.damaged & {one.queue_offset for one in pulled.found}:
            raise MessageDamaged("indexer", "DATA_LOSS: segment 0 is damaged at byte 7")
        return pulled


async def filled(store: MemoryStore, *messages: str, key: int = 0) -> MemoryStore:
    for message in messages:
        await store.append(TOPIC, message, key=key)
    return store


async def receive(engine: GroupEngine, count: int = 10, *, wait_s: float = LIMIT_S) -> list[Delivered]:
    return await engine.receive(GROUP, TOPIC, count=count, invisible_ms=None, wanted=Wanted(), wait_s=wait_s)


def letters(store: MemoryStore) -> list[str]:
    return [found.message for found in store.queues(f"%DLQ%{GROUP}")[0]]


async def test_a_nack_of_the_last_attempt_makes_a_dead_letter_at_once(clock: ManualClock) -> None:
    """There is no wait for an attempt that is not made, and the next message of the key is delivered."""
    store = await filled(MemoryStore(queue_count=1), "a", "b", key=7)
    async with delivering(store, clock) as owner:
        engine = await engine_of(owner)
        await engine.set_policy(GROUP, Policy(attempts_max=1, backoffs_ms=(HOUR_MS,), is_ordered=True))
        (a,) = await receive(engine)
        await engine.settling.settle([SettleRequest(a.handle, "nack", HOUR_MS)])
        (b,) = await receive(engine)
        assert (b.message, letters(store)) == ("b", ["a"])


async def test_a_last_attempt_that_is_over_needs_no_receiver(clock: ManualClock) -> None:
    """Its message becomes a dead letter when its time ends, without a receive, also in a paused group."""
    store = await filled(MemoryStore(queue_count=1), "a", "b")
    async with delivering(store, clock) as owner:
        engine = await engine_of(owner)
        await engine.set_policy(GROUP, Policy(attempts_max=1, invisible_ms=1_000))
        await receive(engine)
        await engine.set_policy(GROUP, Policy(attempts_max=1, invisible_ms=1_000, is_paused=True))
        clock.advance(1_000)
        await eventually(lambda: letters(store) == ["a", "b"])
        await eventually(lambda: engine.groups.open_count == 0)
        assert Counters(owner).groups().dead_letters_total == 2


async def test_an_attempt_that_is_not_the_last_one_waits_for_a_receiver(clock: ManualClock) -> None:
    """It is counted apart from messages that consumers have, with the time of its next attempt."""
    store = await filled(MemoryStore(queue_count=1), "a", "b", "c")
    async with delivering(store, clock) as owner:
        engine = await engine_of(owner)
        await engine.set_policy(GROUP, Policy(invisible_ms=1_000))
        begin_ms = clock.now_ms()
        a, b, _ = await receive(engine)
        await engine.settling.settle(
            [SettleRequest(a.handle, "nack", HOUR_MS), SettleRequest(b.handle, "extend", 2_000)]
        )
        (lag,) = await engine.lags.of(GROUP)
        assert (lag.flight_count, lag.waiting_count, lag.next_attempt_ms) == (2, 1, begin_ms + HOUR_MS)
        clock.advance(1_000)
        (lag,) = await engine.lags.of(GROUP)
        assert (lag.flight_count, lag.waiting_count, lag.next_attempt_ms) == (1, 2, begin_ms + 1_000)
    async with delivering(store, clock) as owner:
        (lag,) = await (await engine_of(owner)).lags.of(GROUP)
        assert (lag.flight_count, lag.waiting_count, letters(store)) == (1, 2, [])


@pytest.mark.parametrize("attempts_max", [1, 2])
async def test_a_letter_that_the_log_is_slow_to_take_is_the_only_one(clock: ManualClock, attempts_max: int) -> None:
    """During this time, the message is not delivered, and it has a single letter."""
    store = await filled(MemoryStore(queue_count=1), "a")
    async with delivering(store, clock) as owner:
        engine = await engine_of(owner)
        await engine.set_policy(GROUP, Policy(attempts_max=attempts_max))
        (a,) = await receive(engine)
        is_under_way, arrives = store.held = asyncio.Event(), asyncio.Event()
        burial = asyncio.create_task(engine.settling.settle([SettleRequest(a.handle, "bury")]))
        await is_under_way.wait()
        clock.advance(LETTER_AGAIN_MS + 1)
        receiving = asyncio.create_task(receive(engine, wait_s=0))
        queue = engine.groups.find(Place(GROUP, TOPIC, 0))
        assert queue is not None
        await eventually(lambda: receiving.done() or queue.attempts(0) > 1)
        arrives.set()
        assert await receiving == []
        await burial
        await engine.set_policy(GROUP, Policy())  # this is written after all other events
        assert (letters(store), engine.groups.open_count) == (["a"], 0)


async def test_last_attempts_outlive_the_process(clock: ManualClock) -> None:
    """The next process buries messages whose last attempt was in flight, also if a new policy makes it the last."""
    store = await filled(MemoryStore(queue_count=1), "a")
    async with delivering(store, clock) as owner:
        engine = await engine_of(owner)
        await engine.set_policy(GROUP, Policy(attempts_max=3, invisible_ms=1_000))
        await receive(engine)
    async with delivering(store, clock) as owner:
        engine = await engine_of(owner)
        await engine.set_policy(GROUP, Policy(attempts_max=2))
        clock.advance(1_000)
        (again,) = await receive(engine)
        assert (again.message, again.attempt, letters(store)) == ("a", 2, [])
        clock.advance(HOUR_MS)
        await eventually(lambda: letters(store) == ["a"])


async def test_a_message_that_can_not_be_read_holds_up_no_other_letter(clock: ManualClock) -> None:
    """It stays in flight and is tried again, while the others become dead letters."""
    store = await filled(Damaged([0]), "a", "b", "c")
    assert isinstance(store, Damaged)
    async with delivering(store, clock) as owner:
        engine = await engine_of(owner)
        await engine.set_policy(GROUP, Policy(attempts_max=1, invisible_ms=1_000))
        await receive(engine)
        clock.advance(1_000)
        await eventually(lambda: sorted(letters(store)) == ["b", "c"])
        store.damaged.clear()

        def all_are_there() -> bool:
            clock.advance(LETTER_AGAIN_MS)  # the time until the next try
            return sorted(letters(store)) == ["a", "b", "c"]

        await eventually(all_are_there)


def test_deliveries_that_ended_otherwise_cost_nothing_for_long() -> None:
    """For any number of settled last attempts, only the last attempts in flight are kept."""
    groups, place = Groups(), Place(GROUP, TOPIC, 0)
    groups.apply(PolicySet(GROUP, Policy(attempts_max=1)))
    for offset in range(3 * STALE_COUNT_MAX):
        groups.apply(Took(place, offset + 1, (Flight(offset, 1, 5, 10),)))
        groups.apply(Settled(place, (offset,)))
    last = Flight(3 * STALE_COUNT_MAX, 1, 5, 10)
    groups.apply(Took(place, last.offset + 1, (last,)))
    assert groups.last_attempts.size <= STALE_COUNT_MAX + 1
    assert groups.last_attempts.take(9, 10) == []
    assert [one.flight for one in groups.last_attempts.take(10, 10)] == [last]


def test_a_delivery_that_is_known_twice_is_over_once() -> None:
    """A policy that is set again notes the same deliveries again."""
    groups, place = Groups(), Place(GROUP, TOPIC, 0)
    groups.apply(Took(place, 1, (Flight(0, 1, 5, 10),)))
    for _ in range(2):
        groups.apply(PolicySet(GROUP, Policy(attempts_max=1)))
    assert len(groups.last_attempts.take(10, 10)) == 1
