# SPDX-License-Identifier: Apache-2.0
"""Members of a group with different filters work side by side, over a log and an index in memory."""

import asyncio
import logging
from collections.abc import Sequence
from typing import Any

import pytest

from libs.formats.records.delivery_record import Policy
from libs.machine.testing.manual_clock import ManualClock
from libs.requests.errors import BadArgument, WindowFull
from services.delivery.engine.own.group_engine import GroupEngine
from services.delivery.engine.ports.messages import Pulled, Wanted
from services.delivery.engine.receive.batch import Delivered
from services.delivery.engine.receive.filters import FILTER_COUNT_MAX, LIVE_S, RETURN_S
from services.delivery.engine.receive.settling import SettleRequest
from tests.support.memory_delivery import MemoryStore, delivering, engine_of
from tests.support.patience import LIMIT_S, eventually

GROUP, TOPIC = "g", "t"


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


async def filled(*messages: str, queue_count: int = 1, key: int = 0) -> MemoryStore:
    store = MemoryStore(queue_count=queue_count)
    store.queues(TOPIC)
    for number, message in enumerate(messages):
        await store.append(TOPIC, message, queue_id=number % queue_count, key=key)
    return store


async def receive(
    engine: GroupEngine,
    tags: str,
    count: int = 10,
    *,
    where: str = "",
    wait_s: float = LIMIT_S,
    invisible_ms: int = 60_000,
    attempt_id: str = "",
) -> list[Delivered]:
    return await engine.receive(
        GROUP,
        TOPIC,
        count=count,
        invisible_ms=invisible_ms,
        wanted=Wanted(tags, where),
        wait_s=wait_s,
        attempt_id=attempt_id,
    )


async def settle(engine: GroupEngine, verb: str, *delivered: Delivered, delay_ms: int | None = None) -> None:
    outcomes = await engine.settling.settle([SettleRequest(one.handle, verb, delay_ms) for one in delivered])  # type: ignore[arg-type]
    assert all(outcome.error is None for outcome in outcomes)


def texts(delivered: Sequence[Delivered]) -> list[str]:
    return [one.message for one in delivered]


async def connected(store: MemoryStore, engine: GroupEngine, tags: Sequence[str], *messages: str) -> None:
    """Receive without messages, so that the filters are in use, then append messages."""
    for one in tags:
        assert await receive(engine, one, wait_s=0) == []
    for message in messages:
        await store.append(TOPIC, message)


class Members:
    """Members that receive and acknowledge until they are cancelled."""

    def __init__(self, engine: GroupEngine, *filters: Wanted, count: int = 3) -> None:
        self.got: list[list[str]] = [[] for _ in filters]
        self._engine, self._count = engine, count
        self._tasks = [asyncio.create_task(self._run(number, one)) for number, one in enumerate(filters)]

    async def _run(self, number: int, wanted: Wanted) -> None:
        while True:
            some = await receive(self._engine, wanted.tags, self._count, where=wanted.where)
            self.got[number] += texts(some)
            await settle(self._engine, "ack", *some)

    @property
    def all(self) -> list[str]:
        return sorted(text for got in self.got for text in got)

    async def stop(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)


async def lag(engine: GroupEngine) -> int:
    return sum(one.unsettled_count for one in await engine.lags.of(GROUP))


