# SPDX-License-Identifier: Apache-2.0
"""What lies behind the place where a scan of the log stopped: nothing, rubbish, or records that were whole once.

Works in windows and leaves out what was never written, so that a mostly empty segment of a gigabyte costs little.
"""

from libs.formats.limits import RECORD_SIZE_BYTES_MIN
from libs.formats.record import LONG as TIME
from libs.formats.record import MAGIC_AT, check_header
from libs.kernel import scan_cy
from libs.store.segment import Segment

WINDOW_BYTES = 1 << 20
_ZEROS = bytes(WINDOW_BYTES)
_MAGIC_PREFIX = bytes.fromhex("daa320")  # both versions of the magic begin so


def content_end(segment: Segment, start: int) -> int:
    """Position behind the last byte from `start` on that is not zero; `start` if there is none."""
    buffer = segment.buffer
    for range_start, range_end in reversed(segment.data_ranges(start)):
        for window_end in range(range_end, range_start, -WINDOW_BYTES):
            window_start = max(window_end - WINDOW_BYTES, range_start)
            window = bytes(buffer[window_start:window_end])
            if window != _ZEROS[: len(window)]:
                return window_start + len(window.rstrip(b"\0"))
    return start


def find_record(
    buffer: memoryview, start: int, end: int, *, base_physical_offset: int, store_time_ms_min: int
) -> int | None:
    """Position of the first whole record at or after `start` that belongs where it lies; None if there is none.

    Whole means: magic, lengths, checksums and the stored physical offset are right, and the record is not older than
    `store_time_ms_min`, which tells it from one that an older log left behind.
    """
    window_start = start
    while window_start < end:
        window_end = min(window_start + WINDOW_BYTES, end)
        window = bytes(buffer[window_start : min(window_end + len(_MAGIC_PREFIX) - 1, end)])
        at = window.find(_MAGIC_PREFIX)
        while at >= 0:
            position = window_start + at - MAGIC_AT
            if position >= start and _is_record(buffer, position, end, base_physical_offset, store_time_ms_min):
                return position
            at = window.find(_MAGIC_PREFIX, at + 1)
        window_start = window_end
    return None


def first_store_time_ms(buffer: memoryview, base_physical_offset: int) -> int | None:
    """Store time of a segment's first record; None if there is no whole record at its start."""
    if scan_cy.check_record(buffer, 0, len(buffer), base_physical_offset, True) <= 0:
        return None
    return _store_time_ms(buffer, 0)


def _is_record(buffer: memoryview, position: int, end: int, base_physical_offset: int, store_time_ms_min: int) -> bool:
    if end - position < RECORD_SIZE_BYTES_MIN:
        return False
    if scan_cy.check_record(buffer, position, end, base_physical_offset, True) <= 0:
        return False
    return _store_time_ms(buffer, position) >= store_time_ms_min


def _store_time_ms(buffer: memoryview, position: int) -> int:
    return int(TIME.unpack_from(buffer, check_header(buffer, position).store_time_at)[0])
