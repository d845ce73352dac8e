# SPDX-License-Identifier: Apache-2.0
"""Starts on stores that RocketMQ wrote: no file of Reput's, only the log and RocketMQ's files beside it."""

import pytest
from msgspec.structs import replace

from libs.formats import store_layout
from libs.formats.epoch import Epoch
from libs.formats.records import record
from libs.formats.records.record import encode_blank
from libs.log.end import ScanEndKind
from libs.log.state import small_files
from tests.support.commitlog import (
    DATA_DIR,
    SEGMENT_SIZE,
    Machine,
    append,
    bodies,
    fill,
    killed,
    message,
    records,
)
from tests.support.records import encoded

FIVE = [b"body-%d" % index for index in range(5)]


async def test_epochs_of_a_store_without_an_epoch_file() -> None:
    """All records of a store that RocketMQ wrote get epoch 1."""
    machine = Machine()
    async with machine.running() as log:
        await append(log)
    machine.fs.remove(DATA_DIR / "epochFileCheckpoint")
    async with machine.running() as log:
        assert log.epochs.epochs == [Epoch(1, 0)]


async def test_a_log_of_rocketmq_opens() -> None:
    """Records without a CRC property, with IPv6 hosts and of version 2 are accepted."""
    machine = Machine()
    async with machine.running():
        pass
    data = b""
    for index, version in enumerate((1, 2)):
        data += encoded(len(data), version=version, queue_offset=index, queue_id=0, topic="orders")
    mapped = machine.fs.create_mapped(DATA_DIR / "commitlog" / f"{0:020d}", SEGMENT_SIZE)
    mapped.buffer[: len(data)] = data
    machine.fs.remove(DATA_DIR / store_layout.QUEUE_SNAPSHOT)
    async with machine.running() as log:
        assert [found.version for found in records(log)] == [1, 2]
        assert record.decode(data).topic == "orders"
        assert log.topics.table.next_queue_offset(b"orders", 0) == 2


async def test_a_small_clock_step_is_no_damage() -> None:
    """A log of RocketMQ whose store time steps back a little opens whole."""
    machine = Machine()
    await killed(machine, FIVE)
    data = machine.segment_bytes()
    end = len(bytes(data).rstrip(b"\0"))
    stepped = encoded(end, store_time_ms=machine.clock.now_ms() - 900)
    data[end : end + len(stepped)] = stepped
    async with machine.running() as log:
        assert len(bodies(log)) == len(FIVE) + 1
        assert (await append(log)).store_time_ms == machine.clock.now_ms()


def write_store(machine: Machine, *, segment_count: int, last_count: int, step_ms: int = 1) -> list[int]:
    """Files as RocketMQ leaves them: full segments closed by blanks, `last_count` records in the last segment.

    The records have no CRC property, and there is no file of Reput's. Returns the records' physical offsets; queue 0 of
    `orders`, 30 to 31 in a segment.
    """
    commit_log = DATA_DIR / "commitlog"
    machine.fs.make_directory(commit_log)
    starts: list[int] = []
    for index in range(segment_count):
        base, position, count = index * SEGMENT_SIZE, 0, 0
        buffer = machine.fs.create_mapped(commit_log / f"{base:020d}", SEGMENT_SIZE).buffer
        while index < segment_count - 1 or count < last_count:
            time_ms = machine.clock.now_ms() + step_ms * len(starts)
            made = encoded(
                base + position,
                topic="orders",
                queue_id=0,
                queue_offset=len(starts),
                body=b"x" * 2_000,
                store_time_ms=time_ms,
            )
            if position + len(made) + 8 > SEGMENT_SIZE:
                buffer[position : position + 8] = encode_blank(SEGMENT_SIZE - position)
                break
            buffer[position : position + len(made)] = made
            starts.append(base + position)
            position, count = position + len(made), count + 1
    machine.clock.advance(step_ms * len(starts) if step_ms > 0 else 0)
    return starts


