# SPDX-License-Identifier: Apache-2.0
"""How glibc's malloc keeps memory for the next large message, and gives it back when there is none.

Blocks below MMAP_THRESHOLD_BYTES are kept when they are freed, because mapping and unmapping memory for each chunk of a
mebibyte halves their rate. Small blocks that live on between large ones hold them in the heap, so the heap's end does
not shrink by itself: a thread of its own looks now and then, and gives back what is free while the process is idle.
Nothing here has an effect where libc is another one.
"""

import contextlib
import ctypes
import resource
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple, Self

MMAP_THRESHOLD_BYTES = 16 << 20
"""Larger blocks are mapped, and unmapped when they are freed. The largest answers, of 8 MiB, are not: mapping each of
them anew took a quarter of the rate of those who read."""

ARENA_COUNT_MAX = 2
"""One for the loop's thread and one for all others. malloc_trim leaves the end of each but the first as it is: gRPC's
threads had four and more, each with tens of mebibytes that nobody used."""

TRIM_THRESHOLD_BYTES = 64 << 20
TOP_PAD_BYTES = 4 << 20
"""The end of an arena shrinks when so much of it is free, and grows by so much."""

LOOK_INTERVAL_S = 5.0

GROWN_BYTES_MIN = 16 << 20
"""Less is not worth it: giving back holds the heap's lock, about 10 ms for 100 MiB."""

IDLE_SHARE = 0.5
"""The process is idle while it uses less than this part of one core."""

M_TRIM_THRESHOLD, M_TOP_PAD, M_MMAP_THRESHOLD, M_ARENA_MAX = -1, -2, -3, -8  # malloc.h


class _Mallinfo(ctypes.Structure):
    """struct mallinfo2."""

    _fields_ = [
        (name, ctypes.c_size_t)
        for name in (
            "arena", "ordblks", "smblks", "hblks", "hblkhd", "usmblks", "fsmblks", "uordblks", "fordblks", "keepcost",
        )
    ]  # fmt: skip


_libc = ctypes.CDLL(None)


def tune() -> None:
    """Set the thresholds of the process."""
    mallopt = getattr(_libc, "mallopt", None)
    if mallopt is not None:
        mallopt(M_ARENA_MAX, ARENA_COUNT_MAX)
        mallopt(M_MMAP_THRESHOLD, MMAP_THRESHOLD_BYTES)
        mallopt(M_TRIM_THRESHOLD, TRIM_THRESHOLD_BYTES)
        mallopt(M_TOP_PAD, TOP_PAD_BYTES)


def free_bytes() -> int:
    """Return the bytes of the heap that nobody uses, given back or not, or 0 where malloc does not tell."""
    mallinfo = getattr(_libc, "mallinfo2", None)
    if mallinfo is None:
        return 0
    mallinfo.restype = _Mallinfo
    return int(mallinfo().fordblks)


def resident_bytes() -> int:
    """Return the memory of the process that is not the page cache's, or 0 where the system does not tell."""
    try:
        resident, shared = Path("/proc/self/statm").read_text().split()[1:3]
    except OSError:
        return 0
    return (int(resident) - int(shared)) * resource.getpagesize()


def give_back() -> None:
    """Give back all whole pages that are free."""
    trim = getattr(_libc, "malloc_trim", None)
    if trim is not None:
        trim(ctypes.c_size_t(0))


class _Held(NamedTuple):
    """What the process holds. Free bytes count until they are used again, even if they were given back."""

    resident_bytes: int
    free_bytes: int

    @classmethod
    def now(cls) -> Self:
        return cls(resident_bytes(), free_bytes())

    def has_grown(self, before: Self) -> bool:
        """Return whether there may be something to give back."""
        free_grown = self.free_bytes - before.free_bytes
        return max(self.resident_bytes - before.resident_bytes, free_grown) > GROWN_BYTES_MIN


@contextlib.contextmanager
def giving_back(interval_s: float = LOOK_INTERVAL_S) -> Iterator[None]:
    """Within the block, give back what is free whenever the process was idle for an interval."""
    ended = threading.Event()

    def look() -> None:
        used_s, after = time.process_time(), _Held(0, 0)
        while not ended.wait(interval_s):
            before_s, used_s = used_s, time.process_time()
            now = _Held.now()
            after = _Held(min(after.resident_bytes, now.resident_bytes), min(after.free_bytes, now.free_bytes))
            if used_s - before_s < IDLE_SHARE * interval_s and now.has_grown(after):
                give_back()
                after = _Held.now()

    thread = threading.Thread(target=look, name="giving memory back", daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()
