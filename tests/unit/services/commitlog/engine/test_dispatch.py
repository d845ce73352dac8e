# SPDX-License-Identifier: Apache-2.0
"""The tail: a follower of the end of the log."""

import asyncio
from collections.abc import AsyncGenerator

import pytest

from libs.formats.java import string_hash
from libs.machine.failpoints import armed
from libs.requests.errors import RecordDamaged
from services.commitlog.engine.follow.dispatch import TailStep
from services.commitlog.engine.open_log import OpenLog
from services.commitlog.engine.statistics import statistics_of
from services.commitlog.errors import BelowMinOffset, NotARecord
from tests.support.commitlog import SEGMENT_SIZE, Machine, SlowDisk, append, fill, message, records


def follow(log: OpenLog, start: int = 0, count_max: int = 1000) -> AsyncGenerator[TailStep, None]:
    """A tail's steps."""
    return log.followers.tail(start_physical_offset=start, record_count_max=count_max).steps()


async def test_steps_cover_the_log_without_a_gap() -> None:
    """Every record comes once, in order, and a blank ends a step at the next segment."""
    machine = Machine()
    async with machine.running() as log:
        await fill(log, 3)
        steps, at, offsets = follow(log, count_max=7), 0, []
        while at < log.marks.visible.value:
            step = await anext(steps)
            assert step.start_physical_offset == at
            assert step.columns is not None
            offsets += step.columns.physical_offsets[: step.columns.count].tolist()
            at = step.end_physical_offset
        await steps.aclose()
        assert offsets == [r.physical_offset for r in records(log)]


async def test_columns_say_what_indexes_need() -> None:
    """Tag hash, keys and queue of a record are in its columns."""
    machine = Machine()
    async with machine.running() as log:
        await append(log, message(properties={"TAGS": "red", "KEYS": "a b"}), message(sys_flag=4))
        step = await anext(follow(log))
        columns = step.columns
        assert columns is not None
        assert columns.queues() == [(b"orders", 0)]
        assert columns.queue_indexes[:2].tolist() == [0, -1]
        assert columns.tags_codes[0] == string_hash("red")
        assert columns.key_counts[:2].tolist() == [2, 0]


async def test_delivery_time_is_by_the_levels_of_the_log() -> None:
    """The tags code of a delayed message is its store time and the delay of its level, as configured."""
    machine = Machine(message_delay_level="3s 1d")
    async with machine.running() as log:
        batch = await append(log, *(message(properties={"DELAY": level}) for level in "123"))
        columns = (await anext(follow(log))).columns
        assert columns is not None
        assert columns.queues() == [(b"SCHEDULE_TOPIC_XXXX", 0), (b"SCHEDULE_TOPIC_XXXX", 1)]
        delays = [code - batch.store_time_ms for code in columns.tags_codes[:3]]
        assert delays == [3_000, 86_400_000, 86_400_000]


async def test_a_tail_wakes_on_append() -> None:
    """A follower at the end gets a new record without waiting for the heartbeat."""
    machine = Machine(dispatch_heartbeat_ms=3_600_000)
    async with machine.running() as log:
        steps = follow(log)
        waiting = asyncio.ensure_future(anext(steps))
        await asyncio.sleep(0)
        batch = await append(log)
        step = await waiting
        assert (step.start_physical_offset, step.end_physical_offset) == (0, batch.end_physical_offset)
        await steps.aclose()


async def test_small_appends_are_collected() -> None:
    """The first record is sent at once; records that arrive within the interval after it are sent as a single step."""
    machine = Machine(dispatch_interval_ms=1_000, dispatch_heartbeat_ms=3_600_000)
    async with machine.running() as log:
        steps, counts = follow(log), []
        for append_count in (1, 5):
            waiting = asyncio.ensure_future(anext(steps))
            for _ in range(append_count):
                await asyncio.sleep(0.001)
                await append(log)
            step = await waiting
            assert step.columns is not None
            counts.append(step.columns.count)
        assert counts == [1, 5]
        await steps.aclose()