@pytest.mark.parametrize(
    "filters",
    [
        (Wanted("a||b"), Wanted("a||b||c")),
        (Wanted("a"), Wanted("b||c")),
        (Wanted("*"), Wanted("a||b")),
        (Wanted("a||b"), Wanted("b||c")),
        (Wanted("*", "1"), Wanted("*")),
        (Wanted("a||b"), Wanted("a||b", "1"), Wanted("c")),
        (*[Wanted("a||b")] * 5, *[Wanted("a||b||c")] * 5),
    ],
)
async def test_members_with_different_filters_work_side_by_side(clock: ManualClock, filters: Sequence[Wanted]) -> None:
    """Each message that passes a member's filter comes once, to such a member, while all of them are connected."""
    store = await filled("a", queue_count=3)
    async with delivering(store, clock) as owner:
        engine = await engine_of(owner)
        members = Members(engine, *filters)
        await eventually(lambda: set(engine.subscriptions.filters.of(GROUP, TOPIC).live) == set(filters))
        for number in range(200):
            await store.append(TOPIC, f"{'abcd'[number % 4]}{number}", queue_id=number % 3)
        all_messages = [one for queue in store.queues(TOPIC) for one in queue]
        wanted = sorted(
            one.message
            for one in all_messages
            if one.message != "a" and any(store.passes(one, each) for each in filters)
        )
        await eventually(lambda: [text for text in members.all if text != "a"] == wanted)
        await members.stop()
        for got, each in zip(members.got, filters, strict=True):
            assert all(store.passes(one, each) for one in all_messages if one.message in got)
        await engine.run_maintenance()
        assert await lag(engine) == 0


async def test_a_message_of_a_slow_member_holds_up_no_other(clock: ManualClock) -> None:
    """A message that a member reads for another member is held for it, and read once."""
    store = await filled()
    async with delivering(store, clock) as owner:
        engine = await engine_of(owner)
        await connected(store, engine, "ca", "c1", "a1", "c2", "a2")
        (first,) = await receive(engine, "c", 1)
        assert texts(await receive(engine, "a")) == ["a1", "a2"]
        assert await receive(engine, "a", wait_s=0) == []
        assert texts(await receive(engine, "c", wait_s=0)) == ["c2"]
        assert first.message == "c1"


async def test_a_message_that_failed_goes_back_to_a_member_that_asks_for_it(clock: ManualClock) -> None:
    """Not to the first member that receives."""
    store = await filled()
    async with delivering(store, clock) as owner:
        engine = await engine_of(owner)
        await connected(store, engine, "ca", "c", "a")
        (failed,) = await receive(engine, "c")
        (other,) = await receive(engine, "a")
        await settle(engine, "nack", failed, other, delay_ms=0)
        (again,) = await receive(engine, "a")
        assert (again.message, again.attempt) == ("a", 2)
        assert await receive(engine, "a", wait_s=0) == []
        (again,) = await receive(engine, "c")
        assert (again.message, again.attempt) == ("c", 2)


async def test_what_was_for_members_that_have_gone_is_settled(clock: ManualClock) -> None:
    """After LIVE_S without a receive of them; the other members still receive meanwhile."""
    store = await filled()
    async with delivering(store, clock) as owner:
        engine = await engine_of(owner)
        await connected(store, engine, "ca", "c1", "a1", "c2", "a2")
        got = await receive(engine, "a")
        assert texts(got) == ["a1", "a2"]
        await settle(engine, "ack", *got)
        clock.advance(int(LIVE_S * 1000))
        assert await receive(engine, "a", wait_s=0) == []
        assert await lag(engine) == 2
        clock.advance(2)
        await engine.run_maintenance()
        assert await receive(engine, "a", wait_s=0) == []
        assert engine.subscriptions.filters.of(GROUP, TOPIC).live == [Wanted("a")]
        await eventually(lambda: engine.groups.open_count == 0)


async def test_a_member_that_works_is_not_gone(clock: ManualClock) -> None:
    """Its filter is in use while it has a message in flight, also after an extension."""
    store = await filled()
    async with delivering(store, clock) as owner:
        engine = await engine_of(owner)
        await connected(store, engine, "c", "c1", "c2", "a")
        (working,) = await receive(engine, "c", 1, invisible_ms=50_000)
        clock.advance(45_000)
        (outcome,) = await engine.settling.settle([SettleRequest(working.handle, "extend", 50_000)])
        assert texts(await receive(engine, "a")) == ["a"]
        clock.advance(45_000)
        assert await receive(engine, "a", wait_s=0) == []
        await engine.settling.settle([SettleRequest(outcome.handle, "ack")])
        assert texts(await receive(engine, "c", wait_s=0)) == ["c2"]


