# SPDX-License-Identifier: Apache-2.0
"""Without calls, an ownership begins with the first delayed or half message, and costs nothing before."""

import asyncio
import logging

import pytest

from libs.machine.testing.manual_clock import ManualClock
from libs.requests.errors import DependencyUnavailable
from services.delivery.engine.own import journal_owner as room
from tests.support.memory_delivery import MemoryStore, delivering, engine_of
from tests.support.memory_timers import Sent
from tests.support.patience import eventually


class CountingStore(MemoryStore):
    """A store that counts how often the end of a queue is asked for."""

    def __init__(self) -> None:
        super().__init__()
        self.asked_count = 0
        self.failure: BaseException | None = None

    async def queue_end(self, topic: str, queue_id: int, *, wait_s: float) -> int:
        """See Index."""
        self.asked_count += 1
        if self.failure is not None:
            raise self.failure
        return await super().queue_end(topic, queue_id, wait_s=wait_s)


async def test_begins_with_the_first_message_that_needs_nobody() -> None:
    """It asks once for each queue, and again after another message was appended."""
    store = CountingStore()
    async with delivering(store, ManualClock()) as owner:
        await eventually(lambda: store.asked_count == len(owner.queues_without_calls))
        await asyncio.sleep(2 * room.FIRST_MESSAGE_LOOK_S)
        assert store.asked_count == len(owner.queues_without_calls)
        await store.append("orders", "m")
        await eventually(lambda: store.asked_count == 2 * len(owner.queues_without_calls))
        assert not store.journal_records
        await store.timers.put(Sent("m", {}, 0))
        await eventually(lambda: bool(store.journal_records))


async def test_begins_with_a_call(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also while it would wait very long for a message."""
    monkeypatch.setattr(room, "READ_WAIT_S", 1e6)
    store = CountingStore()
    async with delivering(store, ManualClock()) as owner:
        await eventually(lambda: store.asked_count == len(owner.queues_without_calls))
        await engine_of(owner)
        assert store.journal_records


async def test_an_indexer_that_is_away_alarms_nobody(caplog: pytest.LogCaptureFixture) -> None:
    """It is asked again without a warning: at a start, it is often available a moment later."""
    store = CountingStore()
    store.failure = DependencyUnavailable("indexer", "it is away")
    async with delivering(store, ManualClock()) as owner:
        await eventually(lambda: store.asked_count == 2 * len(owner.queues_without_calls))
        store.failure = None
        await store.timers.put(Sent("m", {}, 0))
        await eventually(lambda: bool(store.journal_records))
    assert not [record for record in caplog.records if record.levelno >= logging.WARNING]


async def test_an_indexer_that_is_away_is_asked_less_and_less_often(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each pause is twice the pause before it, so a long rebuild meets few calls that it must refuse."""
    monkeypatch.setattr(room, "FIRST_MESSAGE_LOOK_S", 0.01)
    store = CountingStore()
    store.failure = DependencyUnavailable("indexer", "it builds its indexes")
    time_s = asyncio.get_running_loop().time
    began_s = time_s()
    async with delivering(store, ManualClock()) as owner:
        await eventually(lambda: store.asked_count == 5 * len(owner.queues_without_calls))
    assert time_s() - began_s >= 0.02 + 0.04 + 0.08 + 0.16


async def test_what_else_fails_is_told_and_tried_again(caplog: pytest.LogCaptureFixture) -> None:
    """Also a wait that was cancelled because its connection was closed from here."""
    store = CountingStore()
    store.failure = asyncio.CancelledError()
    async with delivering(store, ManualClock()) as owner:
        await eventually(lambda: store.asked_count > 2 * len(owner.queues_without_calls))
        assert "deliveries failed" in caplog.text
        store.failure = None
        await store.timers.put(Sent("m", {}, 0))
        await eventually(lambda: bool(store.journal_records))


async def test_deliveries_that_began_forget_why_they_could_not() -> None:
    """A step lasts as long as the ownership, so failures before are forgotten when it begins."""
    store = CountingStore()
    store.failure = DependencyUnavailable("indexer", "it is away")
    async with delivering(store, ManualClock()) as owner:
        owner.loop.last_error, owner.loop.failures_in_row_count = store.failure, 7
        await engine_of(owner)
        assert (owner.loop.last_error, owner.loop.failures_in_row_count) == (None, 0)
