# SPDX-License-Identifier: Apache-2.0
"""Segments: their facts in a list, and the conditions of a deletion."""

import asyncio
import errno

import pytest

from libs.requests.errors import BadArgument
from services.commitlog.engine.keep.checkpoint import IndexerReport
from services.commitlog.engine.keep.segments import Refusal
from services.commitlog.engine.open_log import OpenLog
from services.commitlog.engine.write.gate import Reason
from services.commitlog.errors import BelowMinOffset
from tests.support.commitlog import (
    DATA_DIR,
    SEGMENT_SIZE,
    Machine,
    append,
    bodies,
    fill,
    message,
    records,
)


def refuse(*_arguments: object) -> None:
    """Fail as a file system that became read-only."""
    raise PermissionError(errno.EPERM, "Operation not permitted")


def indexed(log: OpenLog, physical_offset: int, flushed: int | None = None) -> None:
    """The Indexer reports how far it is."""
    flushed = physical_offset if flushed is None else flushed
    log.followers.report(IndexerReport(physical_offset, flushed, 0, 0, log.epochs.number))


async def test_facts() -> None:
    """Store times are the times of the first and the last record of each segment."""
    machine = Machine()
    async with machine.running() as log:
        assert log.segments.list_from(0, 9) == []
        while len(log.chain.segments) < 3:
            machine.clock.advance(1)
            await append(log, message(bytes(1000)))
        indexed(log, SEGMENT_SIZE)
        facts = log.segments.list_from(0, 9)
        for fact in facts:
            end = fact.base_physical_offset + SEGMENT_SIZE
            times = [r.store_time_ms for r in records(log) if fact.base_physical_offset <= r.physical_offset < end]
            assert (fact.first_store_time_ms, fact.last_store_time_ms) == (times[0], times[-1])
        assert [fact.base_physical_offset for fact in facts] == [0, SEGMENT_SIZE, 2 * SEGMENT_SIZE]
        assert [fact.is_active for fact in facts] == [False, False, True]
        assert [fact.is_indexed for fact in facts] == [True, False, False]
        assert [fact.wrote_bytes for fact in facts[:2]] == [SEGMENT_SIZE, SEGMENT_SIZE]
        assert facts[2].wrote_bytes == log.chain.max_physical_offset - 2 * SEGMENT_SIZE


