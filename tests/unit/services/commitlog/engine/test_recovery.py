# SPDX-License-Identifier: Apache-2.0
"""Starts after clean stops, kills, power cuts and damage: what is kept, what is cut, what stops the start."""

from collections.abc import Callable

import pytest

from libs.formats import record
from libs.formats.epoch_file import Epoch
from libs.formats.record import encode_blank
from libs.machine.errors import StoreLocked
from libs.machine.failpoints import FailpointRaised, armed
from libs.machine.fs import PAGE_SIZE_BYTES
from libs.machine.memory_fs import nothing_survives
from libs.store import checkpoint_file
from libs.store.errors import SegmentMissing, SegmentSizeWrong, StoreError
from services.commitlog.engine import queue_snapshot
from services.commitlog.engine.log_scan import ScanEndKind
from services.commitlog.errors import LogDamaged
from tests.support.records import encoded
from tests.unit.services.commitlog.support import (
    DATA_DIR,
    SEGMENT_SIZE,
    Machine,
    append,
    bodies,
    fill,
    message,
    records,
)

FIVE = [b"body-%d" % index for index in range(5)]


async def killed(machine: Machine, contents: list[bytes]) -> list[int]:
    """Append messages and die without a sync; the records' physical offsets."""
    log = await machine.start()
    starts = [(await append(log, message(body))).start_physical_offset for body in contents]
    await machine.kill(log)
    return starts


async def test_clean_stop_and_start() -> None:
    """A clean stop leaves no abort file, and the next start goes on where it ended, in the same epoch."""
    machine = Machine()
    async with machine.running() as log:
        await append(log, *(message(body) for body in FIVE))
        assert machine.exists("abort")
    assert not machine.exists("abort")
    async with machine.running() as log:
        assert log.recovery.was_clean_stop
        assert log.recovery.scan_end is ScanEndKind.CLEAN
        assert log.epoch == 1
        batch = await append(log, message(b"next"))
        assert memoryview(batch.queue_offsets).cast("q")[0] == len(FIVE)
        assert bodies(log) == [*FIVE, b"next"]


async def test_kill_keeps_what_was_acknowledged_from_memory() -> None:
    """A killed process loses nothing, and what followers saw stays common history although a new epoch begins."""
    machine = Machine()
    await killed(machine, FIVE)
    assert machine.exists("abort")
    async with machine.running() as log:
        assert not log.recovery.was_clean_stop
        assert log.recovery.scan_end is ScanEndKind.CLEAN
        assert bodies(log) == FIVE
        assert log.epoch == 2
        end = log.confirmed_physical_offset
        handshake = log.handshake(follower_epoch=1, follower_physical_offset=end)
        assert handshake.common_end_physical_offset == end


async def test_power_cut_keeps_what_was_synced() -> None:
    """What was acknowledged as LOCAL_DISK survives a power cut; a follower that saw more is told to drop it."""
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
        handshake = log.handshake(follower_epoch=1, follower_physical_offset=seen_end)
        assert handshake.common_end_physical_offset == synced_end


async def test_power_cut_that_loses_everything_begins_an_epoch() -> None:
    """A follower of a log that is empty now is told that it has nothing in common with the new one."""
    machine = Machine()
    log = await machine.start()
    await append(log, message(b"lost"))
    seen_end = log.chain.max_physical_offset
    await machine.kill(log, nothing_survives)
    async with machine.running() as log:
        await append(log, message(b"other, longer than the lost one"))
        assert log.epoch == 2
        handshake = log.handshake(follower_epoch=1, follower_physical_offset=seen_end)
        assert handshake.common_end_physical_offset == 0


@pytest.mark.parametrize("lost_page", [1, 2, 3, 4])
async def test_power_cut_that_loses_a_page_before_others(lost_page: int) -> None:
    """Pages reach the disk in any order: what lies behind a missing one was never synced, and goes with a copy."""
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


