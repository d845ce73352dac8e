# SPDX-License-Identifier: Apache-2.0
"""Starts after clean stops, kills, power cuts and damage: kept data, cut data, and damage that stops the start."""

import asyncio
from collections.abc import Callable

import pytest

from libs.formats.records import record
from libs.formats.records.record import encode_blank
from libs.log.end import ScanEndKind
from libs.machine.errors import StoreLocked
from libs.machine.failpoints import armed
from libs.machine.fs import PAGE_SIZE_BYTES
from libs.machine.testing.memory_fs import nothing_survives
from libs.requests.errors import Stopping
from libs.segments.errors import SyncFailed
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
from tests.support.patience import LIMIT_S
from tests.support.records import BODY_AT_IPV4, encoded

FIVE = [b"body-%d" % index for index in range(5)]


async def test_nothing_is_appended_to_a_log_that_is_closed() -> None:
    """A log that is closing refuses appends, which would be lost or would make the stop wait for ever."""
    machine = Machine()
    log = await machine.start()
    await append(log, message())
    closing = asyncio.create_task(machine.stop(log))
    await asyncio.sleep(0)
    with pytest.raises(Stopping):
        await append(log, message())
    await asyncio.wait_for(closing, LIMIT_S)
    async with machine.running() as log:
        assert log.recovery.was_clean_stop
        assert len(bodies(log)) == 1


async def test_clean_stop_and_start() -> None:
    """A clean stop leaves no abort file, and the next start continues at its end, in the same epoch."""
    machine = Machine()
    async with machine.running() as log:
        await append(log, *(message(body) for body in FIVE))
        assert machine.exists("abort")
    assert not machine.exists("abort")
    async with machine.running() as log:
        assert log.recovery.was_clean_stop
        assert log.recovery.scan_end is ScanEndKind.CLEAN
        assert log.epochs.number == 1
        batch = await append(log, message(b"next"))
        assert memoryview(batch.queue_offsets).cast("q")[0] == len(FIVE)
        assert bodies(log) == [*FIVE, b"next"]


async def test_kill_keeps_what_was_acknowledged_from_memory() -> None:
    """A killed process loses nothing, and data that followers saw stays common history although a new epoch begins."""
    machine = Machine()
    await killed(machine, FIVE)
    assert machine.exists("abort")
    async with machine.running() as log:
        assert not log.recovery.was_clean_stop
        assert log.recovery.scan_end is ScanEndKind.CLEAN
        assert bodies(log) == FIVE
        assert log.epochs.number == 2
        end = log.marks.visible.value
        handshake = log.followers.handshake(end, 1)
        assert handshake.common_end_physical_offset == end


async def test_power_cut_keeps_what_was_synced() -> None:
    """Messages acknowledged as LOCAL_DISK survive a power cut; a follower that saw more is told to drop it."""
    machine = Machine()
    log = await machine.start()
    await append(log, message(b"synced"), durability=2)
    synced_end = log.chain.max_physical_offset
    await append(log, message(b"lost"), durability=1)
    seen_end = log.chain.max_physical_offset
    await machine.kill(log, nothing_survives)
    async with machine.running() as log:
        assert bodies(log) == [b"synced"]
        await append(log, message(b"other, longer than the lost one"))
        handshake = log.followers.handshake(seen_end, 1)
        assert handshake.common_end_physical_offset == synced_end


async def test_power_cut_that_loses_everything_begins_an_epoch() -> None:
    """A follower of a log that is empty now is told that it has nothing in common with the new log."""
    machine = Machine()
    log = await machine.start()
    await append(log, message(b"lost"))
    seen_end = log.chain.max_physical_offset
    await machine.kill(log, nothing_survives)
    async with machine.running() as log:
        await append(log, message(b"other, longer than the lost one"))
        assert log.epochs.number == 2
        handshake = log.followers.handshake(seen_end, 1)
        assert handshake.common_end_physical_offset == 0


