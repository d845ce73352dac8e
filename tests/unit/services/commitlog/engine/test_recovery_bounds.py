# SPDX-License-Identifier: Apache-2.0
"""The bytes that a start reads, and the reports of its progress."""

from pathlib import Path

import pytest
from msgspec.structs import replace

from libs.formats import store_layout
from libs.formats.store_layout import file_name
from libs.log.files import MappedLogFile
from libs.log.state import small_files
from libs.log.tail_search import LogFile
from libs.machine.fs import PAGE_SIZE_BYTES
from libs.machine.testing.manual_clock import ManualClock
from libs.machine.testing.memory_fs import MemoryFs, MemoryMappedFile
from services.commitlog.engine.keep import queue_snapshot
from services.commitlog.engine.start.meter import RecoveryMeter
from tests.support.commitlog import (
    DATA_DIR,
    SEGMENT_SIZE,
    Machine,
    append,
    fill,
    message,
)


async def test_scan_is_bounded_after_a_clean_stop() -> None:
    """A clean start scans only the last three segments, and has the counters and times of all."""
    machine = Machine()
    async with machine.running() as log:
        await fill(log, 6)
        counters, facts = sorted(log.topics.table.counters()), log.segments.list_from(0, 10)
    async with machine.running() as log:
        assert log.recovery.scan_start_physical_offset == 3 * SEGMENT_SIZE
        assert sorted(log.topics.table.counters()) == counters
        assert log.segments.list_from(0, 10) == facts


@pytest.mark.parametrize("has_offset", [True, False])
async def test_scan_is_bounded_by_the_checkpoint_after_a_kill(*, has_offset: bool) -> None:
    """An unclean start begins with the segment of the checkpoint's last sync.

    Without the offset of that sync its time decides, with a margin.
    """
    machine = Machine()
    log = await machine.start()
    await fill(log, 3)
    machine.clock.advance(60_000)
    await fill(log, 5)
    await append(log, durability=2)
    await log.checkpoint.save()
    await log.snapshot.save()
    machine.clock.advance(60_000)
    await append(log)
    counters = sorted(log.topics.table.counters())
    await machine.kill(log)
    if not has_offset:
        known = replace(small_files.load_checkpoint(machine.fs, DATA_DIR), flushed_physical_offset=0, flushed_time_ms=0)
        small_files.save_checkpoint(machine.fs, DATA_DIR, known)
    async with machine.running() as log:
        assert log.recovery.scan_start_physical_offset == (4 if has_offset else 2) * SEGMENT_SIZE
        assert sorted(log.topics.table.counters()) == counters


async def test_unreadable_checkpoint_costs_a_full_scan() -> None:
    """A checkpoint that is too short is reported and causes a full scan."""
    machine = Machine()
    log = await machine.start()
    await fill(log, 3)
    await log.snapshot.save()
    await machine.kill(log)
    machine.fs.write_atomic(DATA_DIR / store_layout.CHECKPOINT, b"short")
    async with machine.running() as log:
        assert log.recovery.scan_start_physical_offset == 0


async def test_checkpoint_holds_the_time_of_what_is_synced() -> None:
    """The checkpoint's time is the time of a durable record, in RocketMQ's page."""
    machine = Machine()
    log = await machine.start()
    await append(log, durability=2)
    synced_at = machine.clock.now_ms()
    machine.clock.advance(5_000)
    await append(log, durability=1)
    await log.checkpoint.save()
    await machine.kill(log)
    stored = small_files.load_checkpoint(machine.fs, DATA_DIR)
    assert stored.commit_log_time_ms == synced_at


@pytest.mark.parametrize("loss", ["missing", "damaged", "of another log"])
async def test_counters_without_a_snapshot(loss: str) -> None:
    """Without a snapshot a full scan restores the exact counters and segment times."""
    machine = Machine()
    async with machine.running() as log:
        await fill(log, 4)
        counters, facts = sorted(log.topics.table.counters()), log.segments.list_from(0, 10)
    path = DATA_DIR / store_layout.QUEUE_SNAPSHOT
    if loss == "missing":
        machine.fs.remove(path)
    elif loss == "damaged":
        machine.fs.write_atomic(path, machine.fs.read(path)[:-1] + b"?")
    else:
        snapshot = queue_snapshot.QueueSnapshot(5 * SEGMENT_SIZE, 1, [], [])
        queue_snapshot.save(machine.fs, DATA_DIR, snapshot, iter(()))
    async with machine.running() as log:
        assert log.recovery.scan_start_physical_offset == 0
        assert sorted(log.topics.table.counters()) == counters
        assert log.segments.list_from(0, 10) == facts