def garble(data: bytearray, position: int) -> None:
    """Flip a bit in the middle of a record's body."""
    data[position + 90] ^= 0x40


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
    """Only the torn record goes; its bytes are kept in a file, the place is clean again, and a new epoch begins."""
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
        assert log.epoch == 2
        assert not any(machine.segment_bytes()[starts[-1] :])
        assert memoryview((await append(log, message())).queue_offsets).cast("q")[0] == len(FIVE) - 1


async def test_a_cut_that_was_interrupted_keeps_the_first_copy() -> None:
    """A start that died while it cleared a tail leaves a part of it; the copy of the whole stays."""
    machine = Machine()
    starts = await killed(machine, FIVE)
    data = machine.segment_bytes()
    data[starts[-1] :] = b"x" * (SEGMENT_SIZE - starts[-1])
    torn = bytes(data[starts[-1] :])
    machine.fs._file(DATA_DIR / "commitlog" / f"{0:020d}").sync()
    with armed("segment.before_sync", "raise"), pytest.raises(FailpointRaised):
        await machine.start()
    machine.fs.crash(lambda _path, page: page is not None and page < 8)
    async with machine.running() as log:
        assert log.recovery.scan_end is ScanEndKind.TORN_TAIL
        assert machine.fs.read(DATA_DIR / "reput" / "cut" / f"{starts[-1]:020d}-2") == torn
        assert log.recovery.truncated_copy_path.endswith(f"{starts[-1]:020d}-3")
        assert bodies(log) == FIVE[:-1]


async def test_recovery_is_idempotent() -> None:
    """A crash right after a recovery that cut a tail finds the same log again."""
    machine = Machine()
    starts = await killed(machine, FIVE)
    garble(machine.segment_bytes(), starts[-1])
    log = await machine.start()
    first = bodies(log)
    await machine.kill(log, nothing_survives)
    async with machine.running() as log:
        assert bodies(log) == first == FIVE[:-1]
        assert log.recovery.scan_end is ScanEndKind.CLEAN


async def test_damage_before_whole_records_stops_the_start() -> None:
    """Records after a bad place are not dropped: the start says where, exits, and changes nothing."""
    machine = Machine()
    starts = await killed(machine, FIVE)
    garble(machine.segment_bytes(), starts[1])
    before = bytes(machine.segment_bytes())
    with pytest.raises(LogDamaged, match=f"00000000000000000000 is damaged at byte {starts[1]}") as caught:
        await machine.start()
    assert caught.value.position == starts[1]
    assert isinstance(caught.value, StoreError)  # one line for the person who starts it, and no traceback
    assert bytes(machine.segment_bytes()) == before
    garble(machine.segment_bytes(), starts[1])
    async with machine.running() as log:  # the lock was given back
        assert bodies(log) == FIVE


async def test_damage_in_an_older_segment_is_found_through_the_next_one() -> None:
    """A bad place whose segment has nothing whole behind it is damage when the next segment has records."""
    machine = Machine()
    log = await machine.start()
    await fill(log, 2, b"x" * 1_000)
    last = records(log)[-2]
    await machine.kill(log)
    if machine.exists("reput/queue_offsets"):  # the roll may have had the time to write one, which tells it sooner
        machine.fs.remove(DATA_DIR / queue_snapshot.SNAPSHOT_FILE)
    assert last.physical_offset < SEGMENT_SIZE
    machine.segment_bytes()[last.physical_offset + 200] ^= 1
    with pytest.raises(LogDamaged, match="whole record follows"):
        await machine.start()


async def test_damage_below_the_synced_end_stops_the_start() -> None:
    """The last record, once synced, is not a torn tail when it goes bad."""
    machine = Machine()
    async with machine.running() as log:
        for body in FIVE:
            batch = await append(log, message(body))
    garble(machine.segment_bytes(), batch.start_physical_offset)
    with pytest.raises(LogDamaged, match="on disk once"):
        await machine.start()
    assert not machine.exists("abort")


