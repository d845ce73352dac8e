# SPDX-License-Identifier: Apache-2.0
"""Starts that find damage: each ends with a line that names the place and the remedy, and changes nothing."""

import errno
from pathlib import Path

import pytest

from libs.formats import store_layout
from libs.machine.testing.faulty_fs import Fault, FaultyFs
from libs.machine.testing.memory_fs import MemoryMappedFile
from libs.segments.errors import SegmentMissing, SegmentSizeWrong, SegmentUnreadable, StoreError
from services.commitlog.errors import LogDamaged
from tests.support.commitlog import (
    DATA_DIR,
    SEGMENT_SIZE,
    Machine,
    append,
    bodies,
    fill,
    garble,
    killed,
    message,
    records,
)

FIVE = [b"body-%d" % index for index in range(5)]


async def test_damage_before_whole_records_stops_the_start() -> None:
    """Records after a damaged record are kept: the start names the place, exits, and changes nothing."""
    machine = Machine()
    starts = await killed(machine, FIVE)
    garble(machine.segment_bytes(), starts[1])
    before = bytes(machine.segment_bytes())
    with pytest.raises(LogDamaged, match=f"00000000000000000000 is damaged at byte {starts[1]}") as caught:
        await machine.start()
    assert caught.value.position == starts[1]
    assert isinstance(caught.value, StoreError)  # a single line for the person who starts it, and no traceback
    assert bytes(machine.segment_bytes()) == before
    garble(machine.segment_bytes(), starts[1])
    async with machine.running() as log:  # the lock was given back
        assert bodies(log) == FIVE


async def test_damage_in_an_older_segment_is_found_through_the_next_one() -> None:
    """Damage at a segment's end stops the start if the next segment has records."""
    machine = Machine()
    log = await machine.start()
    await fill(log, 2, b"x" * 1_000)
    last = records(log)[-2]
    await machine.kill(log)
    assert last.physical_offset < SEGMENT_SIZE
    machine.segment_bytes()[last.physical_offset + 200] ^= 1
    with pytest.raises(LogDamaged, match="whole record follows"):
        await machine.start()


async def test_damage_below_the_synced_end_stops_the_start() -> None:
    """The last record, once synced, is not a torn tail when it is damaged."""
    machine = Machine()
    async with machine.running() as log:
        for body in FIVE:
            batch = await append(log, message(body))
    garble(machine.segment_bytes(), batch.start_physical_offset)
    with pytest.raises(LogDamaged, match="on disk once"):
        await machine.start()
    assert not machine.exists("abort")


async def test_damage_that_only_the_checkpoint_knows_of() -> None:
    """Without a snapshot the checkpoint's time proves that a newer record was on disk."""
    machine = Machine()
    log = await machine.start()
    await append(log, message(b"first"), durability=2)
    machine.clock.advance(10_000)
    batch = await append(log, message(b"second"), durability=2)
    await log.checkpoint.save()
    await machine.kill(log)
    assert not machine.fs.exists(DATA_DIR / store_layout.QUEUE_SNAPSHOT)
    garble(machine.segment_bytes(), batch.start_physical_offset)
    with pytest.raises(LogDamaged, match="on disk once"):
        await machine.start()


async def test_missing_segments_are_not_an_empty_log() -> None:
    """A store without its log files does not begin again at offset 0."""
    machine = Machine()
    async with machine.running() as log:
        await append(log)
    machine.fs.remove(DATA_DIR / "commitlog" / f"{0:020d}")
    with pytest.raises(LogDamaged, match="no file"):
        await machine.start()


async def test_wrong_segment_size() -> None:
    """A file of another size stops the start with a line that names both sizes."""
    machine = Machine()
    async with machine.running() as log:
        await append(log)
    with pytest.raises(SegmentSizeWrong, match=f"{SEGMENT_SIZE} bytes, but the configured segment size is 131072"):
        await machine.start(segment_size_bytes=131_072)
    assert not machine.exists("abort")


