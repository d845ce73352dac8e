# SPDX-License-Identifier: Apache-2.0
"""The steps of a live tail: calls that wait are kept for the next step, and none is cancelled."""

import asyncio
from typing import Any

import pytest
from reput.common.v1 import message_pb2
from reput_client import InvalidArgumentError, Message, PullResult, PullStatus

from services.console.ask.store import Asking, Store
from services.console.ask.tail import STEP_COUNT_MAX, Following, newer
from services.console.config import ConsoleConfig

WAIT_S = 0.2


class Queues:
    """Queues whose pulls wait until messages are put, or their wait is over."""

    def __init__(self, *queue_ids: int) -> None:
        self.ends = dict.fromkeys(queue_ids, 0)
        self.begun: list[tuple[int, int]] = []
        self.cancelled_count = 0
        self._news = asyncio.Condition()

    async def put(self, queue_id: int, count: int) -> None:
        async with self._news:
            self.ends[queue_id] += count
            self._news.notify_all()

    async def pull(self, _topic: str, queue_id: int, offset: int, *, count: int, wait_s: float, **_: Any) -> PullResult:
        self.begun.append((queue_id, offset))
        if queue_id not in self.ends:
            raise InvalidArgumentError("there is no such queue")
        try:
            async with asyncio.timeout(wait_s), self._news:
                await self._news.wait_for(lambda: self.ends[queue_id] > offset)
        except TimeoutError:
            pass
        except asyncio.CancelledError:
            self.cancelled_count += 1
            raise
        end = min(self.ends[queue_id], offset + count)
        messages = [
            Message(message_pb2.StoredMessage(topic="t", queue_id=queue_id, queue_offset=at, body=b"%d" % at))
            for at in range(offset, end)
        ]
        return PullResult(PullStatus(1), messages, end, 0, self.ends[queue_id])


@pytest.fixture
def store() -> Store:
    return Store.connected(ConsoleConfig())


def followed(store: Store, monkeypatch: pytest.MonkeyPatch, queues: Queues, cursor: str) -> Following:
    monkeypatch.setattr(store.client, "queues", queues)
    return Following(store, "t", cursor, tags="", where="")


async def test_a_step_keeps_the_calls_that_wait(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """A queue with news is asked again, the others still wait, and no call is cancelled."""
    queues = Queues(0, 1, 2)
    following = followed(store, monkeypatch, queues, "0.0,1.0,2.0")
    stepping = asyncio.create_task(following.step(Asking(store), wait_s=30))
    await asyncio.sleep(0)
    await queues.put(1, 2)
    first = await stepping
    assert ([row.preview for row in first.rows], first.cursor) == (["0", "1"], "0.0,1.2,2.0")
    await queues.put(2, 1)
    second = await following.step(Asking(store), wait_s=30)
    assert ([row.queue_id for row in second.rows], second.cursor) == ([2], "0.0,1.2,2.1")
    assert queues.begun == [(0, 0), (1, 0), (2, 0), (1, 2)]
    for queue_id in (0, 1):
        await queues.put(queue_id, 1)
    await following.until_over()
    assert queues.cancelled_count == 0


async def test_a_step_without_news_ends(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """After its wait a step has no rows and the cursor of before."""
    step = await followed(store, monkeypatch, Queues(0, 1), "0.0,1.0").step(Asking(store), wait_s=WAIT_S)
    assert (step.rows, step.cursor, step.skipped_count, step.gaps) == ([], "0.0,1.0", 0, ())


async def test_a_reader_that_cannot_follow_skips(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """A step has the first messages of a queue with many; the next begins near the end."""
    queues = Queues(0)
    queues.ends[0] = 100
    following = followed(store, monkeypatch, queues, "0.0")
    first = await following.step(Asking(store), wait_s=WAIT_S)
    assert (len(first.rows), first.skipped_count, first.cursor) == (STEP_COUNT_MAX, 60, "0.80")
    second = await following.step(Asking(store), wait_s=WAIT_S)
    assert (second.rows[0].queue_offset, len(second.rows), second.cursor) == (80, STEP_COUNT_MAX, "0.100")


async def test_newer_asks_all_queues(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """A page that asks by itself gets the messages of all queues, and the gap of a queue that could not be asked."""
    queues = Queues(0, 2)
    queues.ends |= {0: 1, 2: 3}
    monkeypatch.setattr(store.client, "queues", queues)
    asking = Asking(store)
    step = await newer(asking, "t", "0.0,1.0,2.2", tags="", where="")
    assert sorted((row.queue_id, row.queue_offset) for row in step.rows) == [(0, 0), (2, 2)]
    assert step.cursor == "0.1,1.0,2.3"
    assert [gap.subject for gap in step.gaps] == ["queue 1 of t"]
