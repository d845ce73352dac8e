# SPDX-License-Identifier: Apache-2.0
"""Durability: which appends share a sync, which durability each answer has, and the result of a refusal by the disk."""

import asyncio

import pytest

from libs.formats.limits import MIB
from libs.machine.failpoints import armed
from libs.machine.testing.memory_fs import MemoryMappedFile, nothing_survives
from libs.segments.errors import SyncFailed
from services.commitlog.engine.write.tail import EARLY_BYTES_MAX, EARLY_BYTES_MIN
from services.commitlog.errors import StoreSealed
from tests.support.commitlog import BORN_HOST as BORN
from tests.support.commitlog import (
    SEGMENT_SIZE,
    Machine,
    SlowDisk,
    append,
    bodies,
    durability_of,
    fill,
    message,
    request,
)
from tests.support.patience import LIMIT_S

LOCAL_DISK, MEMORY = 2, 1


async def test_those_who_arrive_during_a_sync_share_the_next_one() -> None:
    """All appends that arrive during a sync share the next sync."""
    machine = Machine(flush_mode="sync")
    log, disk = await machine.start(), SlowDisk()
    with armed("segment.before_sync", disk):
        first = asyncio.create_task(append(log))
        await asyncio.to_thread(disk.entered.wait)
        others = [asyncio.create_task(append(log)) for _ in range(50)]
        await asyncio.sleep(0)
        disk.go_on.set()
        await asyncio.gather(first, *others)
    assert log.flusher.work_count == 2
    await machine.kill(log, nothing_survives)
    async with machine.running() as log:
        assert len(bodies(log)) == 51


@pytest.mark.parametrize(
    ("mode", "asked", "reached"),
    [
        ("async", 0, MEMORY),
        ("async", 1, MEMORY),
        ("async", 2, LOCAL_DISK),
        ("sync", 0, LOCAL_DISK),
        ("sync", 1, MEMORY),
        ("sync", 2, LOCAL_DISK),
    ],
)
async def test_durability_reached(mode: str, asked: int, reached: int) -> None:
    """A caller gets the durability that it asks for, by default the store's own."""
    machine = Machine(flush_mode=mode)
    async with machine.running() as log:
        batch = await log.pipeline.append(request(durability=asked), BORN)
        assert await durability_of(log, batch) == reached


async def test_a_slow_sync_lowers_the_durability_and_keeps_the_message() -> None:
    """After the time-out the answer has MEMORY; the message stays and becomes durable later."""
    machine = Machine(flush_mode="sync", sync_timeout_ms=20)
    log, disk = await machine.start(), SlowDisk()
    with armed("segment.before_sync", disk):
        batch = await log.pipeline.append(request(), BORN)
        assert await durability_of(log, batch) == MEMORY
        disk.go_on.set()
        await log.marks.flushed.soon(batch.end_physical_offset)
    assert len(bodies(log)) == 1
    await machine.stop(log)


async def test_a_sync_covers_the_segments_behind() -> None:
    """After a roll a single sync makes both segments durable, and the flushed offset has no hole."""
    machine = Machine()
    log = await machine.start()
    await fill(log, 3)
    assert log.marks.flushed.value < SEGMENT_SIZE
    await append(log, durability=LOCAL_DISK)
    assert log.marks.flushed.value == log.chain.max_physical_offset
    count = len(bodies(log))
    await machine.kill(log, nothing_survives)
    async with machine.running() as log:
        assert len(bodies(log)) == count


@pytest.mark.parametrize("place", ["segment.before_sync", "file.sync"])
async def test_a_failed_sync_seals_the_store(place: str) -> None:
    """After a failed sync no durability is promised; reads continue, and the process gets a single failure."""
    machine = Machine()
    log = await machine.start()
    await append(log, message(b"kept"), durability=LOCAL_DISK)
    with armed(place, "raise"):
        batch = await log.pipeline.append(request(durability=LOCAL_DISK), BORN)
        with pytest.raises(StoreSealed):
            await durability_of(log, batch)
    assert len(machine.failures) == 1
    assert isinstance(machine.failures[0], SyncFailed)
    assert log.gate.refusals() == ["STORE_SEALED"]
    with pytest.raises(StoreSealed):
        await append(log)
    with pytest.raises(StoreSealed):
        await log.marks.flushed.soon(log.chain.max_physical_offset)
    assert len(bodies(log)) == 2
    await machine.stop(log)
    assert machine.exists("abort")


