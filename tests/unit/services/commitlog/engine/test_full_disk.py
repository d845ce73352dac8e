# SPDX-License-Identifier: Apache-2.0
"""A disk without a free byte: refused calls, calls that continue, and starts and stops that still work."""

import contextlib
import errno
from collections.abc import AsyncIterator

import pytest

from libs.formats import store_layout
from libs.machine.errors import DiskFull
from libs.machine.fs import PAGE_SIZE_BYTES
from libs.machine.testing.faulty_fs import Fault, FaultyFs, by_ordinal
from libs.machine.testing.memory_fs import nothing_survives
from libs.segments.errors import StoreFull
from services.commitlog.engine.open_log import OpenLog
from services.commitlog.engine.start import tail_copy
from tests.support.commitlog import (
    DATA_DIR,
    SEGMENT_SIZE,
    Machine,
    append,
    bodies,
    message,
)

LOCAL_DISK = 2
BALLAST_BYTES = 4 * PAGE_SIZE_BYTES
PLENTY = 1 << 30


def fill_disk(machine: Machine) -> None:
    """Take every free byte of the disk."""
    machine.fs.capacity_bytes = machine.fs.used_bytes()


async def full_and_killed(**config: object) -> Machine:
    """A store with two messages whose process was killed on a full disk."""
    machine = Machine(**config)
    log = await machine.start()
    await append(log, message(b"a"), message(b"b"), durability=LOCAL_DISK)
    fill_disk(machine)
    await machine.kill(log)
    return machine


async def test_a_store_that_was_killed_on_a_full_disk_starts_again() -> None:
    """A killed store starts on a full disk again and again, and restores the ballast when the disk has room.

    In between, each free byte is taken.
    """
    machine = await full_and_killed(disk_ballast_bytes=BALLAST_BYTES)
    for index in range(10):
        log = await machine.start()
        assert bodies(log) == [b"a", b"b", *[b"more"] * index]
        await append(log, message(b"more"), durability=LOCAL_DISK)
        fill_disk(machine)
        await machine.kill(log, nothing_survives)
    assert machine.fs.size(DATA_DIR / store_layout.BALLAST) > BALLAST_BYTES // 2
    machine.fs.capacity_bytes = PLENTY
    async with machine.running() as log:
        assert machine.fs.size(DATA_DIR / store_layout.BALLAST) == BALLAST_BYTES
        assert len(bodies(log)) == 12


async def test_without_ballast_the_start_says_what_it_lacks() -> None:
    """Without ballast the error names file and bytes and nothing changes; with room the same start succeeds."""
    machine = await full_and_killed()
    before = machine.files()
    for _ in range(2):
        with pytest.raises(DiskFull, match=r"/store/abort: the disk has no room for \d+ bytes"):
            await machine.start()
        assert machine.files() == before
    machine.fs.capacity_bytes = PLENTY
    async with machine.running() as log:
        assert bodies(log) == [b"a", b"b"]


async def test_a_new_store_on_a_full_disk_says_what_it_lacks() -> None:
    """The error names the first file that does not fit; the same start succeeds when there is room."""
    machine = Machine()
    machine.fs.capacity_bytes = 3
    with pytest.raises(DiskFull, match=r"/store/config/topics.json: the disk has no room for \d+ bytes"):
        await machine.start()
    machine.fs.capacity_bytes = PLENTY
    async with machine.running() as log:
        await append(log)


async def test_a_torn_tail_that_can_not_be_copied_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    """A torn tail is not cut before its copy is whole, and the partial copy is removed."""
    monkeypatch.setattr(tail_copy, "COPY_CHUNK_BYTES", PAGE_SIZE_BYTES)
    machine = await full_and_killed(disk_ballast_bytes=BALLAST_BYTES)
    data = machine.segment_bytes()
    data[5_000 : 5_000 + 3 * BALLAST_BYTES] = b"x" * (3 * BALLAST_BYTES)
    torn = bytes(data)
    for _ in range(2):
        with pytest.raises(DiskFull, match=r"/store/reput/cut/\d{20}-2: the disk has no room for \d+ bytes"):
            await machine.start()
        assert bytes(machine.segment_bytes()) == torn
        assert machine.fs.list(DATA_DIR / "reput" / "cut") == []
    machine.fs.capacity_bytes = PLENTY
    async with machine.running() as log:
        assert bodies(log) == [b"a", b"b"]
        assert log.recovery.truncated_bytes > 0


