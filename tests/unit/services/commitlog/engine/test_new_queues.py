# SPDX-License-Identifier: Apache-2.0
"""The limit of new queues per second: refused batches, accepted batches, and the time after which a batch passes."""

import asyncio
import logging

import pytest
from reput.commitlog.v1 import append_service_pb2 as pb

from libs.machine.testing.manual_clock import ManualClock
from services.commitlog.engine.open_log import OpenLog
from services.commitlog.engine.statistics import statistics_of
from services.commitlog.engine.write.groups import AppendGroups
from services.commitlog.engine.write.new_queues import NewQueueBudget
from services.commitlog.errors import TooManyNewQueues
from tests.support.commitlog import BORN_HOST, Machine, append, bodies, message, request
from tests.support.replication import Wire, caught_up
from tests.unit.services.commitlog.engine.test_topics import PLAIN

PER_S = 40
AT_ONCE = PER_S // 4
WIDE = {**PLAIN, "read_queue_count": 1_000, "write_queue_count": 1_000}


def in_queues(start: int, count: int) -> list[pb.AppendMessage]:
    """A message for each of these queues of the wide topic."""
    return [message(topic="wide", queue_id=number) for number in range(start, start + count)]


async def spent(log: OpenLog) -> None:
    """Make a topic, and begin as many of its queues as may begin at once."""
    await log.topics.create("wide", **WIDE)
    await append(log, *in_queues(0, AT_ONCE))


async def test_a_queue_too_many_is_refused_and_nothing_else() -> None:
    """A batch that begins too many queues is refused with field, value and limit.

    Batches to begun queues are accepted.
    """
    machine = Machine(new_queues_per_s_max=PER_S)
    async with machine.running() as log:
        await spent(log)
        end = log.chain.max_physical_offset
        with pytest.raises(TooManyNewQueues, match="40 a second may begin") as caught:
            await append(log, *in_queues(AT_ONCE - 1, 3))
        assert (caught.value.field, caught.value.value, caught.value.limit) == ("messages", 2, PER_S)
        assert log.chain.max_physical_offset == end
        await append(log, *in_queues(0, AT_ONCE))
        with pytest.raises(TooManyNewQueues):
            await append(log, message(topic="new"))
        assert log.topics.find("new") is None
        assert statistics_of(log).refused_new_queues_total == 2


