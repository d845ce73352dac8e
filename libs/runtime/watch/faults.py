# SPDX-License-Identifier: Apache-2.0
"""Faults and signals: the message of a process that a fault ends, its signal stack, and SIGTERM before its start.

Python's handlers of signals run on the stack that faulthandler reserves for its own handler, which is too small: when
the linker looks up a name in a handler, it saves all registers there. On the machine where this was found, it wrote
some 10 KB over the heap below. A process crashed after SIGTERM when it still needed that memory. So this module sets a
large stack, with a page below it that can't be written.
Linux. Callers: the main thread, once; other threads handle signals on their own stacks.
"""

import ctypes
import faulthandler
import mmap
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from libs.kernel import bus_error_cy

STANDARD_ERROR = 2

SIGNAL_STACK_BYTES = 256 << 10
"""Only the used pages take memory."""

_MAP_FAILED = ctypes.c_void_p(-1).value


class _Stack(ctypes.Structure):
    """The structure stack_t of sigaltstack(2)."""

    _fields_ = (("start", ctypes.c_void_p), ("flags", ctypes.c_int), ("size_bytes", ctypes.c_size_t))


@contextmanager
def ending_in_order() -> Iterator[None]:
    """End the process with exit code 0 when SIGTERM comes within the block, unless another handler was set by then.

    The modules of a service take a second to load, and nothing has to be closed yet.
    """
    before = signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def watch(service: str, *, is_console: bool) -> None:
    """Write the reason to standard error when a fault ends the process, in the log's format where that is possible.

    Signals have a large stack from this call on. It is set after faulthandler is enabled, which sets its own stack.
    """
    faulthandler.enable(STANDARD_ERROR)
    _use_large_stack()
    bus_error_cy.watch(*bus_error_line(service, is_console=is_console))


def bus_error_line(service: str, *, is_console: bool) -> tuple[bytes, bytes]:
    """Return the log's line for a lost page of a mapped file: the parts before and after the place."""
    what = "the service ends: another program made a file shorter, or its disk can't be read: "
    if is_console:
        return f"reput {service}: {what}".encode(), b"\n"
    return f'{{"service": "{service}", "level": "critical", "event": "{what}'.encode(), b'"}\n'


def signal_stack() -> tuple[int, int]:
    """Return the start of this thread's stack for signals, and its size in bytes."""
    stack = _Stack()
    _check(_libc().sigaltstack(None, ctypes.byref(stack)) == 0, "sigaltstack")
    return stack.start or 0, stack.size_bytes


def _use_large_stack() -> None:
    """Map a stack. It stays until the process ends, because a signal may come at any time."""
    libc, guard_bytes = _libc(), mmap.PAGESIZE
    libc.mmap.restype = ctypes.c_void_p
    libc.mmap.argtypes = (ctypes.c_void_p, ctypes.c_size_t, *[ctypes.c_int] * 3, ctypes.c_long)
    libc.mprotect.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)
    access, kind = mmap.PROT_READ | mmap.PROT_WRITE, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | mmap.MAP_STACK
    guard = libc.mmap(None, guard_bytes + SIGNAL_STACK_BYTES, access, kind, -1, 0)
    _check(guard != _MAP_FAILED, "mmap")
    _check(libc.mprotect(guard, guard_bytes, 0) == 0, "mprotect")
    stack = _Stack(guard + guard_bytes, 0, SIGNAL_STACK_BYTES)
    _check(libc.sigaltstack(ctypes.byref(stack), None) == 0, "sigaltstack")


def _libc() -> ctypes.CDLL:
    return ctypes.CDLL(None, use_errno=True)


def _check(is_done: bool, call: str) -> None:
    if not is_done:
        raise OSError(ctypes.get_errno(), f"{call} failed")