async def test_a_member_that_repeated_its_receive_is_not_gone(clock: ManualClock) -> None:
    """The message that it received again under a new handle is in flight, so its filter is in use."""
    store = await filled()
    async with delivering(store, clock) as owner:
        engine = await engine_of(owner)
        await connected(store, engine, "c", "c1")
        await receive(engine, "c", attempt_id="x")
        (working,) = await receive(engine, "c", attempt_id="x")
        clock.advance(int(LIVE_S * 1000) + 1)
        await engine.run_maintenance()
        for text in ("c2", "a"):
            await store.append(TOPIC, text)
        assert texts(await receive(engine, "a")) == ["a"]
        await settle(engine, "ack", working)
        assert texts(await receive(engine, "c", wait_s=0)) == ["c2"]


class WatchedStore(MemoryStore):
    """A store that records the filters and queue offsets of pulls."""

    def __init__(self) -> None:
        super().__init__(queue_count=1)
        self.read: set[tuple[str, int]] = set()

    async def pull(self, topic: str, queue_id: int, queue_offset: int, *, wanted: Wanted, **how: Any) -> Pulled:
        """See Index."""
        self.read.add((wanted.tags, queue_offset))
        return await super().pull(topic, queue_id, queue_offset, wanted=wanted, **how)


async def test_a_pause_settles_nothing_of_a_member_that_came_in_it(clock: ManualClock) -> None:
    """A feed that reads during a pause has the former filters, and skips no message of the new member."""
    store = WatchedStore()
    store.queues(TOPIC)
    async with delivering(store, clock) as owner:
        engine = await engine_of(owner)
        assert await receive(engine, "a", wait_s=0) == []
        await engine.set_policy(GROUP, Policy(is_paused=True))
        assert await receive(engine, "b", wait_s=0) == []
        await store.append(TOPIC, "b1")
        await eventually(lambda: ("a", 1) in store.read)
        await engine.run_maintenance()
        await engine.set_policy(GROUP, Policy())
        assert texts(await receive(engine, "b", wait_s=0) or await receive(engine, "b")) == ["b1"]


async def test_members_may_come_back_after_a_takeover(clock: ManualClock) -> None:
    """The next process does not know the members; messages without a member are held until RETURN_S is over."""
    store = await filled("a0")
    async with delivering(store, clock) as owner:
        engine = await engine_of(owner)
        await settle(engine, "ack", *await receive(engine, "a||c"))
    for text in ("c1", "a1"):
        await store.append(TOPIC, text)
    async with delivering(store, clock) as owner:
        engine = await engine_of(owner)
        assert texts(await receive(engine, "a")) == ["a1"]
        assert texts(await receive(engine, "c")) == ["c1"]
        await store.append(TOPIC, "d")
        await store.append(TOPIC, "a2")
        assert texts(await receive(engine, "a")) == ["a2"]
        open_count = engine.groups.open_count
        clock.advance(int(RETURN_S * 1000))
        await engine.run_maintenance()
        assert await receive(engine, "a", wait_s=0) == []
        assert engine.groups.open_count == open_count - 1


async def test_nothing_is_settled_for_members_that_may_come_back(clock: ManualClock) -> None:
    """If there are more messages for them than may be held, the queue waits until RETURN_S is over."""
    store = await filled("a0")
    async with delivering(store, clock, queue_open_count_max=10) as owner:
        engine = await engine_of(owner)
        await settle(engine, "ack", *await receive(engine, "a||c"))
    for number in range(20):
        await store.append(TOPIC, f"c{number}")
    await store.append(TOPIC, "a1")
    async with delivering(store, clock, queue_open_count_max=10) as owner:
        engine = await engine_of(owner)
        waiting = asyncio.create_task(receive(engine, "a"))
        await eventually(lambda: engine.groups.open_count == 5)
        got: list[str] = []
        while len(got) < 15:
            some = await receive(engine, "c", 5)
            got += texts(some)
            await settle(engine, "ack", *some)
        clock.advance(int((LIVE_S + RETURN_S) * 1000))
        await engine.run_maintenance()
        assert texts(await waiting) == ["a1"]
        assert got == [f"c{number}" for number in range(15)]


