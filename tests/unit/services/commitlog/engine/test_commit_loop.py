# SPDX-License-Identifier: Apache-2.0
"""The pool: uncommitted data is invisible and is lost with the process; data that was promised on disk is not."""

import asyncio
import threading
from pathlib import Path

import pytest

from libs.machine.clock import SystemClock
from libs.machine.failpoints import armed
from libs.machine.posix_fs import PosixFs
from libs.machine.testing.memory_fs import everything_survives, nothing_survives
from libs.segments.errors import CommitFailed
from services.commitlog.engine.keep.segments import Refusal
from services.commitlog.engine.statistics import statistics_of
from services.commitlog.errors import BeyondMaxOffset, StoreSealed
from tests.support.commitlog import BORN_HOST as BORN
from tests.support.commitlog import (
    NEVER_MS,
    SEGMENT_SIZE,
    Machine,
    append,
    bodies,
    fill,
    log_on,
    make_config,
    message,
    request,
)
from tests.support.patience import LIMIT_S

LOCAL_DISK, MEMORY = 2, 1


def pooled(**config: object) -> Machine:
    """A machine whose log collects appends in a pool."""
    return Machine(transient_store_pool=True, **config)


async def test_what_is_not_committed_is_seen_by_nobody() -> None:
    """Readers, followers and the handshake end at the committed offset; a commit moves it and wakes followers."""
    machine = pooled()
    async with machine.running() as log:
        batch = await append(log, durability=MEMORY)
        assert log.chain.max_physical_offset == batch.end_physical_offset
        assert log.marks.visible.value == statistics_of(log).committed_physical_offset == 0
        assert bytes(machine.segment_bytes()) == bytes(SEGMENT_SIZE)
        assert bodies(log) == []
        with pytest.raises(BeyondMaxOffset):
            log.reader.read([0], [], size_bytes_max=1)
        handshake = log.followers.handshake(batch.end_physical_offset, 0)
        assert (handshake.confirmed_physical_offset, handshake.start_physical_offset) == (0, 0)
        steps = log.followers.tail(start_physical_offset=0, record_count_max=10).steps()
        following = asyncio.ensure_future(anext(steps))
        await append(log, durability=MEMORY)
        await asyncio.sleep(0)
        assert not following.done()
        await log.marks.committed.soon(log.chain.max_physical_offset)
        assert (await following).end_physical_offset == log.chain.max_physical_offset
        await steps.aclose()
        assert len(bodies(log)) == 2


@pytest.mark.parametrize("survives", [everything_survives, nothing_survives])
async def test_a_crash_loses_the_pool_and_nothing_that_was_promised_of_the_disk(survives: object) -> None:
    """A crash loses messages with MEMORY, and none with LOCAL_DISK.

    LOCAL_DISK commits and syncs first; MEMORY is the memory of this process here.
    """
    machine = pooled()
    log = await machine.start()
    await append(log, message(b"a"), durability=MEMORY)
    await append(log, message(b"b"), durability=LOCAL_DISK)
    await append(log, message(b"c"), durability=MEMORY)
    await machine.kill(log, survives)
    async with machine.running() as log:
        assert bodies(log) == [b"a", b"b"]


async def test_a_committed_message_survives_the_process() -> None:
    """A committed message survives a kill as without a pool, but not a power cut."""
    for survives, expected in ((everything_survives, [b"a"]), (nothing_survives, [])):
        machine = pooled()
        log = await machine.start()
        await append(log, message(b"a"), durability=MEMORY)
        await log.marks.committed.soon(log.chain.max_physical_offset)
        await append(log, message(b"b"), durability=MEMORY)
        await machine.kill(log, survives)
        async with machine.running() as log:
            assert bodies(log) == expected


