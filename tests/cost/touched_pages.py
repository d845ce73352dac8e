# SPDX-License-Identifier: Apache-2.0
"""How many pages of some buffers were looked at or written to, by Python, numpy or compiled code.

The processor marks each page that is touched; Linux clears the marks (`/proc/self/clear_refs`) and counts them
(`Referenced` in `/proc/self/smaps`), for each mapping. So a watched buffer is made a mapping of its own, by advice that
has no other effect, and pages are small in a process that imports this. The count is exact but for the part pages at
the two ends of a buffer, which are not counted.
"""

import contextlib
import ctypes
import mmap
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

CLEAR_REFS, SMAPS = Path("/proc/self/clear_refs"), Path("/proc/self/smaps")
CLEAR_ALL_MARKS = "1"
KIB_PER_PAGE = mmap.PAGESIZE // 1024
STRAY_PAGE_COUNT = 2
"""Pages that are marked although nothing looked at them: a processor that prefetches marks pages on its way."""
PR_SET_THP_DISABLE = 41
"""linux/prctl.h."""

_MAPPING = re.compile(r"([0-9a-f]+)-([0-9a-f]+) ")
_LIBC = ctypes.CDLL(None, use_errno=True)
_LIBC.madvise.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)
_LIBC.prctl(PR_SET_THP_DISABLE, 1, 0, 0, 0)


@dataclass(slots=True)
class Touched:
    """Pages that were touched; known when the block is over."""

    page_count: int = 0


@contextlib.contextmanager
def touched_pages(*buffers: memoryview) -> Iterator[Touched]:
    """Count the pages of these buffers that the block touches. Skips the test where the kernel does not tell."""
    ranges = [_whole_pages(buffer) for buffer in buffers]
    _advise(ranges, mmap.MADV_DONTDUMP)
    try:
        _touch_and_clear(buffers[0])
        if _referenced_pages(ranges):
            pytest.skip("this kernel does not clear the marks of touched pages")
        touched = Touched()
        yield touched
        touched.page_count = _referenced_pages(ranges)
    finally:
        _advise(ranges, mmap.MADV_DODUMP)


def _whole_pages(buffer: memoryview) -> tuple[int, int]:
    """Where the whole pages of a buffer are."""
    start = ctypes.addressof(ctypes.c_char.from_buffer(buffer))
    first = -(-start // mmap.PAGESIZE) * mmap.PAGESIZE
    end = (start + len(buffer)) // mmap.PAGESIZE * mmap.PAGESIZE
    assert first < end, "a buffer of less than a page can't be watched"
    return first, end


def _advise(ranges: list[tuple[int, int]], advice: int) -> None:
    for first, end in ranges:
        assert _LIBC.madvise(first, end - first, advice) == 0


def _touch_and_clear(buffer: memoryview) -> None:
    assert len(buffer[len(buffer) // 2 :].tobytes())
    try:
        CLEAR_REFS.write_text(CLEAR_ALL_MARKS)
    except OSError as error:
        pytest.skip(f"this kernel does not clear the marks of touched pages: {error}")


def _referenced_pages(ranges: list[tuple[int, int]]) -> int:
    kib, is_watched = 0, False
    for line in SMAPS.read_text().splitlines():
        if (bounds := _MAPPING.match(line)) is not None:
            start, end = int(bounds[1], 16), int(bounds[2], 16)
            is_watched = any(start < last and first < end for first, last in ranges)
        elif is_watched and line.startswith("Referenced:"):
            kib += int(line.split()[1])
    return kib // KIB_PER_PAGE