async def test_a_queue_may_begin_after_its_part_of_a_second() -> None:
    """After a fortieth of a second the same batch with a single new queue passes."""
    machine = Machine(new_queues_per_s_max=PER_S)
    async with machine.running() as log:
        await spent(log)
        for number in range(AT_ONCE, AT_ONCE + 3):
            with pytest.raises(TooManyNewQueues):
                await append(log, *in_queues(number, 1))
            machine.clock.advance(1_000 // PER_S)
            await append(log, *in_queues(number, 1))


async def test_a_large_batch_passes_and_owes() -> None:
    """A batch of more queues than may begin at once passes, and the rest delays later batches."""
    machine = Machine(new_queues_per_s_max=PER_S)
    async with machine.running() as log:
        await log.topics.create("wide", **WIDE)
        await append(log, *in_queues(0, AT_ONCE + PER_S))
        machine.clock.advance(1_000)
        with pytest.raises(TooManyNewQueues):
            await append(log, *in_queues(500, 1))
        machine.clock.advance(1_000 // PER_S)
        await append(log, *in_queues(500, 1))


async def test_a_queue_that_the_server_chooses() -> None:
    """A message without a queue passes if the queue in turn has begun.

    The topic may have queues without messages.
    """
    machine = Machine(new_queues_per_s_max=PER_S)
    async with machine.running() as log:
        await log.topics.create("turns", **{**PLAIN, "read_queue_count": 2, "write_queue_count": 2})
        await append(log, message(topic="turns", queue_id=0))
        await spent(log)
        await append(log, message(topic="turns", queue_id=None))
        with pytest.raises(TooManyNewQueues):
            await append(log, message(topic="turns", queue_id=None))


async def test_requests_of_one_turn_are_bounded_as_well() -> None:
    """Requests of a piece that begin no queue pass, even between requests that are refused."""
    machine = Machine(new_queues_per_s_max=PER_S)
    async with machine.running() as log:
        await spent(log)
        groups = AppendGroups(log.pipeline, 10_000)
        for _ in range(2):  # several came in the turn before
            await asyncio.gather(*(groups.append(b"", BORN_HOST) for _ in range(2)), return_exceptions=True)
        batches = [in_queues(number, 1) for number in (0, 500, 1, 501, 2)]
        sent = [groups.append(request(*batch), BORN_HOST) for batch in batches]
        answers = await asyncio.gather(*sent, return_exceptions=True)
        assert [isinstance(one, TooManyNewQueues) for one in answers] == [False, True, False, True, False]


async def test_a_piece_begins_no_more_queues_than_a_batch_may() -> None:
    """Requests of the same turn owe at most as much as a single batch may, and the next request alone as much."""
    machine = Machine(new_queues_per_s_max=PER_S, batch_new_queue_count_max=20)
    async with machine.running() as log:
        await log.topics.create("wide", **WIDE)
        await append(log, *in_queues(0, 1))
        requests = [request(*in_queues(8 * number, 8)) for number in range(1, 6)]
        assert len(log.pipeline.append_group(requests, [BORN_HOST] * 5)) == 2


async def test_what_the_store_appends_itself_is_never_refused() -> None:
    """Appends of the store itself (Delivery, the Indexer) are never refused; they take the rest and owe nothing."""
    machine = Machine(new_queues_per_s_max=PER_S)
    async with machine.running() as log:
        await spent(log)
        for start in (100, 200):
            await log.pipeline.append_state(request(*in_queues(start, 100)), BORN_HOST)
        machine.clock.advance(1_000 // PER_S)
        await append(log, *in_queues(500, 1))


async def test_a_start_and_a_rate_of_nothing() -> None:
    """A start clears the debt, a rate of 0 means no limit, and queues of RocketMQ do not count."""
    machine = Machine(new_queues_per_s_max=PER_S)
    async with machine.running() as log:
        await spent(log)
    async with machine.running() as log:
        await append(log, *in_queues(100, AT_ONCE))
        with pytest.raises(TooManyNewQueues):
            await append(log, *in_queues(500, 1))
    async with machine.running(new_queues_per_s_max=0) as log:
        for start in range(0, 1_000, 100):
            await append(log, *in_queues(start, 100))


async def test_a_follower_takes_what_its_leader_took() -> None:
    """The limit applies to appends only: a copy with a rate of 1 has all queues of its leader."""
    one, other = Machine(), Machine(new_queues_per_s_max=1)
    async with one.running() as leader:
        await leader.topics.create("wide", **WIDE)
        for start in range(0, 1_000, 100):
            await append(leader, *in_queues(start, 100))
        async with other.running(leader=Wire(leader).at(), role="slave", replica_id="b") as follower:
            await caught_up(follower, leader)
            assert bodies(follower) == bodies(leader)
            assert follower.topics.table.next_queue_offset(b"wide", 999) == 1


def test_the_log_tells_when_refusals_begin(caplog: pytest.LogCaptureFixture) -> None:
    """A time of refusals logs a single line; after the budget is full again, the next refusal logs another line."""
    clock = ManualClock()
    budget = NewQueueBudget(clock.monotonic_s, per_s_max=PER_S)
    with caplog.at_level(logging.WARNING):
        for _ in range(2):
            for _ in range(3):
                budget.take(AT_ONCE)
                assert not budget.has_left()
                budget.refusal(1)
                clock.advance(100)
            clock.advance(60_000)
            assert budget.has_left()
    assert [record.getMessage().partition(",")[0] for record in caplog.records] == [
        "queues begin faster than new_queues_per_s_max"
    ] * 2
    assert budget.refused_count == 6