async def full_at_the_end_of_a_segment(machine: Machine) -> OpenLog:
    """A log whose next segment does not fit on the disk."""
    log = await machine.start()
    await append(log, message(bytes(60_000)))
    allocator = log.chain.allocator
    if allocator is not None:
        allocator.wait()
    fill_disk(machine)
    if allocator is not None:  # another segment was allocated ahead
        await append(log, message(bytes(60_000)))
    with pytest.raises(StoreFull, match=f"no room for the {SEGMENT_SIZE} bytes of this segment"):
        await append(log, message(bytes(60_000)))
    return log


@pytest.mark.parametrize("config", [{}, {"preallocate": True}, {"transient_store_pool": True}])
async def test_a_segment_that_does_not_fit_refuses_appends_alone(config: dict[str, bool]) -> None:
    """The segment before it is closed and readable; appends continue when there is room."""
    machine = Machine(**config)
    log = await full_at_the_end_of_a_segment(machine)
    for _ in range(3):
        with pytest.raises(StoreFull):
            await append(log, message(b"small"))
    await log.marks.flushed.soon(log.chain.max_physical_offset)
    before, end = bodies(log), log.chain.max_physical_offset
    assert log.marks.visible.value == end == len(before) * SEGMENT_SIZE
    steps = log.followers.tail(start_physical_offset=0, record_count_max=10).steps()
    while (await anext(steps)).end_physical_offset < end:
        pass
    await steps.aclose()
    machine.fs.capacity_bytes = PLENTY
    await append(log, message(b"small"), durability=LOCAL_DISK)
    await machine.kill(log, nothing_survives)
    async with machine.running() as log:
        assert bodies(log) == [*before, b"small"]


async def test_a_segment_with_holes_gets_its_blocks_before_it_is_written() -> None:
    """Without blocks for a hole appends are refused until there is room.

    A store into a hole on a full disk would end the process.
    """
    machine = Machine()
    async with machine.running() as log:
        await append(log)
    faults = {("reserve", 1): Fault(errno.ENOSPC), ("reserve", 2): Fault(errno.ENOSPC)}
    log = await machine.start(FaultyFs(machine.fs, by_ordinal(faults)))
    for _ in range(2):
        with pytest.raises(StoreFull, match=f"no room for the {SEGMENT_SIZE} bytes of this segment"):
            await append(log)
        assert len(bodies(log)) == 1
    await append(log)
    assert len(bodies(log)) == 2
    await machine.stop(log)


@pytest.mark.parametrize("is_killed", [False, True])
async def test_a_log_that_ends_with_a_full_segment_starts_on_a_full_disk(*, is_killed: bool) -> None:
    """A log that ends with a blank and has no next file starts when there is room."""
    machine = Machine(disk_ballast_bytes=BALLAST_BYTES)
    log = await full_at_the_end_of_a_segment(machine)
    await (machine.kill(log) if is_killed else machine.stop(log))
    assert machine.exists("abort") is is_killed
    log = await machine.start()
    assert len(bodies(log)) == 1
    machine.fs.capacity_bytes = PLENTY
    await append(log, message(b"small"))
    await machine.stop(log)
    async with machine.running() as log:
        assert len(bodies(log)) == 2


async def test_a_topic_that_does_not_fit_is_not_there() -> None:
    """The error names file and bytes; appends to known topics continue, and the same call succeeds later."""
    machine = Machine()
    async with machine.running() as log:
        await append(log)
        fill_disk(machine)
        for _ in range(2):
            with pytest.raises(DiskFull, match=r"topic_journal: the disk has no room for \d+ bytes"):
                await append(log, message(topic="new"))
            assert log.topics.find("new") is None
        await append(log, durability=LOCAL_DISK)
        machine.fs.capacity_bytes = PLENTY
        await append(log, message(topic="new"))
        assert len(bodies(log)) == 3


async def test_checkpoint_and_snapshot_come_later() -> None:
    """Checkpoint and snapshot wait for space, and the log continues."""
    machine = Machine(checkpoint_interval_ms=1, snapshot_interval_ms=1)
    log = await machine.start()
    await append(log, durability=LOCAL_DISK)
    fill_disk(machine)
    while log.checkpoint.loop.last_error is None or log.snapshot.loop.last_error is None:
        await append(log, durability=LOCAL_DISK)
    assert isinstance(log.snapshot.loop.last_error, DiskFull)
    with pytest.raises(DiskFull, match="queue_offsets: the disk has no room"):
        await machine.stop(log)
    assert machine.exists("abort")
    machine.fs.capacity_bytes = PLENTY
    async with machine.running() as log:
        assert len(bodies(log)) > 1