@pytest.mark.parametrize("lost_page", [1, 2, 3, 4])
async def test_power_cut_that_loses_a_page_before_others(lost_page: int) -> None:
    """Data behind a page that a power cut lost was never synced, and is cut off with a copy.

    Pages reach the disk in any order.
    """
    machine = Machine()
    log = await machine.start()
    await append(log, message(b"synced" * 100), durability=2)
    for index in range(8):
        await append(log, message(b"%d" % index * 3_000))
    ends = [found.physical_offset for found in records(log)]
    await machine.kill(log, lambda _path, page: page != lost_page)
    async with machine.running() as log:
        assert log.recovery.scan_end is ScanEndKind.TORN_TAIL
        kept = [found for found in ends[1:] if found <= lost_page * PAGE_SIZE_BYTES]
        assert bodies(log) == [b"synced" * 100, *(b"%d" % index * 3_000 for index in range(len(kept) - 1))]
        assert log.recovery.end_physical_offset == kept[-1]
        assert log.recovery.truncated_bytes > 9_000


@pytest.mark.parametrize(
    "tear",
    [
        pytest.param(lambda data, at: garble(data, at), id="body changed"),
        pytest.param(lambda data, at: data.__setitem__(slice(at + 60, at + 400), bytes(340)), id="second half missing"),
        pytest.param(lambda data, at: data.__setitem__(slice(at, at + 8), bytes(8)), id="head missing"),
        pytest.param(lambda data, at: data.__setitem__(slice(at, at + 4), b"\x7f\xff\xff\xff"), id="size too large"),
        pytest.param(lambda data, at: data.__setitem__(slice(at + 4, at + 8), b"\0\0\0\1"), id="magic wrong"),
        pytest.param(lambda data, at: data.__setitem__(slice(at + 28, at + 36), b"\0" * 7 + b"\1"), id="other place"),
    ],
)
async def test_torn_tail_is_cut_off_and_copied(tear: Callable[[bytearray, int], None]) -> None:
    """Only the torn record is cut; a file keeps its bytes, its place is zeroed, and a new epoch begins."""
    machine = Machine()
    starts = await killed(machine, FIVE)
    data = machine.segment_bytes()
    tear(data, starts[-1])
    torn = bytes(data[starts[-1] :]).rstrip(b"\0")
    async with machine.running() as log:
        assert log.recovery.scan_end is ScanEndKind.TORN_TAIL
        assert log.recovery.truncated_bytes == len(torn)
        copy = DATA_DIR / "reput" / "cut" / f"{starts[-1]:020d}-2"
        assert log.recovery.truncated_copy_path == str(copy)
        assert machine.fs.read(copy) == torn
        assert bodies(log) == FIVE[:-1]
        assert log.epochs.number == 2
        assert not any(machine.segment_bytes()[starts[-1] :])
        assert memoryview((await append(log, message())).queue_offsets).cast("q")[0] == len(FIVE) - 1


@pytest.mark.parametrize("kept_after_inner", [0, 700])
async def test_a_record_in_a_torn_body_is_content(kept_after_inner: int) -> None:
    """A torn record whose body contains a valid record is cut as a torn tail, and the start succeeds."""
    machine = Machine()
    (start,) = await killed(machine, [b"before"])
    body_at = start + record.check_header(machine.segment_bytes(), start).size_bytes + BODY_AT_IPV4
    inner = encoded(body_at + 10, store_time_ms=machine.clock.now_ms(), crc_property=True)
    log = await machine.start()
    at = (await append(log, message(b"y" * 10 + inner + b"x" * 2000))).start_physical_offset
    await machine.kill(log)
    assert at + BODY_AT_IPV4 == body_at
    data = machine.segment_bytes()
    torn_at = body_at + 10 + len(inner) + kept_after_inner
    data[torn_at:] = bytes(len(data) - torn_at)
    async with machine.running() as log:
        assert log.recovery.scan_end is ScanEndKind.TORN_TAIL
        assert bodies(log) == [b"before"]


async def test_a_cut_that_was_interrupted_keeps_the_first_copy() -> None:
    """After a crash in a cut the next start cuts the rest, and the copy of the whole tail stays."""
    machine = Machine()
    starts = await killed(machine, FIVE)
    data = machine.segment_bytes()
    data[starts[-1] :] = b"x" * (SEGMENT_SIZE - starts[-1])
    torn = bytes(data[starts[-1] :])
    machine.fs.file(DATA_DIR / "commitlog" / f"{0:020d}").sync()
    with armed("segment.before_sync", "raise"), pytest.raises(SyncFailed):
        await machine.start()
    machine.fs.crash(lambda _path, page: page is not None and page < 8)
    async with machine.running() as log:
        assert log.recovery.scan_end is ScanEndKind.TORN_TAIL
        assert machine.fs.read(DATA_DIR / "reput" / "cut" / f"{starts[-1]:020d}-2") == torn
        assert log.recovery.truncated_copy_path.endswith(f"{starts[-1]:020d}-3")
        assert bodies(log) == FIVE[:-1]


