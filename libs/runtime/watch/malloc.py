# SPDX-License-Identifier: Apache-2.0
"""Settings of glibc's malloc: it keeps memory for the next large message, and returns it while the process is idle.

Freed blocks below MMAP_THRESHOLD_BYTES are kept, because mapping and unmapping memory for each chunk of a mebibyte
halves the rate of chunks. Small blocks in use between large free blocks keep the heap's end from shrinking by itself.
So a separate thread checks periodically, and returns free memory to the system while the process is idle.
With another libc, this module has no effect.
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
"""Larger blocks are mapped, and unmapped when they are freed. The largest answers, of 8 MiB, are below this size: a new
mapping for each of them cost readers a quarter of their rate."""

ARENA_COUNT_MAX = 2
"""An arena for the loop's thread, and an arena for all others. malloc_trim does not shrink the end of any arena but the
first: gRPC's threads had four and more arenas, each with tens of unused mebibytes."""

TRIM_THRESHOLD_BYTES = 64 << 20
TOP_PAD_BYTES = 4 << 20
"""An arena shrinks when TRIM_THRESHOLD_BYTES at its end are free, and grows by TOP_PAD_BYTES."""

LOOK_INTERVAL_S = 5.0

GROWN_BYTES_MIN = 16 << 20
"""Less memory is not returned: a return holds the heap's lock, about 10 ms for 100 MiB."""

IDLE_SHARE = 0.5
"""The process is idle while it uses less than this part of a core."""

M_TRIM_THRESHOLD, M_TOP_PAD, M_MMAP_THRESHOLD, M_ARENA_MAX = -1, -2, -3, -8  # malloc.h


class _Mallinfo(ctypes.Structure):
    """The structure mallinfo2 of malloc.h."""

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
    """Return the unused bytes of the heap, returned to the system or not. 0 if malloc does not report them."""
    mallinfo = getattr(_libc, "mallinfo2", None)
    if mallinfo is None:
        return 0
    mallinfo.restype = _Mallinfo
    return int(mallinfo().fordblks)


def resident_bytes() -> int:
    """Return the memory of the process without the page cache. 0 if the system does not report it."""
    try:
        resident, shared = Path("/proc/self/statm").read_text().split()[1:3]
    except OSError:
        return 0
    return (int(resident) - int(shared)) * resource.getpagesize()


def give_back() -> None:
    """Return all free whole pages to the system."""
    trim = getattr(_libc, "malloc_trim", None)
    if trim is not None:
        trim(ctypes.c_size_t(0))


class _Held(NamedTuple):
    """The memory of the process. Free bytes count until they are used again, even if they were returned."""

    resident_bytes: int
    free_bytes: int

    @classmethod
    def now(cls) -> Self:
        return cls(resident_bytes(), free_bytes())

    def has_grown(self, before: Self) -> bool:
        """Return whether there may be memory to return."""
        free_grown = self.free_bytes - before.free_bytes
        return max(self.resident_bytes - before.resident_bytes, free_grown) > GROWN_BYTES_MIN


@contextlib.contextmanager
def giving_back(interval_s: float = LOOK_INTERVAL_S) -> Iterator[None]:
    """Within the block, return free memory to the system whenever the process was idle for an interval."""
    ended = threading.Event()

    def look() -> None:
        used_s, after = time.process_time(), _Held(0, 0)
        while not ended.wait(interval_s):
            before_s, used_s = used_s, time.process_time()
            now = _Held.now()
            after = _Held(min(after.resident_bytes, now.resident_bytes), min(after.free_bytes, now.free_bytes))
            if used_s - before_s < IDLE_SHARE * interval_s and now.has_grown(after):
                give_back()
                # Memory that was freed during the return is still resident: only the bytes that were free before count.
                after = _Held(resident_bytes(), now.free_bytes)

    thread = threading.Thread(target=look, name="giving memory back", daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()