async def test_damage_that_only_the_checkpoint_knows_of() -> None:
    """Without a snapshot the checkpoint's time still tells that a newer record was on disk."""
    machine = Machine()
    log = await machine.start()
    await append(log, message(b"first"), durability=2)
    machine.clock.advance(10_000)
    batch = await append(log, message(b"second"), durability=2)
    await log._save_checkpoint()
    await machine.kill(log)
    machine.fs.remove(DATA_DIR / queue_snapshot.SNAPSHOT_FILE)
    garble(machine.segment_bytes(), batch.start_physical_offset)
    with pytest.raises(LogDamaged, match="on disk once"):
        await machine.start()


async def test_missing_segments_are_not_an_empty_log() -> None:
    """A store whose log files vanished does not begin anew at offset 0."""
    machine = Machine()
    async with machine.running() as log:
        await append(log)
    machine.fs.remove(DATA_DIR / "commitlog" / f"{0:020d}")
    with pytest.raises(LogDamaged, match="no file"):
        await machine.start()


async def test_blank_without_a_next_segment() -> None:
    """A crash between the blank and the next file keeps the blank: the log goes on in a new segment (quirk Q15)."""
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
    """A segment that was made ahead and never used disappears at the start, and is made again when needed."""
    machine = Machine()
    await killed(machine, FIVE)
    machine.fs.create_mapped(DATA_DIR / "commitlog" / f"{SEGMENT_SIZE:020d}", SEGMENT_SIZE)
    async with machine.running() as log:
        assert log.recovery.scan_end is ScanEndKind.CLEAN
        assert len(log.chain.segments) == 1
        assert bodies(log) == FIVE
        await fill(log, 2)


async def test_rubbish_in_the_next_segment_is_a_torn_tail() -> None:
    """Bytes that are no record are cut off and copied wherever they lie behind the end."""
    machine = Machine()
    await killed(machine, FIVE)
    mapped = machine.fs.create_mapped(DATA_DIR / "commitlog" / f"{SEGMENT_SIZE:020d}", SEGMENT_SIZE)
    mapped.buffer[:7] = b"rubbish"
    async with machine.running() as log:
        assert log.recovery.scan_end is ScanEndKind.TORN_TAIL
        assert machine.fs.read(DATA_DIR / "reput" / "cut" / f"{SEGMENT_SIZE:020d}-2") == b"rubbish"
        assert bodies(log) == FIVE


async def test_records_of_an_older_log_do_not_come_back() -> None:
    """A whole record of the right place but older than its predecessor is a left-over, not the log."""
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


async def test_a_small_clock_step_is_no_damage() -> None:
    """RocketMQ's store time may step back a little; such a log opens whole."""
    machine = Machine()
    await killed(machine, FIVE)
    data = machine.segment_bytes()
    end = len(bytes(data).rstrip(b"\0"))
    stepped = encoded(end, store_time_ms=machine.clock.now_ms() - 900)
    data[end : end + len(stepped)] = stepped
    async with machine.running() as log:
        assert len(bodies(log)) == len(FIVE) + 1
        assert (await append(log)).store_time_ms == machine.clock.now_ms()


@pytest.mark.parametrize("loss", ["missing", "damaged", "of another log"])
async def test_counters_without_a_snapshot(loss: str) -> None:
    """A lost snapshot costs a full scan and nothing else: counters and segment times come back exactly."""
    machine = Machine()
    async with machine.running() as log:
        await fill(log, 4)
        counters, facts = sorted(log.topics.table.counters()), log.segments.list_from(0, 10)
    path = DATA_DIR / queue_snapshot.SNAPSHOT_FILE
    if loss == "missing":
        machine.fs.remove(path)
    elif loss == "damaged":
        machine.fs.write_atomic(path, machine.fs.read(path)[:-1] + b"?")
    else:
        snapshot = queue_snapshot.QueueSnapshot(5 * SEGMENT_SIZE, 1, [], [])
        queue_snapshot.save(machine.fs, DATA_DIR, snapshot)
    async with machine.running() as log:
        assert log.recovery.scan_start_physical_offset == 0
        assert sorted(log.topics.table.counters()) == counters
        assert log.segments.list_from(0, 10) == facts