@pytest.mark.parametrize("is_aborted", [False, True])
@pytest.mark.parametrize("zero_file_count", [0, 1, 2])
async def test_a_store_of_several_segments(*, is_aborted: bool, zero_file_count: int) -> None:
    """The start scans the whole log; files allocated ahead are removed; counters and times are the log's."""
    machine = Machine()
    starts = write_store(machine, segment_count=3, last_count=5)
    for index in range(zero_file_count):
        machine.fs.create_mapped(DATA_DIR / "commitlog" / f"{(3 + index) * SEGMENT_SIZE:020d}", SEGMENT_SIZE)
    if is_aborted:
        machine.fs.append(DATA_DIR / "abort", b"4711")
    async with machine.running() as log:
        assert log.recovery.was_clean_stop is not is_aborted
        assert log.recovery.scan_end is ScanEndKind.CLEAN
        assert log.recovery.scan_start_physical_offset == 0
        assert log.recovery.scanned_record_count == len(starts)
        assert [found.physical_offset for found in records(log)] == starts
        assert len(log.chain.segments) == 3
        assert all(facts.first_store_time_ms for facts in log.segments.list_from(0, 10))
        batch = await append(log, message(b"next"))
        assert memoryview(batch.queue_offsets).cast("q")[0] == len(starts)
        assert bodies(log)[-1] == b"next"


async def test_a_store_whose_last_file_is_closed() -> None:
    """A blank without a next file stays, and the log continues in a new segment."""
    machine = Machine()
    starts = write_store(machine, segment_count=3, last_count=0)
    machine.fs.remove(DATA_DIR / "commitlog" / f"{2 * SEGMENT_SIZE:020d}")
    async with machine.running() as log:
        assert log.chain.max_physical_offset == 2 * SEGMENT_SIZE
        assert (await append(log)).start_physical_offset == 2 * SEGMENT_SIZE
        assert len(records(log)) == len(starts) + 1


async def test_a_store_whose_last_file_is_empty() -> None:
    """An empty last file, as a crash of RocketMQ leaves it, is ignored."""
    machine = Machine()
    starts = write_store(machine, segment_count=2, last_count=3)
    machine.fs.append(DATA_DIR / "commitlog" / f"{2 * SEGMENT_SIZE:020d}", b"")
    async with machine.running() as log:
        assert len(records(log)) == len(starts)
        await fill(log, 3)


async def test_a_torn_store() -> None:
    """A torn record is cut with a copy, and all records before it stay."""
    machine = Machine()
    starts = write_store(machine, segment_count=2, last_count=3)
    machine.fs.append(DATA_DIR / "abort", b"4711")
    machine.segment_bytes(SEGMENT_SIZE)[starts[-1] - SEGMENT_SIZE + 200 : starts[-1] - SEGMENT_SIZE + 900] = bytes(700)
    async with machine.running() as log:
        assert log.recovery.scan_end is ScanEndKind.TORN_TAIL
        assert [found.physical_offset for found in records(log)] == starts[:-1]
        assert log.epochs.epochs == [Epoch(1, 0), Epoch(2, starts[-1])]


async def test_a_clock_that_stepped_back() -> None:
    """Records of RocketMQ after a step back of the clock are never cut, at no later start."""
    machine = Machine()
    starts = write_store(machine, segment_count=2, last_count=3, step_ms=-5_000)
    async with machine.running() as log:
        assert log.recovery.scan_end is ScanEndKind.CLEAN
        assert len(records(log)) == len(starts)
        await append(log, message(b"own"))
    log = await machine.start()
    await append(log, message(b"own, too"))
    await machine.kill(log)
    async with machine.running() as log:
        assert not log.recovery.was_clean_stop
        assert len(records(log)) == len(starts) + 2


async def test_rocketmq_goes_on_where_reput_stopped() -> None:
    """After RocketMQ has written, the checkpoint of Reput promises nothing; RocketMQ's records count, old or not."""
    machine = Machine()
    async with machine.running() as log:
        await append(log)
        end, checkpoint = log.chain.max_physical_offset, log.checkpoint.value
    newer = small_files.load_checkpoint(machine.fs, DATA_DIR)
    assert newer.durable_physical_offset == end
    made = encoded(end, topic="orders", queue_id=0, queue_offset=1, store_time_ms=machine.clock.now_ms() - 60_000)
    machine.segment_bytes()[end : end + len(made)] = made
    rewritten = replace(newer, commit_log_time_ms=checkpoint.commit_log_time_ms - 60_000)
    small_files.save_checkpoint(machine.fs, DATA_DIR, rewritten)
    async with machine.running() as log:
        assert log.recovery.scan_end is ScanEndKind.CLEAN
        assert [found.queue_offset for found in records(log)] == [0, 1]
