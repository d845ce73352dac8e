# SPDX-License-Identifier: Apache-2.0
"""The end of a log that a scan finds, for every way in which sectors can be missing or changed."""

import pytest

from libs.log import walk as log_walk
from libs.log.end import KnownDurable, ScanEnd, ScanEndKind
from tests.support.records import STORE_TIME_MS, encoded
from tests.support.scanned_logs import SECTOR, SIZE, scan, tail

CRC_PROPERTY_SIZE = 20


@pytest.mark.parametrize("lost", [0, 3])
def test_a_missing_sector(lost: int) -> None:
    """The log ends before the record of a missing sector, and a record below the synced end is damaged instead."""
    data, bounds = tail(0)
    content = data[: lost * SECTOR] + bytes(SECTOR) + data[(lost + 1) * SECTOR :]
    whole = max(bound for bound in bounds if content[:bound] == data[:bound])
    end = scan(content, KnownDurable())
    assert (end.kind, end.physical_offset) == (ScanEndKind.TORN_TAIL, whole)
    assert scan(content, KnownDurable(physical_offset=len(data))).kind is ScanEndKind.DAMAGED


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