async def grown(segment_count: int) -> Machine:
    """A store of so many segments that died a few records past its checkpoint and snapshot."""
    machine = Machine()
    log = await machine.start()
    while len(log.chain.segments) < segment_count:
        await append(log, *(message(bytes(8_000)) for _ in range(7)))
        machine.clock.advance(10_000)
    await append(log, durability=2)
    await log.checkpoint.save()
    await log.snapshot.save()
    for _ in range(5):
        await append(log)
    await machine.kill(log)
    return machine


async def test_an_unclean_start_reads_what_is_past_the_checkpoint(monkeypatch: pytest.MonkeyPatch) -> None:
    """The bytes and records that a start reads do not grow with the store."""
    healthy, read_bytes = MemoryMappedFile.check_readable, 0

    def check_readable(mapped: MemoryMappedFile, position: int, size_bytes: int) -> None:
        nonlocal read_bytes
        read_bytes += size_bytes
        healthy(mapped, position, size_bytes)

    machines = [await grown(count) for count in (3, 30)]
    monkeypatch.setattr(MemoryMappedFile, "check_readable", check_readable)
    costs = []
    for machine in machines:
        read_bytes = 0
        async with machine.running() as log:
            assert not log.recovery.was_clean_stop
            costs.append((log.recovery.scanned_record_count, machine.process(log).meter.scanned_bytes, read_bytes))
    assert costs[0] == costs[1]
    assert costs[0][2] < 4 * SEGMENT_SIZE


async def test_progress_of_a_start(monkeypatch: pytest.MonkeyPatch) -> None:
    """The scan reports its progress while it runs; at its end all bytes are scanned."""
    machine = await grown(4)
    machine.fs.remove(DATA_DIR / store_layout.QUEUE_SNAPSHOT)
    seen: list[tuple[int, int, int]] = []
    advance = RecoveryMeter.advance

    def watched(meter: RecoveryMeter, file: LogFile, size_bytes: int) -> None:
        advance(meter, file, size_bytes)
        seen.append((meter.segment_number, meter.scanned_bytes, meter.target_bytes))

    monkeypatch.setattr(RecoveryMeter, "advance", watched)
    async with machine.running() as log:
        assert machine.process(log).meter.segment_count == 4
        data_bytes = len(bytes(machine.segment_bytes(3 * SEGMENT_SIZE)).rstrip(b"\0"))
    assert [number for number, _, _ in seen] == [1, 2, 3, 4]
    assert [scanned for _, scanned, _ in seen] == [SEGMENT_SIZE * number for number in (1, 2, 3, 4)]
    assert 0 <= seen[0][2] - (3 * SEGMENT_SIZE + data_bytes) < PAGE_SIZE_BYTES


def test_lines_of_progress(caplog: pytest.LogCaptureFixture) -> None:
    """Progress is logged at most once a second, from the first second on: segment, share, bytes and time left."""
    clock = ManualClock()
    meter = RecoveryMeter(clock)
    meter.begin(segment_count=4, target_bytes=400 << 20)
    files = [MappedLogFile(MemoryFs(), Path(file_name(base)), 100 << 20) for base in range(4)]
    with caplog.at_level("INFO"):
        for step in range(16):
            clock.advance(250)
            meter.advance(files[step // 4], 25 << 20)
    lines = [record.message for record in caplog.records]
    assert lines == [
        "recovering: segment 1 of 4, 25 %, 100 of about 400 MiB, about 3 s left",
        "recovering: segment 2 of 4, 50 %, 200 of about 400 MiB, about 2 s left",
        "recovering: segment 3 of 4, 75 %, 300 of about 400 MiB, about 1 s left",
        "recovering: segment 4 of 4, 100 %, 400 of about 400 MiB, about 0 s left",
    ]
