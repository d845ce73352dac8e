# SPDX-License-Identifier: Apache-2.0
"""The pool's buffers, and the result if memory can't be locked or does not exist."""

import ctypes
import errno
import logging
import resource
from pathlib import Path

import pytest

from libs.machine import memory
from libs.segments.pool import TransientStorePool

SIZE = 64 << 10


def test_buffers_go_round() -> None:
    """The pool has the requested buffers, each of its own and of full size, and a returned buffer is borrowed again."""
    pool = TransientStorePool(2, SIZE)
    first, second = pool.borrow(), pool.borrow()
    assert (len(first), len(second), pool.free_count) == (SIZE, SIZE, 0)
    first[:] = b"\x01" * SIZE
    assert bytes(second) == bytes(SIZE)
    pool.give_back(second)
    assert pool.free_count == 1
    assert pool.borrow() is second


def test_buffers_are_locked() -> None:
    """The kernel counts the pages of the buffers as locked."""
    before_kib = locked_kib()
    pool = TransientStorePool(2, SIZE)
    assert pool.is_locked
    assert locked_kib() - before_kib >= 2 * SIZE // 1024


def locked_kib() -> int:
    """The locked memory of this process, in KiB."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmLck:"))


def test_memory_that_cannot_be_locked_is_a_warning(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """If memory can't be locked, the pool works, and a warning names the limit."""

    class Refusing:
        munlock = madvise = staticmethod(lambda *_arguments: 0)

        @staticmethod
        def mlock(*_arguments: object) -> int:
            ctypes.set_errno(errno.ENOMEM)
            return -1

    monkeypatch.setattr(memory, "_LIBC", Refusing)
    monkeypatch.setattr(resource, "getrlimit", lambda _which: (4096, 4096))
    with caplog.at_level(logging.WARNING):
        pool = TransientStorePool(3, SIZE)
    assert (pool.free_count, pool.is_locked) == (3, False)
    assert [record.getMessage().partition(": ")[2] for record in caplog.records] == [
        "Cannot allocate memory: 65536 bytes can't be locked in memory; RLIMIT_MEMLOCK (ulimit -l) is 4096 bytes"
    ]


def test_memory_that_is_not_there_is_named() -> None:
    """A pool larger than the address space fails with a single line that has its numbers."""
    with pytest.raises(OSError, match="no memory for the pool of 2 buffers of 4611686018427387904 bytes"):
        TransientStorePool(2, 1 << 62)
