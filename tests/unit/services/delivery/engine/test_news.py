# SPDX-License-Identifier: Apache-2.0
"""News wakes few waiting members, and is never lost."""

import asyncio
from collections.abc import Sequence
from functools import partial

import pytest
import uvloop

from libs.machine.testing.manual_clock import ManualClock
from services.delivery.engine.ports.messages import Wanted
from services.delivery.engine.receive.batch import Delivered
from services.delivery.engine.receive.news import News
from services.delivery.engine.receive.settling import SettleRequest
from services.delivery.engine.receive.subscription import Subscription
from tests.support.memory_delivery import MemoryStore, delivering, engine_of
from tests.support.patience import LIMIT_S, eventually

ALL, SOME = Wanted(), Wanted("a")
GROUP, TOPIC = "g", "t"


class Waiting:
    """Members that wait for news once."""

    def __init__(self, news: News, *filters: Wanted, seconds: float = LIMIT_S) -> None:
        self.order: list[int] = []
        self.tasks = [asyncio.create_task(self._wait(news, n, one, seconds)) for n, one in enumerate(filters)]

    async def _wait(self, news: News, number: int, wanted: Wanted, seconds: float) -> None:
        if await news.wait(wanted, seconds):
            self.order.append(number)

    async def stop(self) -> None:
        for task in self.tasks:
            task.cancel()
        await asyncio.gather(*self.tasks, return_exceptions=True)


def quiet_news() -> News:
    news = News()
    news.receives(ALL)
    news.receives(SOME)
    return news


def any_done(tasks: Sequence[asyncio.Task[list[Delivered]]]) -> bool:
    return any(task.done() and not task.cancelled() for task in tasks)


async def settled() -> None:
    """Let all tasks run that can."""
    for _ in range(5):
        await asyncio.sleep(0)


async def test_news_wakes_the_member_that_waits_longest() -> None:
    """A single member at a time."""
    news = quiet_news()
    waiting = Waiting(news, ALL, ALL, ALL)
    await settled()
    for count in (1, 2, 3):
        news.tell()
        await settled()
        assert waiting.order == [0, 1, 2][:count]


async def test_news_wakes_one_member_of_each_filter() -> None:
    """A message may be for any of these filters."""
    news = quiet_news()
    waiting = Waiting(news, ALL, ALL, SOME, SOME)
    await settled()
    news.tell()
    await settled()
    assert sorted(waiting.order) == [0, 2]
    news.tell_all()
    await settled()
    assert sorted(waiting.order) == [0, 1, 2, 3]


async def test_news_without_a_member_that_waits_ends_the_next_wait() -> None:
    """Until a member has received since."""
    news = quiet_news()
    news.tell()
    assert await news.wait(ALL, LIMIT_S)
    news.receives(ALL)
    assert not await news.wait(ALL, 0.0)
    assert not news.filters


async def test_a_member_that_is_cancelled_when_it_was_told_tells_the_next_one() -> None:
    """So the message does not wait for a member that is gone."""
    news = quiet_news()
    waiting = Waiting(news, ALL, ALL)
    await settled()
    news.tell()
    waiting.tasks[0].cancel()
    await settled()
    assert waiting.order == [1]


async def test_the_earliest_alarm_counts() -> None:
    """And a later alarm does not delay it."""
    news = quiet_news()
    waiting = Waiting(news, ALL)
    await settled()
    news.tell_in(1e6)
    news.tell_in(0.0)
    news.tell_in(1e6)
    await eventually(lambda: waiting.order == [0])
    news.stop()


class Members:
    """Many members of a group that each wait for a single message; counts how often they look."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.take_count = 0
        self.got: list[Delivered] = []
        take = Subscription.take

        async def counting(subscription: Subscription, *args: object, **more: object) -> list[Delivered]:
            self.take_count += 1
            return await take(subscription, *args, **more)  # type: ignore[arg-type]

        monkeypatch.setattr(Subscription, "take", counting)


@pytest.mark.parametrize("verb", ["ack", "nack"])
async def test_a_message_costs_the_same_however_many_members_wait(monkeypatch: pytest.MonkeyPatch, verb: str) -> None:
    """With 300 members a message costs a few looks, not 300, also when it is delivered again."""
    members, store, count = Members(monkeypatch), MemoryStore(queue_count=4), 300
    store.queues(TOPIC)
    async with delivering(store, ManualClock()) as owner:
        engine = await engine_of(owner)

        async def member() -> None:
            while True:
                how = {"count": 1, "invisible_ms": None, "wanted": Wanted(), "wait_s": LIMIT_S}
                for one in await engine.receive(GROUP, TOPIC, **how):  # type: ignore[arg-type]
                    members.got.append(one)
                    await engine.settling.settle([SettleRequest(one.handle, verb if one.attempt == 1 else "ack", 0)])  # type: ignore[arg-type]

        tasks = [asyncio.create_task(member()) for _ in range(count)]
        await eventually(lambda: members.take_count == count)
        expected = 20 if verb == "ack" else 40
        for number in range(20):
            await store.append(TOPIC, str(number), queue_id=number % 4)
        await eventually(lambda: len(members.got) == expected)
        assert members.take_count < count + 8 * expected
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    assert len({(one.message, one.attempt) for one in members.got}) == expected


async def test_members_that_leave_lose_no_news() -> None:
    """If a member is cancelled after it was woken for a message, another member gets the message."""
    store = MemoryStore(queue_count=2)
    store.queues(TOPIC)
    async with delivering(store, ManualClock()) as owner:
        engine = await engine_of(owner)
        how = {"count": 1, "invisible_ms": None, "wanted": Wanted(), "wait_s": LIMIT_S}
        got: list[str] = []
        for number in range(20):
            tasks = [asyncio.create_task(engine.receive(GROUP, TOPIC, **how)) for _ in range(4)]  # type: ignore[arg-type]
            await settled()
            await store.append(TOPIC, str(number), queue_id=number % 2)
            for _ in range(number):
                await asyncio.sleep(0)
            tasks[0].cancel()
            await eventually(partial(any_done, tasks))
            for task in tasks:
                task.cancel()
            results = await asyncio.gather(*tasks, return_exceptions=True)
            found = [one for result in results if isinstance(result, list) for one in result]
            await engine.settling.settle([SettleRequest(one.handle, "ack") for one in found])
            got += [one.message for one in found]
        assert set(got) == {str(number) for number in range(20)}


def test_alarms_in_the_loop_of_the_services() -> None:
    """uvloop has a different kind of handle for timers that are due at once."""

    async def alarms() -> None:
        news = News()
        news.receives(Wanted("*"))
        for seconds in (0.0, 5.0, 0.0, -1.0):
            news.tell_in(seconds)
        assert await news.wait(Wanted("*"), LIMIT_S)

    uvloop.run(alarms())