async def test_recovery_is_idempotent() -> None:
    """After a crash right behind a recovery that cut a tail the next start finds the same log."""
    machine = Machine()
    starts = await killed(machine, FIVE)
    garble(machine.segment_bytes(), starts[-1])
    log = await machine.start()
    first = bodies(log)
    await machine.kill(log, nothing_survives)
    async with machine.running() as log:
        assert bodies(log) == first == FIVE[:-1]
        assert log.recovery.scan_end is ScanEndKind.CLEAN


async def test_blank_without_a_next_segment() -> None:
    """A crash between the blank and the next file keeps the blank, and the log continues in a new segment.

    This is quirk Q15.
    """
    machine = Machine()
    await killed(machine, FIVE)
    data = machine.segment_bytes()
    end = len(bytes(data).rstrip(b"\0"))
    data[end : end + 8] = encode_blank(SEGMENT_SIZE - end)
    async with machine.running() as log:
        assert log.recovery.scan_end is ScanEndKind.CLEAN
        assert log.chain.max_physical_offset == SEGMENT_SIZE
        batch = await append(log, message(b"small"))
        assert batch.start_physical_offset == SEGMENT_SIZE
        assert bodies(log) == [*FIVE, b"small"]


async def test_prepared_zero_file_is_no_part_of_the_log() -> None:
    """A prepared segment without data is removed at the start, and made again when needed."""
    machine = Machine()
    await killed(machine, FIVE)
    machine.fs.create_mapped(DATA_DIR / "commitlog" / f"{SEGMENT_SIZE:020d}", SEGMENT_SIZE)
    async with machine.running() as log:
        assert log.recovery.scan_end is ScanEndKind.CLEAN
        assert len(log.chain.segments) == 1
        assert bodies(log) == FIVE
        await fill(log, 2)


async def test_rubbish_in_the_next_segment_is_a_torn_tail() -> None:
    """Bytes that are no record are cut off and copied at any place behind the end."""
    machine = Machine()
    await killed(machine, FIVE)
    mapped = machine.fs.create_mapped(DATA_DIR / "commitlog" / f"{SEGMENT_SIZE:020d}", SEGMENT_SIZE)
    mapped.buffer[:7] = b"rubbish"
    async with machine.running() as log:
        assert log.recovery.scan_end is ScanEndKind.TORN_TAIL
        assert machine.fs.read(DATA_DIR / "reput" / "cut" / f"{SEGMENT_SIZE:020d}-2") == b"rubbish"
        assert bodies(log) == FIVE


async def test_records_of_an_older_log_do_not_come_back() -> None:
    """A whole record at its right place that is older than its predecessor is stale, and the log ends before it."""
    machine = Machine()
    await killed(machine, FIVE)
    data = machine.segment_bytes()
    end = len(bytes(data).rstrip(b"\0"))
    stale = encoded(end, crc_property=True, store_time_ms=machine.clock.now_ms() - 60_000)
    data[end : end + len(stale)] = stale
    async with machine.running() as log:
        assert log.recovery.scan_end is ScanEndKind.TORN_TAIL
        assert log.recovery.truncated_bytes == len(stale)
        assert bodies(log) == FIVE


async def test_store_time_does_not_go_back_over_a_restart() -> None:
    """If the clock was set back, new records get no older times than the log has."""
    machine = Machine()
    async with machine.running() as log:
        newest = (await append(log)).store_time_ms
    machine.clock.set_now_ms(newest - 100_000)
    async with machine.running() as log:
        assert (await append(log)).store_time_ms == newest


async def test_directory_in_use() -> None:
    """A second process is refused the store."""
    machine = Machine()
    async with machine.running():
        with pytest.raises(StoreLocked):
            await machine.start()
