# SPDX-License-Identifier: Apache-2.0
"""The end of a log that a scan finds, for every way in which sectors can be missing or changed."""

import itertools
import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from libs.kernel.append.topic_table import TopicTable
from libs.log import walk as log_walk
from libs.log.end import KnownDurable, ScanEnd, ScanEndKind
from libs.machine.testing.manual_clock import ManualClock
from libs.machine.testing.memory_fs import MemoryFs
from libs.segments.chain import SegmentChain
from services.commitlog.config import CommitLogConfig
from services.commitlog.engine.start.meter import RecoveryMeter
from services.commitlog.engine.start.scan import LogScan
from services.commitlog.engine.write.state import LogState
from services.commitlog.engine.write.writers import WriterTable
from tests.support.records import STORE_TIME_MS, encoded

SECTOR = 512
SECTOR_COUNT = 8
SIZE = 16 * SECTOR
CRC_PROPERTY_SIZE = 20
CONFIG = CommitLogConfig(clock_step_ms_max=1_000)


def tail(seed: int, *, crc_property: bool = True) -> tuple[bytes, list[int]]:
    """Records that fill eight sectors, of texts, zeros and random bytes; where each begins, and where the last ends."""
    chance = random.Random(seed)
    data, bounds = b"", [0]
    while len(data) < (SECTOR_COUNT - 1) * SECTOR:
        kind, size = chance.choice("tzr"), chance.choice((0, 1, 40, 200, 390, 700, 1_500))
        body = {"t": b"text " * size, "z": bytes(size), "r": chance.randbytes(size)}[kind][:size]
        properties = chance.choice((b"", b"TAGS\x01b\x02", b"name\x01" + b"value " * chance.randrange(200) + b"\x02"))
        found = encoded(
            len(data), crc_property=crc_property, body=body, properties=properties, queue_offset=len(bounds) - 1
        )
        if len(data) + len(found) <= SECTOR_COUNT * SECTOR:
            data += found
            bounds.append(len(data))
    return data, bounds


def scan(content: bytes, durable: KnownDurable, **options: int) -> ScanEnd:
    """The end of a log with a single segment."""
    chain = SegmentChain(MemoryFs(), Path("/commitlog"), SIZE).open()
    chain.roll().buffer[: len(content)] = content
    chain.segments[0].advance(SIZE)
    state = LogState(TopicTable(), WriterTable(1, 1, 1), **options)
    return LogScan(chain, state, durable, RecoveryMeter(ManualClock()), CONFIG).run(0)


def losses(data: bytes, old_end: int) -> Iterator[bytes]:
    """The disk after a power cut, for every set of missing sectors: such a sector has its old content."""
    old = data[:old_end].ljust(SIZE, b"\0")
    new = data.ljust(SIZE, b"\0")
    for lost in range(1 << SECTOR_COUNT):
        sectors = [(old if lost >> index & 1 else new)[index * SECTOR : (index + 1) * SECTOR] for index in range(16)]
        yield b"".join(sectors)


@pytest.mark.parametrize("crc_property", [True, False])
@pytest.mark.parametrize("seed", range(4))
def test_every_set_of_missing_sectors(seed: int, *, crc_property: bool) -> None:
    """The log ends at the first sector that a power cut lost above the synced end, and no loss is damage.

    Data that the kernel wrote back before may end at any byte.
    """
    data, bounds = tail(seed, crc_property=crc_property)
    chance = random.Random(seed)
    old_ends = [0, chance.choice(bounds), *(chance.randrange(len(data)) for _ in range(2)), 3 * SECTOR - 1]
    for old_end in old_ends:
        synced = max(bound for bound in bounds if bound <= old_end)
        for content in losses(data, old_end):
            whole = next((b for b, e in itertools.pairwise(bounds) if content[b:e] != data[b:e]), len(data))
            end = scan(content, KnownDurable(physical_offset=synced))
            assert end.physical_offset == whole, (seed, old_end, end)
            expected = ScanEndKind.TORN_TAIL if any(content[whole:]) else ScanEndKind.CLEAN
            assert end.kind is expected, (seed, old_end, end)


@pytest.mark.parametrize("seed", range(2))
def test_a_synced_record_is_never_cut(seed: int) -> None:
    """If a byte is missing below the synced end, the scan reports damage."""
    data, bounds = tail(seed)
    synced = bounds[len(bounds) // 2]
    for content in losses(data, 0):
        if content[:synced] != data[:synced]:
            assert scan(content, KnownDurable(physical_offset=synced)).kind is ScanEndKind.DAMAGED


def test_changed_bytes_before_whole_records_are_damage() -> None:
    """Changed bytes before whole records are damage above the synced end, too.

    An exception is a sector of the record that ends in zeros: a power cut changes no bytes.
    """
    data = b""
    for index in range(8):
        data += encoded(len(data), crc_property=True, body=b"text " * 80, queue_offset=index)
    record_size = len(data) // 8
    for position in range(2 * record_size, 3 * record_size - CRC_PROPERTY_SIZE, 7):
        changed = bytearray(data)
        changed[position] ^= 0x11
        end = scan(bytes(changed), KnownDurable())
        assert end == ScanEnd(ScanEndKind.DAMAGED, 2 * record_size, end.reason), position


@pytest.mark.parametrize("window", [1, 100, 512, 700, SIZE])
def test_windows_do_not_matter(window: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Records that are longer than the window of a read are found all the same."""
    monkeypatch.setattr(log_walk, "WINDOW_BYTES", window)
    data, bounds = tail(1)
    assert scan(data, KnownDurable()) == ScanEnd(ScanEndKind.CLEAN, bounds[-1], "no record starts here")


def test_the_end_of_a_foreign_log_is_not_told_by_its_times() -> None:
    """In a log of RocketMQ a record older than its predecessor counts, as it does for RocketMQ."""
    times = [STORE_TIME_MS, STORE_TIME_MS - 60_000, STORE_TIME_MS - 59_000, STORE_TIME_MS + 5]
    data, bounds = b"", [0]
    for index, time_ms in enumerate(times):
        data += encoded(len(data), store_time_ms=time_ms, queue_offset=index)
        bounds.append(len(data))
    foreign = KnownDurable(is_foreign=True)
    assert scan(data, foreign).physical_offset == len(data)
    assert scan(data, KnownDurable(physical_offset=bounds[3])).physical_offset == len(data), "a later start"
    own = scan(data[: bounds[3]], KnownDurable())
    assert own == ScanEnd(ScanEndKind.TORN_TAIL, bounds[1], "a record is older than the one before it")