async def test_everyone_who_waits_for_a_failing_sync_is_told() -> None:
    """All waiting callers get the failure of a sync, also callers that arrived while it ran."""
    machine = Machine(flush_mode="sync")
    log, disk = await machine.start(), SlowDisk()

    def fail() -> None:
        disk()
        raise OSError(5, "broken")

    with armed("segment.before_sync", fail):
        first = asyncio.create_task(append(log))
        await asyncio.to_thread(disk.entered.wait)
        second = asyncio.create_task(append(log))
        await asyncio.sleep(0)
        disk.go_on.set()
        results = await asyncio.gather(first, second, return_exceptions=True)
    assert [type(result) for result in results] == [StoreSealed, StoreSealed]
    assert log.marks.visible.value == 0
    await machine.stop(log)


async def test_background_flush_waits_for_enough_pages() -> None:
    """A few dirty pages wait for the thorough background flush, many pages do not."""
    machine = Machine(flush_interval_ms=1, flush_thorough_interval_ms=10_000)
    async with machine.running() as log:
        await append(log)
        assert not log.flusher.is_due()
        await append(log, message(bytes(3 * 4096)))
        assert not log.flusher.is_due()
        machine.clock.advance(10_000)
        await log.marks.flushed.soon(log.chain.max_physical_offset)
        assert not log.flusher.is_due()
        await append(log, message(bytes(4 * 4096)))
        await log.marks.flushed.reached(log.chain.max_physical_offset)


async def test_confirmed_offset() -> None:
    """Followers see written records with asynchronous flushing, and only synced records with synchronous flushing."""
    for mode, expected in (("async", True), ("sync", False)):
        machine = Machine(flush_mode=mode)
        async with machine.running() as log:
            batch = await append(log, durability=MEMORY)
            assert (log.marks.visible.value == batch.end_physical_offset) is expected
            await append(log, durability=LOCAL_DISK)
            assert log.marks.visible.value == log.chain.max_physical_offset


async def test_with_synchronous_flushing_a_message_that_waits_for_no_disk_is_synced_at_once() -> None:
    """Followers see only synced records, so a message with MEMORY durability must not wait for the background flush."""
    machine = Machine(flush_mode="sync")
    async with machine.running() as log:
        batch = await append(log, durability=MEMORY)
        async with asyncio.timeout(LIMIT_S):
            await log.marks.flushed.reached(batch.end_physical_offset)
        assert log.marks.visible.value == batch.end_physical_offset


@pytest.mark.parametrize(("mode", "begins"), [("sync", True), ("async", False)])
async def test_the_disk_begins_before_the_sync(monkeypatch: pytest.MonkeyPatch, mode: str, *, begins: bool) -> None:
    """With synchronous flushing large written pieces are given to the disk before the sync, each a single time."""
    begun: list[tuple[int, int]] = []
    monkeypatch.setattr(MemoryMappedFile, "write_out", lambda _, position, size: begun.append((position, size)))
    machine = Machine(flush_mode=mode, segment_size_bytes=4 * MIB)
    async with machine.running() as log:
        small = await append(log, message(b"small"), durability=MEMORY)
        assert begun == []
        one = await append(log, message(bytes(EARLY_BYTES_MIN)), durability=MEMORY)
        two = await append(log, message(bytes(EARLY_BYTES_MIN)), durability=MEMORY)
        first, second = (0, one.end_physical_offset), (one.end_physical_offset, two.end_physical_offset)
        assert small.end_physical_offset < first[1]
        assert begun == ([(start, end - start) for start, end in (first, second)] if begins else [])


async def test_the_disk_is_not_given_more_than_its_queue_takes(monkeypatch: pytest.MonkeyPatch) -> None:
    """A slow disk gets no early writes, because the event loop would wait for its queue."""
    begun: list[int] = []
    monkeypatch.setattr(MemoryMappedFile, "write_out", lambda _, position, size: begun.append(position + size))
    machine = Machine(flush_mode="sync", segment_size_bytes=2 * EARLY_BYTES_MAX)
    log, disk = await machine.start(), SlowDisk()
    with armed("segment.before_sync", disk):
        piece = message(bytes(3 * MIB))
        ends = [(await append(log, piece, durability=MEMORY)).end_physical_offset for _ in range(8)]
        disk.go_on.set()
    assert begun == [end for end in ends if end <= EARLY_BYTES_MAX]
    await machine.stop(log)


@pytest.mark.parametrize("place", ["segment.before_sync", "file.sync"])
async def test_after_a_failed_sync_a_start_believes_the_disk_alone(place: str) -> None:
    """After a failed sync the next start does not build on pages that only memory has."""
    machine = Machine()
    log = await machine.start()
    await append(log, message(b"kept"), durability=LOCAL_DISK)
    with armed(place, "raise"), pytest.raises(StoreSealed):
        await append(log, message(b"lost" * 2000), durability=LOCAL_DISK)
    await machine.stop(log)
    log = await machine.start()
    await append(log, message(b"after"), durability=LOCAL_DISK)
    await machine.kill(log, nothing_survives)
    async with machine.running() as log:
        assert [body for body in bodies(log) if body != b"lost" * 2000] == [b"kept", b"after"]
