# SPDX-License-Identifier: Apache-2.0
"""An Indexer without its log refuses waits for new records, because another Indexer may have them."""

import asyncio
import logging
from dataclasses import replace

import pytest

from libs.formats.limits import MIB
from libs.machine.testing.manual_clock import ManualClock
from libs.requests.errors import DependencyUnavailable
from services.indexer.engine.answer.pull import PullQuery, PullStatus
from services.indexer.engine.answer.tags import parse_tag_expression
from services.indexer.engine.follow.reput_state import ReputState
from services.indexer.engine.indexer import Indexer
from services.indexer.engine.statistics import statistics
from tests.support.fake_log import FakeLog
from tests.support.indexer import SMALL, make_indexer, running
from tests.support.patience import LIMIT_S, eventually

SILENCE_MS = 50
CONFIG = replace(SMALL, log_silence_ms=SILENCE_MS)


def query(queue_offset: int) -> PullQuery:
    """All messages of a queue from this queue offset on."""
    return PullQuery("T", 0, queue_offset, 32, MIB, parse_tag_expression("", field="tags"))


async def lost(indexer: Indexer, log: FakeLog, clock: ManualClock) -> None:
    """Let the log go away, for longer than readers should wait."""
    log.go_down()
    await eventually(lambda: indexer.follow.reput.state is ReputState.CONNECTING)
    clock.advance(SILENCE_MS)


async def test_waits_end_when_the_log_is_silent_and_begin_again_with_it(caplog: pytest.LogCaptureFixture) -> None:
    """A pull that waits is refused, also if it began before the silence; a pull that need not wait is answered."""
    caplog.set_level(logging.INFO)
    log, clock = FakeLog(), ManualClock()
    log.append("T")
    async with running(log, config=CONFIG, clock=clock) as indexer, asyncio.timeout(LIMIT_S):
        await eventually(lambda: indexer.follow.reput.state is ReputState.LIVE)
        puller = indexer.answers.puller
        waiting = asyncio.create_task(puller.pull(query(1), wait_s=3_600))
        record = asyncio.create_task(indexer.indexes.wait_for(log.end_physical_offset, 3_600))
        await eventually(lambda: indexer.follow.polls.count == 1)
        assert not statistics(indexer).is_log_away
        await lost(indexer, log, clock)
        for refused in (waiting, record, puller.pull(query(1), wait_s=1), puller.pull(query(7), wait_s=1)):
            with pytest.raises(DependencyUnavailable, match="heard nothing of it for 0 s: "):
                await refused
        assert (await puller.pull(query(1), wait_s=0)).status is PullStatus.OFFSET_OVERFLOW_ONE
        shown = statistics(indexer)
        assert (shown.is_log_away, shown.log_silent_ms) == (1, SILENCE_MS)
        log.is_up = True
        await eventually(lambda: not indexer.follow.live.is_away)
        again = asyncio.create_task(puller.pull(query(1), wait_s=3_600))
        log.append("T")
        assert (await again).status is PullStatus.FOUND
    told = [one.getMessage() for one in caplog.records if "readers" in one.getMessage()]
    assert len(told) == 2
    assert told[0].startswith("readers that wait for what is new are refused: the Indexer has heard nothing")


async def test_a_setting_lets_readers_wait_for_ever() -> None:
    """With log_silence_ms 0 waits are never refused, for an Indexer that has no other beside it."""
    log, clock = FakeLog(), ManualClock()
    async with running(log, config=replace(SMALL, log_silence_ms=0), clock=clock) as indexer:
        await lost(indexer, log, clock)
        clock.advance(3_600_000)
        result = await indexer.answers.puller.pull(query(0), wait_s=0.01)
        assert result.status is PullStatus.NO_MATCHED_LOGIC_QUEUE
        assert not statistics(indexer).is_log_away


async def test_indexing_that_has_stopped_is_told_as_the_reason() -> None:
    """Stopped indexing is the reported reason, although the log may work: new records are unknown here."""
    clock = ManualClock()
    indexer = make_indexer(FakeLog(), config=CONFIG, clock=clock)
    indexer.follow.states.halt(ValueError("byte 5"))
    clock.advance(SILENCE_MS)
    with pytest.raises(DependencyUnavailable, match="indexing has stopped: byte 5"):
        await indexer.answers.puller.pull(query(0), wait_s=1)
    await indexer.close()