async def test_a_clean_stop_commits_everything() -> None:
    """A clean stop commits the data of the pool to the log, and the stop is recorded as clean."""
    machine = pooled()
    async with machine.running() as log:
        for index in range(10):
            await append(log, message(b"%d" % index), durability=MEMORY)
    assert not machine.exists("abort")
    machine.fs.crash(nothing_survives)
    async with machine.running() as log:
        assert bodies(log) == [b"%d" % index for index in range(10)]
        assert log.recovery.was_clean_stop


async def test_when_the_background_commits() -> None:
    """A few pages wait for the thorough interval; many pages and the end of a segment do not."""
    machine = pooled(commit_interval_ms=1, commit_thorough_interval_ms=10_000, snapshot_interval_ms=NEVER_MS)
    async with machine.running() as log:
        await append(log)
        assert not log.committer.is_due()
        await append(log, message(bytes(3 * 4096)))
        assert not log.committer.is_due()
        machine.clock.advance(10_000)
        await log.marks.committed.reached(log.chain.max_physical_offset)
        assert not log.committer.is_due()
        await append(log, message(bytes(4 * 4096)))
        assert log.committer.is_due()
        await log.marks.committed.reached(log.chain.max_physical_offset)


@pytest.mark.parametrize("buffer_count", [1, 2, 5])
async def test_a_writer_without_a_free_buffer_waits_for_one(buffer_count: int) -> None:
    """Buffers are reused: a full segment gives its buffer back when it is committed, and the log has no hole."""
    machine = pooled(transient_store_pool_segment_count=buffer_count)
    log = await machine.start()
    count = await fill(log, 9)
    pool = log.chain.pool
    assert pool is not None
    assert pool.free_count < buffer_count
    await append(log, durability=LOCAL_DISK)
    assert pool.free_count == buffer_count - 1
    await machine.kill(log, nothing_survives)
    async with machine.running() as log:
        assert len(bodies(log)) == count + 1


async def test_all_who_wait_for_a_buffer_go_on() -> None:
    """All batches that wait for a buffer at the end of a segment continue, and share the next segment."""
    machine = pooled(transient_store_pool_segment_count=1)
    async with machine.running() as log:
        body = bytes(40_000)
        await append(log, message(body), durability=MEMORY)
        await asyncio.gather(*(append(log, message(body), durability=MEMORY) for _ in range(5)))
        await log.marks.committed.soon(log.chain.max_physical_offset)
        assert len(bodies(log)) == 6
        assert len(log.chain.segments) == 6


async def test_a_buffer_brings_nothing_of_its_last_segment() -> None:
    """The file has zeros behind a blank, although the buffer was used before."""
    machine = pooled(transient_store_pool_segment_count=1)
    async with machine.running() as log:
        await append(log, message(b"\xee" * 60_000), durability=MEMORY)
        await append(log, message(b"\xdd" * 10_000), durability=MEMORY)
        await append(log, message(b"\xcc" * 60_000), durability=MEMORY)
        await append(log, durability=LOCAL_DISK)
        assert b"\xee" * 8 in machine.segment_bytes(0)
        assert b"\xee" not in machine.segment_bytes(SEGMENT_SIZE)


@pytest.mark.parametrize("place", ["segment.before_commit", "file.write"])
async def test_a_failed_commit_seals_the_store(place: str) -> None:
    """After a failed commit the store is sealed, no durability is promised any more, and the stop is unclean."""
    machine = pooled()
    log = await machine.start()
    await append(log, message(b"kept"), durability=LOCAL_DISK)
    with armed(place, "raise"):
        batch = await log.pipeline.append(request(durability=MEMORY), BORN)
        with pytest.raises(StoreSealed):
            await log.marks.committed.soon(log.chain.max_physical_offset)
    assert [type(failure) for failure in machine.failures] == [CommitFailed]
    assert log.gate.refusals() == ["STORE_SEALED"]
    with pytest.raises(StoreSealed):
        await append(log)
    with pytest.raises(StoreSealed):
        await log.marks.flushed.soon(batch.end_physical_offset)
    assert bodies(log) == [b"kept"]
    await machine.stop(log)
    assert len(machine.failures) == 1
    assert machine.exists("abort")
    async with machine.running() as log:
        assert bodies(log) == [b"kept"]


