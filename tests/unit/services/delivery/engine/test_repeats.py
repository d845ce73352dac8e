# SPDX-License-Identifier: Apache-2.0
"""A settle request that is repeated because its answer was lost gets this answer again, and has a single effect."""

import asyncio
from collections.abc import Sequence

import pytest

from libs.formats.records.delivery_record import Policy
from libs.machine.testing.manual_clock import ManualClock
from libs.requests.errors import DependencyUnavailable, LogFollows
from services.delivery.engine.own.group_engine import GroupEngine
from services.delivery.engine.ports.messages import JournaledMessage, Wanted, Written
from services.delivery.engine.receive.batch import Delivered
from services.delivery.engine.receive.settling import SettleOutcome, SettleRequest
from services.delivery.engine.state.repeats import COUNT_MAX, Repeats
from services.delivery.errors import HandleOutdated, JournalLost
from tests.support.memory_delivery import MemoryStore, delivering, engine_of
from tests.support.patience import LIMIT_S


class HeldStore(MemoryStore):
    """A store whose log can be held."""

    def __init__(self) -> None:
        super().__init__(queue_count=1)
        self.is_held, self.goes_on = asyncio.Event(), asyncio.Event()
        self.goes_on.set()

    async def write(self, number: int, body: bytes, letters: Sequence[JournaledMessage], *, is_safe: bool) -> Written:
        """See Log."""
        if not self.goes_on.is_set():
            self.is_held.set()
            await self.goes_on.wait()
        return await super().write(number, body, letters, is_safe=is_safe)


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


async def receive(engine: GroupEngine) -> list[Delivered]:
    return await engine.receive("g", "t", count=10, invisible_ms=1_000, wanted=Wanted(), wait_s=LIMIT_S)


@pytest.mark.parametrize("verb", ["ack", "nack", "extend", "terminate", "bury"])
async def test_a_request_whose_answer_was_lost_gets_it_again(clock: ManualClock, verb: str) -> None:
    """Also in the same call, and when the message was delivered again since. Another request is refused."""
    store = HeldStore()
    await store.append("t", "a")
    await store.append("t", "b")
    async with delivering(store, clock) as owner:
        engine = await engine_of(owner)
        (a, _) = await receive(engine)
        settle_request = SettleRequest(a.handle, verb, 5_000 if verb == "extend" else None)  # type: ignore[arg-type]
        first, second = await engine.settling.settle([settle_request, settle_request])
        assert (first.error, second) == (None, first)
        clock.advance(3_600_000)
        assert {one.message for one in await receive(engine)} <= {"a", "b"}
        assert await engine.settling.settle([settle_request]) == [first]
        others = [SettleRequest(a.handle, "extend", 6_000), SettleRequest(a.handle, "nack", 7)]
        assert [type(one.error) for one in await engine.settling.settle(others)] == [HandleOutdated] * 2
        assert len(store.queues("%DLQ%g")[0]) == (verb == "bury")


async def test_a_repeated_request_is_answered_when_the_first_one_is_in_the_log(clock: ManualClock) -> None:
    """Also if the first caller is gone: the answer to the repetition promises the same durability."""
    store = HeldStore()
    await store.append("t", "a")
    async with delivering(store, clock) as owner, asyncio.timeout(LIMIT_S):
        engine = await engine_of(owner)
        settle_request = SettleRequest((await receive(engine))[0].handle, "ack")
        store.goes_on.clear()
        first = asyncio.create_task(engine.settling.settle([settle_request]))
        await store.is_held.wait()
        first.cancel()
        again = asyncio.create_task(engine.settling.settle([settle_request]))
        await asyncio.wait([first])
        await asyncio.sleep(0)
        assert (first.cancelled(), again.done()) == (True, False)
        store.goes_on.set()
        assert await again == [SettleOutcome()]


