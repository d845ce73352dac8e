# SPDX-License-Identifier: Apache-2.0
"""The search for data behind the end of a scan."""

from pathlib import Path

import pytest

from libs.log import tail_search
from libs.log.tail_search import content_end, find_record, first_store_time_ms, has_lost_sector
from libs.machine.fs import Fs
from libs.machine.posix_fs import PosixFs
from libs.machine.testing.memory_fs import MemoryFs
from libs.segments.chain import SegmentChain
from libs.segments.segment import Segment
from tests.support.records import STORE_TIME_MS, encoded
from tests.support.watched_buffer import WatchedBuffer

WINDOW = 256


@pytest.fixture(autouse=True)
def small_windows(monkeypatch: pytest.MonkeyPatch) -> None:
    """Windows that a record does not fit into, so that a record meets every border."""
    monkeypatch.setattr(tail_search, "WINDOW_BYTES", WINDOW)


def segment_of(fs: Fs, directory: Path, size_bytes: int) -> Segment:
    """An empty segment."""
    return SegmentChain(fs, directory, size_bytes).open().roll()


@pytest.mark.parametrize("last", [None, 0, 1, WINDOW - 1, WINDOW, 3 * WINDOW - 1, 1000])
@pytest.mark.parametrize("start", [0, 1, 700])
def test_content_end(last: int | None, start: int) -> None:
    """The end is behind the last byte that is not zero, or the start if there is none."""
    segment = segment_of(MemoryFs(), Path("/s"), 1001)
    if last is not None:
        segment.buffer[last] = 1
    expected = start if last is None or last < start else last + 1
    assert content_end(segment, start) == expected