async def test_messages_of_a_key_keep_their_order_over_filters(clock: ManualClock) -> None:
    """In an ordered group the next message of a key waits, also if it is for another member."""
    store = await filled()
    async with delivering(store, clock) as owner:
        engine = await engine_of(owner)
        await engine.set_policy(GROUP, Policy(is_ordered=True))
        order: list[str] = []
        waiting = asyncio.create_task(receive(engine, "a"))
        assert await receive(engine, "c", wait_s=0) == []
        await eventually(lambda: len(engine.subscriptions.filters.of(GROUP, TOPIC).live) == 2)
        for text in ("c1", "a2", "c3"):
            await store.append(TOPIC, text, key=7)
        for tags in ("c", "a", "c"):
            some = await (waiting if tags == "a" else receive(engine, tags))
            order += texts(some)
            await settle(engine, "ack", *some)
        assert order == ["c1", "a2", "c3"]


async def test_it_is_told_once_that_members_differ(clock: ManualClock, caplog: pytest.LogCaptureFixture) -> None:
    """And once that they have the same filter again."""
    caplog.set_level(logging.INFO)
    store = await filled("a", "b")
    async with delivering(store, clock) as owner:
        engine = await engine_of(owner)
        for _ in range(3):
            await receive(engine, "a", wait_s=0)
        assert "different messages" not in caplog.text
        for _ in range(3):
            await receive(engine, "b", where="x", wait_s=0)
            await receive(engine, "a", wait_s=0)
        told = [record.getMessage() for record in caplog.records if "different messages" in record.getMessage()]
        assert len(told) == 1
        assert told[0].startswith("members of group g ask for different messages of t: 'a', 'b where x'.")
        assert [one.count for one in engine.subscriptions.filters.counts().values()] == [2]
        clock.advance(int(LIVE_S * 1000) + 1)
        await receive(engine, "a", wait_s=0)
        await engine.run_maintenance()
        assert "ask for the same messages of t again: 'a'" in caplog.text


async def test_filters_are_bounded(clock: ManualClock) -> None:
    """A filter beyond the limit is refused, and the other members still receive."""
    store = await filled("a")
    async with delivering(store, clock) as owner:
        engine = await engine_of(owner)
        for number in range(FILTER_COUNT_MAX):
            await receive(engine, "z", where=str(number), wait_s=0)
        with pytest.raises(WindowFull):
            await receive(engine, "z", where="more", wait_s=0)
        await receive(engine, "z", where="1", wait_s=0)
        clock.advance(int(LIVE_S * 1000) + 1)
        await receive(engine, "z", where="more", wait_s=0)


class RefusingStore(MemoryStore):
    """A store that refuses pulls with a certain tag, and counts the refusals."""

    refused_count = 0

    async def pull(self, topic: str, queue_id: int, queue_offset: int, *, wanted: Wanted, **how: Any) -> Pulled:
        """See Index."""
        if wanted.tags == "x":
            self.refused_count += 1
            raise BadArgument("has a tag that is not liked", field="tag_expression", value="x")
        return await super().pull(topic, queue_id, queue_offset, wanted=wanted, **how)


async def test_a_receive_that_the_index_refuses_fails_with_the_reason(
    clock: ManualClock, caplog: pytest.LogCaptureFixture
) -> None:
    """The pull is not repeated until the next receive, and other members receive when that member is gone."""
    store = RefusingStore(queue_count=1)
    await store.append(TOPIC, "a")
    async with delivering(store, clock) as owner:
        engine = await engine_of(owner)
        for count in (1, 2):
            with pytest.raises(BadArgument, match="not liked"):
                await receive(engine, "x")
            assert store.refused_count == count
        clock.advance(int(LIVE_S * 1000) + 1)
        assert texts(await receive(engine, "a")) == ["a"]
    assert not [record for record in caplog.records if record.levelno >= logging.WARNING]
