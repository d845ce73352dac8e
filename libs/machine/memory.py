# SPDX-License-Identifier: Apache-2.0
"""Pages of this process: maps, allocates, populates and locks them.

All calls let other threads run meanwhile; they use ctypes, because the methods of `mmap` hold the GIL.
Callers: file systems and pools of buffers, in threads.
"""

import ctypes
import mmap
import os
import resource
import weakref
from collections.abc import Iterator
from pathlib import Path

PIECE_BYTES = 16 << 20
"""Size of the memory of a single system call: meanwhile, the kernel blocks mappings and faults of the process."""

MADV_POPULATE_WRITE = 23
"""linux/mman.h, since Linux 5.14; older kernels return EINVAL."""

_LIBC = ctypes.CDLL(None, use_errno=True)
_LIBC.madvise.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)
_LIBC.mlock.argtypes = _LIBC.munlock.argtypes = _LIBC.munmap.argtypes = (ctypes.c_void_p, ctypes.c_size_t)
_LIBC.mmap.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_int64)
_LIBC.mmap.restype = ctypes.c_void_p
_LIBC.sync_file_range.argtypes = (ctypes.c_int, ctypes.c_int64, ctypes.c_int64, ctypes.c_uint)
_LIBC.syncfs.argtypes = (ctypes.c_int,)
SYNC_FILE_RANGE_WAIT_BEFORE = 1
"""linux/fs.h: wait for pages that are being written, and report an error that no sync has reported."""
SYNC_FILE_RANGE_WRITE = 2
"""linux/fs.h: start writing dirty pages that are not being written yet. A recorded error stays for the next sync."""
MAP_FAILED = ctypes.c_void_p(-1).value


def map_file(descriptor: int, size_bytes: int, *, writable: bool) -> memoryview:
    """Map the first bytes of a file, shared with its other mappings, until the last view is deleted. Raises OSError.

    The descriptor is not needed afterwards. (`mmap.mmap` would keep a copy of it as long as the mapping.)
    """
    protection = mmap.PROT_READ | (mmap.PROT_WRITE if writable else 0)
    address = _LIBC.mmap(None, size_bytes, protection, mmap.MAP_SHARED, descriptor, 0)
    if address == MAP_FAILED:
        code = ctypes.get_errno()
        raise OSError(code, f"{os.strerror(code)}: mapping {size_bytes} bytes")
    pages = (ctypes.c_ubyte * size_bytes).from_address(address)
    weakref.finalize(pages, _LIBC.munmap, address, size_bytes).atexit = False  # views may outlive the interpreter
    view = memoryview(pages).cast("B")
    return view if writable else view.toreadonly()


def mapping_count_max() -> int:
    """Return the kernel's maximum number of mappings of a process (sysctl vm.max_map_count)."""
    return int(Path("/proc/sys/vm/max_map_count").read_text())


def allocate(size_bytes: int) -> memoryview:
    """Allocate anonymous memory of zeros that begins at a page and ends with its last view. Raises OSError."""
    return memoryview(mmap.mmap(-1, size_bytes, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS))


def populate(buffer: memoryview) -> None:
    """Make the pages present and writable if the kernel can, else do nothing. `buffer` begins at a page."""
    for address, size_bytes in _pieces(buffer):
        _LIBC.madvise(address, size_bytes, MADV_POPULATE_WRITE)


def write_out(descriptor: int, position: int, size_bytes: int) -> None:
    """Start writing a file's dirty pages to the disk (sync_file_range(2)). Does not report the result."""
    _LIBC.sync_file_range(descriptor, position, size_bytes, SYNC_FILE_RANGE_WRITE)


def check_written(descriptor: int) -> None:
    """Wait for pages of a file that are being written. Raises OSError if one was not written since the last sync."""
    if _LIBC.sync_file_range(descriptor, 0, 0, SYNC_FILE_RANGE_WAIT_BEFORE) != 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))


def write_back(descriptor: int) -> None:
    """Write all dirty pages and names of the file system that holds the open file (syncfs(2)). Raises OSError."""
    if _LIBC.syncfs(descriptor) != 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))


def lock(buffer: memoryview) -> None:
    """Keep the pages, made present, in memory until `unlock` or the end of the mapping.

    Raises OSError, whose text names the limit; then none of the pages is locked.
    """
    for address, size_bytes in _pieces(buffer):
        if _LIBC.mlock(address, size_bytes) != 0:
            code, limit_bytes = ctypes.get_errno(), resource.getrlimit(resource.RLIMIT_MEMLOCK)[0]
            unlock(buffer)
            limit = "unlimited" if limit_bytes == resource.RLIM_INFINITY else f"{limit_bytes} bytes"
            text = f"{len(buffer)} bytes can't be locked in memory; RLIMIT_MEMLOCK (ulimit -l) is {limit}"
            raise OSError(code, f"{os.strerror(code)}: {text}")


def unlock(buffer: memoryview) -> None:
    """End `lock`."""
    for address, size_bytes in _pieces(buffer):
        _LIBC.munlock(address, size_bytes)


def _pieces(buffer: memoryview) -> Iterator[tuple[int, int]]:
    """Yield address and size of each piece."""
    if buffer:
        start, size_bytes = ctypes.addressof(ctypes.c_char.from_buffer(buffer)), len(buffer)
        for at in range(0, size_bytes, PIECE_BYTES):
            yield start + at, min(PIECE_BYTES, size_bytes - at)