@pytest.mark.parametrize("verb", ["ack", "nack", "extend", "terminate", "bury"])
async def test_a_request_is_repeated_after_the_journal_was_read_anew(clock: ManualClock, verb: str) -> None:
    """The record is in the log, although the request failed for its caller: the repetition is answered as done."""
    store = HeldStore()
    await store.append("t", "a")
    async with delivering(store, clock) as owner:
        engine = await engine_of(owner)
        settle_request = SettleRequest((await receive(engine))[0].handle, verb, 5_000 if verb == "extend" else None)  # type: ignore[arg-type]
        store.lost_answers = 1
        lost = await asyncio.gather(engine.settling.settle([settle_request]), return_exceptions=True)
        assert isinstance(lost[0], JournalLost) or isinstance(lost[0][0].error, JournalLost)
        engine = await engine_of(owner, began_count=2)
        (again,) = await engine.settling.settle([settle_request])
        assert again.error is None
        assert bool(again.handle) == (verb == "extend")
        assert engine.groups.open_count == (verb in ("nack", "extend"))


async def test_what_the_log_has_lost_is_not_answered_as_done(clock: ManualClock) -> None:
    """An ack that is not in the log is outdated once the message was delivered again."""
    store = HeldStore()
    await store.append("t", "a")
    async with delivering(store, clock) as owner:
        engine = await engine_of(owner)
        settle_request = SettleRequest((await receive(engine))[0].handle, "ack")
        store.refused_writes = 1
        with pytest.raises(DependencyUnavailable):
            await engine.settling.settle([settle_request])
        engine = await engine_of(owner, began_count=2)
        clock.advance(1_000)
        assert [one.attempt for one in await receive(engine)] == [2]
        assert [type(one.error) for one in await engine.settling.settle([settle_request])] == [HandleOutdated]


@pytest.mark.parametrize("verb", ["ack", "nack", "extend", "terminate", "bury"])
async def test_nothing_is_done_while_the_journal_can_not_be_written(clock: ManualClock, verb: str) -> None:
    """Not even in memory, where a repetition would find it done before the journal is read anew."""
    store = HeldStore()
    await store.append("t", "a")
    await store.append("t", "b")
    async with delivering(store, clock) as owner:
        engine = await engine_of(owner)
        a, b = await receive(engine)
        assert await engine.settling.settle([SettleRequest(b.handle, "ack")]) == [SettleOutcome()]
        store.is_following = True
        with pytest.raises(LogFollows):
            await engine.set_policy("others", Policy())
        settle_request = SettleRequest(a.handle, verb, 5_000 if verb == "extend" else None)  # type: ignore[arg-type]
        for _ in range(2):
            with pytest.raises(LogFollows):
                await engine.settling.settle([settle_request])
        assert engine.groups.open_count == 1


def test_what_is_remembered_has_a_bound() -> None:
    """The oldest answers are dropped."""
    repeats = Repeats()
    for number in range(COUNT_MAX + 1):
        repeats.note(("handle", number), "")
    assert [repeats.answer(("handle", number)) for number in (0, 1, COUNT_MAX)] == [None, "", ""]


async def test_an_entry_that_is_twice_in_a_call_is_answered_twice(clock: ManualClock) -> None:
    """With the same answer, between other entries; a former nack in the same call outdates the handle."""
    store = HeldStore()
    for body in "abc":
        await store.append("t", body)
    async with delivering(store, clock) as owner:
        engine = await engine_of(owner)
        a, b, c = (one.handle for one in await receive(engine))
        requests = [SettleRequest(handle, "ack") for handle in (a, b, a)]
        requests += [SettleRequest(c, "nack", 0), SettleRequest(c, "ack"), SettleRequest(b, "ack")]
        outcomes = await engine.settling.settle(requests)
        assert [type(one.error) for one in outcomes] == [*[type(None)] * 4, HandleOutdated, type(None)]
        (again,) = await receive(engine)
        assert again.message == "c"