async def test_many_bytes_are_not_collected() -> None:
    """A step that is large enough waits for no interval."""
    machine = Machine(dispatch_interval_ms=3_600_000, dispatch_size_bytes_min=2000, dispatch_heartbeat_ms=3_600_000)
    async with machine.running() as log:
        steps = follow(log)
        for _ in range(3):
            await append(log, message(bytes(3000)))
            assert (await anext(steps)).columns is not None
        await steps.aclose()


async def test_an_idle_tail_beats() -> None:
    """A follower of an idle log gets heartbeats again and again."""
    machine = Machine(dispatch_heartbeat_ms=5)
    async with machine.running() as log:
        steps = follow(log)
        for _ in range(3):
            assert (await anext(steps)).columns is None
        await steps.aclose()


async def test_nothing_unconfirmed_is_dispatched() -> None:
    """With synchronous flushing followers see a record only when it is synced."""
    machine = Machine(flush_mode="sync", dispatch_heartbeat_ms=5)
    async with machine.running() as log:
        steps, disk = follow(log), SlowDisk()
        with armed("segment.before_sync", disk):
            await append(log, durability=1)
            await asyncio.to_thread(disk.entered.wait)
            assert (await anext(steps)).columns is None
            disk.go_on.set()
            await log.marks.flushed.soon(log.chain.max_physical_offset)
        assert (await anext(steps)).end_physical_offset == log.chain.max_physical_offset
        await steps.aclose()


async def test_damage_ends_the_tail_and_is_never_stepped_over() -> None:
    """Whole records before the damage are sent; then the tail fails, counts it, and fails again when it is repeated."""
    machine = Machine()
    async with machine.running() as log:
        await append(log, *(message() for _ in range(5)))
        third = records(log)[2].physical_offset
        machine.segment_bytes()[third + 4] ^= 1
        steps = follow(log)
        assert (await anext(steps)).end_physical_offset == third
        with pytest.raises(RecordDamaged) as caught:
            await anext(steps)
        assert (caught.value.segment, caught.value.position) == (f"{0:020d}", third)
        with pytest.raises(RecordDamaged):
            await anext(follow(log, third))
        assert statistics_of(log).dispatch_stops_by_damage_total == 2


async def test_a_tail_holds_the_segment_that_it_reads() -> None:
    """Deletion waits for a follower; a follower below the first kept byte gets BelowMinOffset."""
    machine = Machine()
    async with machine.running() as log:
        await fill(log, 3)
        reading, behind = follow(log, count_max=1), follow(log, count_max=1)
        await anext(reading)
        await anext(behind)
        assert [d.freed_bytes for d in await log.segments.delete([0], allow_unindexed=True)] == [0]
        await reading.aclose()
        assert [d.freed_bytes for d in await log.segments.delete([0], allow_unindexed=True)] == [0]
        await behind.aclose()
        assert [d.freed_bytes for d in await log.segments.delete([0], allow_unindexed=True)] == [SEGMENT_SIZE]
        with pytest.raises(BelowMinOffset):
            await anext(follow(log, 0))


async def test_handshake() -> None:
    """A follower resumes at its own offset, at the first kept byte, or at the end of the log, never inside a record."""
    machine = Machine()
    async with machine.running() as log:
        await fill(log, 3)
        second = records(log)[1].physical_offset
        exact = log.followers.handshake(second, 1)
        assert exact.start_physical_offset == second
        end = log.marks.visible.value
        ahead = log.followers.handshake(end + 999, 1)
        assert ahead.start_physical_offset == ahead.common_end_physical_offset == end
        with pytest.raises(NotARecord):
            log.followers.handshake(second + 1, 1)
        await log.segments.delete([0], allow_unindexed=True)
        trimmed = log.followers.handshake(second, 1)
        assert (trimmed.common_end_physical_offset, trimmed.start_physical_offset) == (second, SEGMENT_SIZE)
        assert (trimmed.epoch, trimmed.min_physical_offset) == (1, SEGMENT_SIZE)