async def test_who_waits_for_a_buffer_hears_of_a_failed_commit() -> None:
    """A batch that waits at the end of a segment is refused if no buffer will come back, and it is not in the log."""
    machine = pooled(transient_store_pool_segment_count=1)
    log = await machine.start()
    await append(log, message(bytes(60_000)), durability=MEMORY)
    with armed("file.write", "raise"), pytest.raises(StoreSealed):
        await append(log, message(bytes(60_000)), durability=MEMORY)
    assert log.pipeline.message_count == 1
    await machine.stop(log)
    assert machine.exists("abort")


async def test_a_disk_waiter_does_not_wait_for_the_interval() -> None:
    """The flusher commits before it syncs, independent of the commit loop's state, and both take turns."""
    machine = pooled()
    async with machine.running() as log:
        entered, go_on = threading.Event(), threading.Event()

        def pause() -> None:
            entered.set()
            assert go_on.wait(LIMIT_S)

        await append(log, message(b"a"), durability=MEMORY)
        with armed("segment.before_commit", pause):
            background = log.marks.committed.soon(log.chain.max_physical_offset)
            await asyncio.to_thread(entered.wait)
            batch = await log.pipeline.append(request(message(b"b"), durability=LOCAL_DISK), BORN)
            acknowledgement = log.acknowledgements.of(batch)
            await asyncio.sleep(0)
            assert not acknowledgement.is_settled
            go_on.set()
            await background
            await acknowledgement.settle()
            assert acknowledgement.durability() == LOCAL_DISK
        assert bodies(log) == [b"a", b"b"]


async def test_the_checkpoint_tells_of_synced_records_only() -> None:
    """A sync covers the store time of the records that were committed with it, and not of later records."""
    machine = pooled()
    async with machine.running() as log:
        first = await append(log, durability=MEMORY)
        machine.clock.advance(60_000)

        def late() -> None:
            log.state.last_store_time_ms += 60_000

        with armed("segment.before_sync", late):
            await log.marks.flushed.soon(log.chain.max_physical_offset)
        await log.checkpoint.save()
        assert log.checkpoint.value.commit_log_time_ms == first.store_time_ms


async def test_a_segment_that_is_not_in_its_file_stays() -> None:
    """A segment whose pool buffer is not committed is not deleted, even if the caller ignores the Indexer."""
    machine = pooled()
    async with machine.running() as log:
        entered, go_on = threading.Event(), threading.Event()

        def pause() -> None:
            entered.set()
            assert go_on.wait(LIMIT_S)

        with armed("segment.before_commit", pause):
            await append(log, message(bytes(60_000)), durability=MEMORY)
            await append(log, message(bytes(60_000)), durability=MEMORY)
            assert [d.refusal for d in await log.segments.delete([0], allow_unindexed=True)] == [Refusal.ACTIVE]
            go_on.set()
        await log.marks.flushed.soon(log.chain.max_physical_offset)
        assert [d.refusal for d in await log.segments.delete([0], allow_unindexed=True)] == [None]


async def test_the_pool_on_a_real_disk(tmp_path: Path) -> None:
    """Readers see in the mapping the bytes that pwrite put into the file, over several segments and a restart."""
    config = make_config(data_dir=tmp_path, transient_store_pool=True, commit_interval_ms=5, preallocate=True)
    for _ in range(2):
        async with log_on(PosixFs(), config, SystemClock()) as log:
            before = len(bodies(log))
            segment_count = len(log.chain.segments)
            count = await fill(log, segment_count + 3)
            await log.marks.committed.reached(log.chain.max_physical_offset)
            assert len(bodies(log)) == before + count