@pytest.mark.parametrize(
    ("start", "count", "expected"),
    [(0, 2, [0, 1]), (1, 9, [1, 2, 3]), (SEGMENT_SIZE, 1, [1]), (10 * SEGMENT_SIZE, 9, [])],
)
async def test_listing_from_an_offset(start: int, count: int, expected: list[int]) -> None:
    """A list begins with the first segment that begins at or after an offset, also when older segments are gone."""
    machine = Machine()
    async with machine.running() as log:
        await fill(log, 4)
        found = log.segments.list_from(start, count)
        assert [fact.base_physical_offset // SEGMENT_SIZE for fact in found] == expected


@pytest.mark.parametrize(
    ("bases", "indexed_to", "allow", "expected"),
    [
        pytest.param([0], 4, False, [None], id="indexed"),
        pytest.param([0, 1], 1, False, [None, Refusal.NOT_INDEXED], id="second one not indexed"),
        pytest.param([0, 1], 0, True, [None, None], id="not indexed, but allowed"),
        pytest.param([1], 4, False, [Refusal.NOT_OLDEST], id="not the oldest"),
        pytest.param([0, 2], 4, False, [None, Refusal.NOT_OLDEST], id="with a hole"),
        pytest.param([0, 1, 2, 3], 4, True, [None, None, None, Refusal.ACTIVE], id="active"),
        pytest.param([9], 4, True, [Refusal.UNKNOWN], id="beyond the end"),
        pytest.param([], 4, False, [], id="none"),
    ],
)
async def test_deletion(bases: list[int], indexed_to: int, allow: bool, expected: list[Refusal | None]) -> None:
    """The oldest segments are deleted in order up to the first refusal, with their files."""
    machine = Machine()
    async with machine.running() as log:
        await fill(log, 4)
        indexed(log, min(indexed_to * SEGMENT_SIZE, log.marks.visible.value))
        deletions = await log.segments.delete([base * SEGMENT_SIZE for base in bases], allow_unindexed=allow)
        assert [deletion.refusal for deletion in deletions] == expected
        deleted_count = sum(deletion.freed_bytes == SEGMENT_SIZE for deletion in deletions)
        assert log.chain.min_physical_offset == deleted_count * SEGMENT_SIZE
        machine.fs.crash()
        assert len(machine.fs.list(DATA_DIR / "commitlog")) == 4 - deleted_count
        again = await log.segments.delete([base * SEGMENT_SIZE for base in bases], allow_unindexed=allow)
        assert [deletion.refusal for deletion in again] == expected
        assert not any(deletion.freed_bytes for deletion in again)


async def test_only_synced_indexes_count() -> None:
    """A segment whose index is not on disk is not deleted, because the Indexer may need it again."""
    machine = Machine()
    async with machine.running() as log:
        await fill(log, 2)
        indexed(log, SEGMENT_SIZE, flushed=SEGMENT_SIZE - 1)
        assert (await log.segments.delete([0], allow_unindexed=False))[0].refusal is Refusal.NOT_INDEXED
        indexed(log, SEGMENT_SIZE)
        assert (await log.segments.delete([0], allow_unindexed=False))[0].refusal is None


@pytest.mark.parametrize("bases", [[-1], [0, 0], [SEGMENT_SIZE, 0], list(range(1001))])
async def test_bad_lists(bases: list[int]) -> None:
    """A list that does not ascend, has negative offsets or is too long is refused as a whole."""
    machine = Machine()
    async with machine.running() as log:
        await fill(log, 3)
        with pytest.raises(BadArgument):
            await log.segments.delete(bases, allow_unindexed=True)
        assert log.chain.min_physical_offset == 0


async def test_a_file_that_stays_keeps_its_segment() -> None:
    """A failed deletion changes nothing and may be retried, so that no later deletion makes a hole in the log."""
    machine = Machine()
    async with machine.running() as log:
        count = await fill(log, 4)
        for method in ("remove", "sync_directory"):
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(machine.fs, method, refuse)
                with pytest.raises(PermissionError):
                    await log.segments.delete([0, SEGMENT_SIZE], allow_unindexed=True)
            assert log.chain.min_physical_offset == 0
            assert len(bodies(log)) == count
            assert log.segments.list_from(0, 1)[0].reader_count == 0
        deletions = await log.segments.delete([0, SEGMENT_SIZE], allow_unindexed=True)
        assert [deletion.freed_bytes for deletion in deletions] == [SEGMENT_SIZE] * 2
    async with machine.running() as log:
        assert log.chain.min_physical_offset == 2 * SEGMENT_SIZE


async def test_an_unaligned_base_is_unknown() -> None:
    """A base that is not the first byte of a segment is refused as UNKNOWN."""
    machine = Machine()
    async with machine.running() as log:
        await fill(log, 3)
        deletions = await log.segments.delete([1, 2], allow_unindexed=True)
        assert [deletion.refusal for deletion in deletions] == [Refusal.UNKNOWN] * 2


async def test_start_after_deletion() -> None:
    """A log whose beginning is gone opens with its counters, times and epochs."""
    machine = Machine()
    async with machine.running() as log:
        await fill(log, 4)
        counters = log.topics.table.counters()
        await log.segments.delete([0, SEGMENT_SIZE], allow_unindexed=True)
    async with machine.running() as log:
        assert log.chain.min_physical_offset == 2 * SEGMENT_SIZE
        assert log.topics.table.counters() == counters
        assert log.recovery.scan_start_physical_offset == 2 * SEGMENT_SIZE


async def test_a_segment_goes_only_when_a_snapshot_knows_what_it_told() -> None:
    """After a deletion and a kill a queue without records keeps its counter."""
    machine = Machine()
    log = await machine.start()
    await log.snapshot.loop.stop()
    await append(log, message(b"alone", topic="seldom"))
    await fill(log, 2)
    await log.segments.delete([0], allow_unindexed=True)
    await machine.kill(log)
    async with machine.running() as log:
        assert not log.gate.holds(Reason.QUEUE_OFFSETS_UNKNOWN)
        batch = await append(log, message(b"next", topic="seldom"))
        assert memoryview(batch.queue_offsets).cast("q")[0] == 1


async def test_without_room_for_the_snapshot_the_segment_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    """A snapshot that can't be written ends the deletion, unless an older snapshot covers the segment."""
    machine = Machine()
    log = await machine.start()
    await fill(log, 3)
    await log.snapshot.save()
    covered = log.chain.max_physical_offset
    await fill(log, 5)
    monkeypatch.setattr(machine.fs, "write_atomic", refuse)
    [first, second] = await log.segments.delete([0, SEGMENT_SIZE], allow_unindexed=True)
    assert first.refusal is second.refusal is None
    with pytest.raises(PermissionError):
        await log.segments.delete([2 * SEGMENT_SIZE], allow_unindexed=True)
    assert 2 * SEGMENT_SIZE == log.chain.min_physical_offset < covered
    monkeypatch.undo()
    await machine.stop(log)


@pytest.mark.parametrize("is_clean", [True, False])
async def test_a_start_misses_the_oldest_segment(is_clean: bool, caplog: pytest.LogCaptureFixture) -> None:
    """A start does not miss segments that Reput deleted; it reports segments that were removed otherwise, once.

    The report has their bytes.
    """
    machine = Machine()
    log = await machine.start()
    await fill(log, 5)
    await log.checkpoint.save()
    await log.segments.delete([0], allow_unindexed=True)
    await (machine.stop(log) if is_clean else machine.kill(log))
    log = await machine.start()
    assert log.recovery.missing_bytes == 0
    await log.checkpoint.save()
    await (machine.stop(log) if is_clean else machine.kill(log))
    for number in (1, 2):
        machine.fs.remove(DATA_DIR / "commitlog" / f"{number * SEGMENT_SIZE:020d}")
    for missing_bytes in (2 * SEGMENT_SIZE, 0):
        async with machine.running() as log:
            assert log.recovery.missing_bytes == missing_bytes
            assert log.chain.min_physical_offset == 3 * SEGMENT_SIZE
    told = [line.getMessage() for line in caplog.records if "are missing" in line.getMessage()]
    assert len(told) == 1
    assert f"from physical offset {SEGMENT_SIZE} to {3 * SEGMENT_SIZE}" in told[0]


async def test_readers_of_a_doomed_segment() -> None:
    """A segment in use stays for the release time; then its readers get BelowMinOffset."""
    machine = Machine(segment_release_timeout_ms=120_000)
    async with machine.running() as log:
        await fill(log, 4)
        log.segments.reader_wait_s = 0
        follower = log.followers.tail(start_physical_offset=0, record_count_max=3).steps()
        reading = log.reader.stretches(0, log.marks.visible.value, size_bytes_max=2000)
        step, stretch = await anext(follower), next(reading)
        assert log.segments.list_from(0, 1)[0].reader_count == 2
        for passed_ms in (0, 119_000):
            machine.clock.advance(passed_ms)
            (deletion,) = await log.segments.delete([0], allow_unindexed=True)
            assert deletion.refusal is Refusal.IN_USE
        machine.clock.advance(1_000)
        raw = b"".join(stretch.run.raw())
        (deletion,) = await log.segments.delete([0], allow_unindexed=True)
        assert (deletion.refusal, deletion.freed_bytes, log.segments.evicted_count) == (None, SEGMENT_SIZE, 1)
        assert b"".join(stretch.run.raw()) == raw
        with pytest.raises(BelowMinOffset) as caught:
            await anext(follower)
        assert (caught.value.value, caught.value.min) == (step.end_physical_offset, SEGMENT_SIZE)
        with pytest.raises(BelowMinOffset):
            next(reading)


async def test_a_reader_that_ends_in_time() -> None:
    """The time limit restarts for each segment, and a reader that is done is not waited for."""
    machine = Machine(segment_release_timeout_ms=120_000)
    async with machine.running() as log:
        await fill(log, 4)
        log.segments.reader_wait_s = 0
        reading = log.reader.stretches(0, log.marks.visible.value, size_bytes_max=SEGMENT_SIZE)
        next(reading)
        assert (await log.segments.delete([0], allow_unindexed=True))[0].refusal is Refusal.IN_USE
        while next(reading).end_physical_offset <= SEGMENT_SIZE:
            pass
        machine.clock.advance(200_000)
        refusals = [one.refusal for one in await log.segments.delete([0, SEGMENT_SIZE], allow_unindexed=True)]
        assert refusals == [None, Refusal.IN_USE]
        reading.close()
        assert (await log.segments.delete([SEGMENT_SIZE], allow_unindexed=True))[0].refusal is None
        assert log.segments.evicted_count == 0


async def test_a_reader_of_a_moment_is_waited_for() -> None:
    """A deletion continues as soon as the last reader ends."""
    machine = Machine()
    async with machine.running() as log:
        await fill(log, 3)
        log.segments.reader_wait_s = 60
        reading = log.reader.stretches(0, log.marks.visible.value, size_bytes_max=2000)
        next(reading)
        deletion = asyncio.create_task(log.segments.delete([0], allow_unindexed=True))
        await asyncio.sleep(0.02)
        assert not deletion.done()
        reading.close()
        assert (await deletion)[0].refusal is None
        assert log.segments.evicted_count == 0