def test_content_end_looks_only_at_what_was_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Most of an active segment was never written; finding its end does not read that."""
    segment = segment_of(PosixFs(), tmp_path / "s", 64 << 20)
    segment.buffer[5_000] = segment.buffer[40 << 20] = 1
    watched = WatchedBuffer(segment.buffer)
    monkeypatch.setattr(Segment, "buffer", watched)
    assert content_end(segment, 1_000) == (40 << 20) + 1
    assert watched.looked_at_bytes < 16 << 20
    segment.close()


@pytest.mark.parametrize("position", range(2 * WINDOW - 8, 2 * WINDOW + 4))
def test_a_record_is_found_wherever_it_begins(position: int) -> None:
    """A record is found at each position, also when its magic lies across the border of two windows."""
    record = encoded(7_000 + position)
    buffer = memoryview(bytearray(position) + record + bytes(50))
    found = find_record(buffer, 3, len(buffer), base_physical_offset=7_000, store_time_ms_min=0)
    assert found == position


@pytest.mark.parametrize(
    ("base", "flip", "time_min"),
    [
        pytest.param(1, None, 0, id="of another place"),
        pytest.param(0, 100, 0, id="damaged"),
        pytest.param(0, None, STORE_TIME_MS + 1, id="older than the log"),
    ],
)
def test_what_is_no_record_of_this_log(base: int, flip: int | None, time_min: int) -> None:
    """A record counts only if it is whole, belongs to the place, and is not left over."""
    record = bytearray(encoded(600, crc_property=True))
    if flip is not None:
        record[flip] ^= 1
    buffer = memoryview(bytearray(600) + record)
    assert find_record(buffer, 0, len(buffer), base_physical_offset=base, store_time_ms_min=time_min) is None


def test_a_record_before_the_start_does_not_count() -> None:
    """Only a record behind the place where the scan stopped is evidence."""
    buffer = memoryview(encoded(0) + bytes(300))
    assert find_record(buffer, 1, len(buffer), base_physical_offset=0, store_time_ms_min=0) is None


@pytest.mark.parametrize(
    ("start", "zeros", "is_lost"),
    [
        pytest.param(100, (512, 1_024), True, id="a sector"),
        pytest.param(100, (960, 1_024), True, id="the end of a sector"),
        pytest.param(100, (1_023, 1_024), True, id="the last byte of a sector"),
        pytest.param(100, (900, 1_023), False, id="not up to the end"),
        pytest.param(300, (300, 512), True, id="the record's beginning"),
        pytest.param(508, (508, 512), True, id="the record's size"),
        pytest.param(509, (509, 512), True, id="a part of the size"),
        pytest.param(100, (1_599, 2_048), True, id="the record's last byte and what follows"),
        pytest.param(100, (1_600, 2_048), False, id="only what follows"),
        pytest.param(100, (2_048, 2_560), False, id="something else"),
    ],
)
def test_lost_sector(start: int, zeros: tuple[int, int], is_lost: bool) -> None:
    """Only zeros of the record, up to the end of a sector, show a missing write."""
    buffer = bytearray(b"x" * 3_000)
    buffer[start : start + 4] = (1_600 - start).to_bytes(4, "big")
    buffer[zeros[0] : zeros[1]] = bytes(zeros[1] - zeros[0])
    assert has_lost_sector(memoryview(buffer), start, 2_600) is is_lost


def test_nothing_is_lost_where_something_else_begins() -> None:
    """A sector that holds the next whole record was written."""
    buffer = bytearray(b"x" * 200) + bytes(312)
    buffer[100:104] = (100).to_bytes(4, "big")
    assert not has_lost_sector(memoryview(buffer), 100, 300)


def test_first_store_time() -> None:
    """A segment's first record has the segment's first store time; an empty or damaged segment has none."""
    segment = segment_of(MemoryFs(), Path("/s"), 1_000)
    assert first_store_time_ms(segment) is None
    for content, expected in ((encoded(0), STORE_TIME_MS), (encoded(0, body=b"x" * 900)[:1_000], None)):
        segment.buffer[: len(content)] = content
        assert first_store_time_ms(segment) == expected
    segment.buffer[28:36] = (5_000).to_bytes(8, "big")
    assert first_store_time_ms(segment) is None


@pytest.mark.parametrize(("shared_bytes", "is_lost"), [(1, True), (2, True), (3, False), (4, False)])
def test_the_zeros_of_the_next_size_may_be_missing_too(shared_bytes: int, is_lost: bool) -> None:
    """A size below 65,536 begins with two zeros; its third byte shows that the sector was written."""
    end = 1_024 - shared_bytes
    buffer = bytearray(b"x" * end + (512).to_bytes(4, "big") + b"x" * 508)
    buffer[100:104] = (end - 100 - 20).to_bytes(4, "big")
    buffer[512:end] = bytes(end - 512)
    assert has_lost_sector(memoryview(buffer), 100, end) is is_lost


def test_a_record_may_end_in_zeros() -> None:
    """A record without properties ends in zeros and is still found.

    The search ends at the last byte that is not zero, and the record ends behind it.
    """
    record = encoded(properties=b"")
    assert record.endswith(bytes(2))
    fs, path = MemoryFs(), Path("/s")
    segment = segment_of(fs, path, 1_000)
    segment.buffer[: len(record)] = record
    end = content_end(segment, 0)
    assert end < len(record)
    assert find_record(segment.buffer, 0, end, base_physical_offset=0, store_time_ms_min=0) == 0


@pytest.mark.parametrize("left", [8, 9, 500])
def test_a_blank_closes_a_segment(left: int) -> None:
    """A blank that reaches to the end of the segment is found if the caller asks for blanks."""
    blank = left.to_bytes(4) + b"\xcb\xd4\x31\x94" + bytes(left - 8)
    for more, expected in ((b"", 700), (b"x", None)):
        buffer = memoryview(bytes(700) + blank + more)
        found = [
            find_record(buffer, 0, len(buffer), base_physical_offset=0, store_time_ms_min=0, or_blank=or_blank)
            for or_blank in (False, True)
        ]
        assert found == [None, expected]


@pytest.mark.parametrize(("tail", "is_lost"), [(b"\x01\x01", False), (bytes(2), True)])
def test_a_buffer_may_end_before_a_size_does(tail: bytes, is_lost: bool) -> None:
    """A rest with fewer bytes than the size field of a record is checked as well."""
    buffer = memoryview(encoded(0) + tail)
    assert has_lost_sector(buffer, len(buffer) - len(tail), len(buffer)) is is_lost