async def test_the_background_leaves_the_ballast_alone() -> None:
    """The background does not use the ballast, because another program may take the freed space.

    Only a start, a stop and a deletion take this risk.
    """
    machine = Machine(disk_ballast_bytes=BALLAST_BYTES)
    log = await machine.start()
    await append(log, durability=LOCAL_DISK)
    fill_disk(machine)
    ballast = machine.fs.file(DATA_DIR / store_layout.BALLAST)
    with pytest.raises(DiskFull, match="queue_offsets: the disk has no room"):
        await log.snapshot.save()
    assert machine.fs.file(DATA_DIR / store_layout.BALLAST) is ballast
    assert len(ballast.data) == BALLAST_BYTES
    await machine.stop(log)
    assert not machine.exists("abort")


async def test_a_clean_stop_on_a_full_disk_is_clean() -> None:
    """The ballast gives way to the files that a stop writes."""
    machine = Machine(disk_ballast_bytes=BALLAST_BYTES)
    log = await machine.start()
    await append(log)
    fill_disk(machine)
    await machine.stop(log)
    assert not machine.exists("abort")
    async with machine.running() as log:
        assert (log.recovery.was_clean_stop, len(bodies(log))) == (True, 1)


@contextlib.asynccontextmanager
async def full_with_three_segments(**config: object) -> AsyncIterator[tuple[Machine, OpenLog]]:
    """A full disk whose last snapshot of the queue offsets covers none of the log's segments."""
    machine = Machine(**config)
    async with machine.running() as log:
        await log.snapshot.save()
        for _ in range(3):
            await append(log, message(bytes(60_000)), durability=LOCAL_DISK)
        assert log.snapshot.end_physical_offset == 0
        fill_disk(machine)
        yield machine, log
        machine.fs.capacity_bytes = PLENTY


async def test_deletion_needs_no_space() -> None:
    """The oldest segment is deleted on a full disk: the ballast gives way to the snapshot, and is restored after."""
    async with full_with_three_segments(disk_ballast_bytes=BALLAST_BYTES) as (machine, log):
        deletions = await log.segments.delete([0], allow_unindexed=True)
        assert [deletion.freed_bytes for deletion in deletions] == [SEGMENT_SIZE]
        assert log.snapshot.end_physical_offset == log.chain.max_physical_offset
        fill_disk(machine)
        assert machine.fs.size(DATA_DIR / store_layout.BALLAST) > BALLAST_BYTES // 2
        deletions = await log.segments.delete([0, SEGMENT_SIZE], allow_unindexed=True)
        assert [deletion.freed_bytes for deletion in deletions] == [0, SEGMENT_SIZE]
        await append(log, message(bytes(60_000)))
        assert len(bodies(log)) == 2


async def test_without_ballast_a_deletion_says_what_it_lacks() -> None:
    """Without ballast no segment is deleted whose queue offsets are not stored; with room the same call succeeds."""
    async with full_with_three_segments() as (machine, log):
        before = machine.files()
        with pytest.raises(DiskFull, match=r"queue_offsets: the disk has no room for \d+ bytes"):
            await log.segments.delete([0], allow_unindexed=True)
        assert (machine.files(), len(bodies(log))) == (before, 3)
        machine.fs.capacity_bytes = PLENTY
        deletions = await log.segments.delete([0], allow_unindexed=True)
        assert [deletion.freed_bytes for deletion in deletions] == [SEGMENT_SIZE]


async def test_the_guard_closes_the_gate_and_takes_the_ballast_back() -> None:
    """Below the reserve appends are refused; with enough space the ballast is restored."""
    machine = Machine(disk_reserve_bytes=10 * PAGE_SIZE_BYTES, disk_ballast_bytes=BALLAST_BYTES)
    log = await machine.start()
    fill_disk(machine)
    await log.disk.look()
    assert log.gate.refusals() == ["STORE_FULL"]
    machine.fs.remove(DATA_DIR / store_layout.BALLAST)
    await log.disk.look()
    assert not machine.exists(store_layout.BALLAST)
    machine.fs.capacity_bytes = PLENTY
    await log.disk.look()
    assert log.gate.is_open
    assert machine.fs.size(DATA_DIR / store_layout.BALLAST) == BALLAST_BYTES
    await machine.stop(log)