async def test_missing_segment_in_the_middle() -> None:
    """A hole in the chain stops the start."""
    machine = Machine()
    async with machine.running() as log:
        await fill(log, 3)
    machine.fs.remove(DATA_DIR / "commitlog" / f"{SEGMENT_SIZE:020d}")
    with pytest.raises(SegmentMissing):
        await machine.start()


@pytest.mark.parametrize("base", [0, 2 * SEGMENT_SIZE])
async def test_a_disk_that_can_not_read_stops_the_start(base: int) -> None:
    """A bad sector in data that a start reads is an error of a single line with file and position; nothing changes."""
    machine = Machine()
    log = await machine.start()
    await fill(log, 3)
    await machine.kill(log)
    if machine.exists("reput/queue_offsets"):  # else nothing but the last segment would be read
        machine.fs.remove(DATA_DIR / store_layout.QUEUE_SNAPSHOT)
    before = machine.files()
    healthy = MemoryMappedFile.check_readable
    name = f"{base:020d}"

    def check_readable(mapped: MemoryMappedFile, position: int, size_bytes: int) -> None:
        if mapped.path.name == name and position <= 8_192 < position + size_bytes:
            raise OSError(errno.EIO, "Input/output error", str(mapped.path))
        healthy(mapped, position, size_bytes)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(MemoryMappedFile, "check_readable", check_readable)
        with pytest.raises(
            SegmentUnreadable, match=f"{name}: can't be read at byte 8192: Input/output error"
        ) as caught:
            await machine.start()
    assert "\n" not in str(caught.value)
    assert machine.files() == before
    async with machine.running():  # the disk is well again
        pass


async def test_a_file_that_may_not_be_opened_stops_the_start() -> None:
    """A file without read permission stops the start with an error that names the file and the permission."""
    machine = Machine()
    async with machine.running() as log:
        await append(log)
    path = DATA_DIR / "commitlog" / f"{0:020d}"

    def plan(operation: str, at: Path) -> Fault | None:
        return Fault(errno.EACCES) if (operation, at) == ("open_mapped", path) else None

    before = machine.files()
    with pytest.raises(SegmentUnreadable, match=f"{path}: can't be read at byte 0: Permission denied"):
        await machine.start(FaultyFs(machine.fs, plan))
    assert machine.files() == before


@pytest.mark.parametrize("knows", ["snapshot", "checkpoint", "epochs"])
async def test_a_missing_newest_segment_is_no_clean_end(knows: str) -> None:
    """A log that once had records behind its closed last file does not open; nothing is changed."""
    machine = Machine()
    log = await machine.start()
    await fill(log, 3)
    await append(log, durability=2)
    await log.checkpoint.save()
    await log.snapshot.save()
    await machine.kill(log)
    if knows == "epochs":
        async with machine.running():
            pass
        for base in (0, SEGMENT_SIZE):
            machine.fs.remove(DATA_DIR / "commitlog" / f"{base:020d}")
    machine.fs.remove(DATA_DIR / "commitlog" / f"{2 * SEGMENT_SIZE:020d}")
    if knows != "snapshot":
        machine.fs.remove(DATA_DIR / store_layout.QUEUE_SNAPSHOT)
    if knows == "epochs":
        machine.fs.remove(DATA_DIR / store_layout.CHECKPOINT)
    with pytest.raises(LogDamaged, match="no file") as caught:
        await machine.start()
    assert caught.value.segment == f"{2 * SEGMENT_SIZE:020d}"


async def test_an_open_that_fails_removes_nothing() -> None:
    """Files that are no part of the log are removed only once the log is known to open."""
    machine = Machine()
    async with machine.running() as log:
        await fill(log, 3)
    directory = DATA_DIR / "commitlog"
    machine.fs.remove(directory / f"{SEGMENT_SIZE:020d}")
    machine.fs.append(directory / f"{3 * SEGMENT_SIZE:020d}.tmp", b"x")
    before = machine.files()
    with pytest.raises(SegmentMissing, match="restore it"):
        await machine.start()
    assert machine.files() == before
