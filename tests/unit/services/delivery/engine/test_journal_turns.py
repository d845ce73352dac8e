# SPDX-License-Identifier: Apache-2.0
"""Events of one turn are one append, and each caller learns about its own events, over a log in memory."""

import asyncio
from collections.abc import Sequence

import pytest

from libs.formats.records.delivery_record import Began, DeliveryRecord, Flight, Place, Settled, Took
from libs.machine.testing.manual_clock import ManualClock
from libs.requests.errors import DependencyUnavailable
from services.delivery.engine.journal.journal import WEIGHT_MAX, Journal
from services.delivery.engine.journal.store_time import StoreTime
from services.delivery.engine.own.group_engine import GroupEngine
from services.delivery.engine.ports.messages import Wanted
from services.delivery.engine.receive.batch import Delivered
from services.delivery.engine.receive.settling import SettleOutcome, SettleRequest
from tests.support.memory_delivery import MemoryStore, delivering, engine_of
from tests.support.patience import LIMIT_S

GROUP, TOPIC, COUNT = "g", "t", 100


async def received(store: MemoryStore, engine: GroupEngine) -> Sequence[Delivered]:
    """Messages of two queues, in flight."""
    for number in range(COUNT):
        await store.append(TOPIC, str(number), queue_id=number % 2)
    got: list[Delivered] = []
    while len(got) < COUNT:
        got += await engine.receive(GROUP, TOPIC, count=COUNT, invisible_ms=None, wanted=Wanted(), wait_s=LIMIT_S)
    return got


def acks(engine: GroupEngine, some: Sequence[Delivered]) -> list[asyncio.Task[list[SettleOutcome]]]:
    """Calls of many callers that begin in the same turn, an acknowledgement each."""
    settle = engine.settling.settle
    return [asyncio.create_task(settle([SettleRequest(one.handle, "ack")])) for one in some]


def settled_events(store: MemoryStore, first: int) -> list[list[tuple[int, int]]]:
    """The queue ids and numbers of messages of the settlements, by record, of records that have any."""
    records = [DeliveryRecord.decode(body).events for _, body in store.journal_records[first:]]
    settled = [[event for event in events if isinstance(event, Settled)] for events in records]
    return [[(event.place.queue_id, len(event.offsets)) for event in events] for events in settled if events]


async def test_settlements_of_a_turn_are_one_append() -> None:
    """An event for each queue, whatever the number of callers. A caller that gives up disturbs no other."""
    store = MemoryStore(queue_count=2)
    store.queues(TOPIC)
    async with delivering(store, ManualClock()) as owner:
        engine = await engine_of(owner)
        got = await received(store, engine)
        before = len(store.journal_records)
        tasks = acks(engine, [*got, *got])  # the second of each is answered as the first
        await asyncio.sleep(0)
        tasks[3].cancel()
        found = await asyncio.gather(*tasks, return_exceptions=True)
        assert [one for one in found if one != [SettleOutcome()]] == [found[3]]
        assert settled_events(store, before) == [[(0, COUNT // 2), (1, COUNT // 2)]]
        assert engine.groups.open_count == 0


async def test_settlements_during_an_append_share_the_next() -> None:
    """However many turns it takes."""
    store = MemoryStore(queue_count=2)
    store.queues(TOPIC)
    async with delivering(store, ManualClock()) as owner:
        engine = await engine_of(owner)
        got = await received(store, engine)
        before = len(store.journal_records)
        is_under_way, arrives = store.held = asyncio.Event(), asyncio.Event()
        first = acks(engine, got[:1])
        await is_under_way.wait()
        others: list[asyncio.Task[list[SettleOutcome]]] = []
        for one in got[1:]:
            others += acks(engine, [one])
            await asyncio.sleep(0)
        assert not any(task.done() for task in [*first, *others])
        arrives.set()
        await asyncio.gather(*first, *others)
        assert [sum(count for _, count in events) for events in settled_events(store, before)] == [1, COUNT - 1]


async def test_a_failed_append_fails_its_settlements_and_leaves_those_before() -> None:
    """Each caller gets the reason. Delivery reads the journal anew, and a repetition is carried out."""
    store = MemoryStore(queue_count=2)
    store.queues(TOPIC)
    async with delivering(store, ManualClock()) as owner:
        engine = await engine_of(owner)
        got = await received(store, engine)
        await asyncio.gather(*acks(engine, got[:10]))
        store.refused_writes = 1
        failed = await asyncio.gather(*acks(engine, got[10:20]), return_exceptions=True)
        assert [type(one) for one in failed] == [DependencyUnavailable] * 10
        engine = await engine_of(owner, began_count=2)
        assert engine.groups.open_count == COUNT - 10
        again = await asyncio.gather(*acks(engine, got[:20]))
        assert again == [[SettleOutcome()]] * 20
        assert engine.groups.open_count == COUNT - 20


@pytest.mark.parametrize("flight_count", [1_000, WEIGHT_MAX])
async def test_a_record_has_a_bounded_size(flight_count: int) -> None:
    """Receives of a turn with very many messages are several records. A single receive is never split."""
    store = MemoryStore()
    journal = Journal(store, "o", StoreTime(ManualClock()))
    await journal.begin(Began("o"))
    flights = tuple(Flight(offset, 1, 1, 1) for offset in range(flight_count))
    async with asyncio.timeout(LIMIT_S):
        await asyncio.gather(
            *(journal.write([Took(Place("g", "t", queue), 1, flights)], is_safe=False) for queue in range(50))
        )
    records = [DeliveryRecord.decode(body).events for _, body in store.journal_records[1:]]
    assert sum(map(len, records)) == 50
    assert max(map(len, records)) == max(1, WEIGHT_MAX // (flight_count + 1))
    await journal.close()