async def test_scan_is_bounded_after_a_clean_stop() -> None:
    """A clean start looks at the last three segments only, and knows counters and times of the rest all the same."""
    machine = Machine()
    async with machine.running() as log:
        await fill(log, 6)
        counters, facts = sorted(log.topics.table.counters()), log.segments.list_from(0, 10)
    async with machine.running() as log:
        assert log.recovery.scan_start_physical_offset == 3 * SEGMENT_SIZE
        assert sorted(log.topics.table.counters()) == counters
        assert log.segments.list_from(0, 10) == facts


async def test_scan_is_bounded_by_the_checkpoint_after_a_kill() -> None:
    """An unclean start begins with the segment that was being written at the last sync that the checkpoint knows."""
    machine = Machine()
    log = await machine.start()
    await fill(log, 3)
    machine.clock.advance(60_000)
    await fill(log, 5)
    await append(log, durability=2)
    await log._save_checkpoint()
    await log._save_snapshot()
    machine.clock.advance(60_000)
    await append(log)
    counters = sorted(log.topics.table.counters())
    await machine.kill(log)
    async with machine.running() as log:
        assert log.recovery.scan_start_physical_offset == 2 * SEGMENT_SIZE
        assert sorted(log.topics.table.counters()) == counters


async def test_unreadable_checkpoint_costs_a_full_scan() -> None:
    """A checkpoint that is too short is reported and treated as one that knows nothing."""
    machine = Machine()
    log = await machine.start()
    await fill(log, 3)
    await log._save_snapshot()
    await machine.kill(log)
    machine.fs.write_atomic(DATA_DIR / checkpoint_file.FILE_NAME, b"short")
    async with machine.running() as log:
        assert log.recovery.scan_start_physical_offset == 0


async def test_checkpoint_holds_the_time_of_what_is_synced() -> None:
    """The checkpoint's time is that of a durable record, in RocketMQ's page."""
    machine = Machine()
    log = await machine.start()
    await append(log, durability=2)
    synced_at = machine.clock.now_ms()
    machine.clock.advance(5_000)
    await append(log, durability=1)
    await log._save_checkpoint()
    await machine.kill(log)
    stored = checkpoint_file.load(machine.fs, DATA_DIR / checkpoint_file.FILE_NAME)
    assert stored.commit_log_time_ms == synced_at


async def test_store_time_does_not_go_back_over_a_restart() -> None:
    """A clock that was set back does not give new records older times than the log has."""
    machine = Machine()
    async with machine.running() as log:
        newest = (await append(log)).store_time_ms
    machine.clock.set_now_ms(newest - 100_000)
    async with machine.running() as log:
        assert (await append(log)).store_time_ms == newest


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


async def test_directory_in_use() -> None:
    """Two processes never share a store."""
    machine = Machine()
    async with machine.running():
        with pytest.raises(StoreLocked):
            await machine.start()


async def test_epochs_of_a_store_without_an_epoch_file() -> None:
    """A store that RocketMQ wrote gets epoch 1 for all that it has."""
    machine = Machine()
    async with machine.running() as log:
        await append(log)
    machine.fs.remove(DATA_DIR / "epochFileCheckpoint")
    async with machine.running() as log:
        assert log._store is not None
        assert log._store.epochs.epochs == [Epoch(1, 0)]


async def test_a_log_of_rocketmq_opens() -> None:
    """Records without a CRC property, with IPv6 hosts and of version 2 are part of a log like any other."""
    machine = Machine()
    async with machine.running():
        pass
    data = b""
    for index, version in enumerate((1, 2)):
        data += encoded(len(data), version=version, queue_offset=index, queue_id=0, topic="orders")
    mapped = machine.fs.create_mapped(DATA_DIR / "commitlog" / f"{0:020d}", SEGMENT_SIZE)
    mapped.buffer[: len(data)] = data
    machine.fs.remove(DATA_DIR / queue_snapshot.SNAPSHOT_FILE)
    async with machine.running() as log:
        assert [found.version for found in records(log)] == [1, 2]
        assert record.decode(data).topic == "orders"
        assert log.topics.table.next_queue_offset(b"orders", 0) == 2
