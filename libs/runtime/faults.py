# SPDX-License-Identifier: Apache-2.0
"""What a process says when a fault of the hardware ends it, and the stack that signals are handled on.

A handler of Python's runs on the stack that faulthandler has set aside, and that is too small for it: where the linker
looks up a name while a handler runs, 10 KB are written over what lies before the stack in the heap. Seen as jumps into
data some calls after SIGTERM, when it was the code of a function. So the stack is a large one here.
Linux. Callers: the main thread, once; other threads handle signals on their own stacks.
"""

import ctypes
import faulthandler

from libs.kernel import bus_error_cy

STANDARD_ERROR = 2

SIGNAL_STACK_BYTES = 256 << 10
"""Only what is used takes memory."""


class _Stack(ctypes.Structure):
    """stack_t, sigaltstack(2)."""

    _fields_ = (("start", ctypes.c_void_p), ("flags", ctypes.c_int), ("size_bytes", ctypes.c_size_t))


_memory = ctypes.create_string_buffer(SIGNAL_STACK_BYTES)
"""Never given back, as a signal may come at any time."""


def watch(service: str, *, is_console: bool) -> None:
    """Tell on standard error why a fault ends the process, in the log's format where that is possible."""
    faulthandler.enable(STANDARD_ERROR)
    _use_large_stack()
    bus_error_cy.watch(*bus_error_line(service, is_console=is_console))


def bus_error_line(service: str, *, is_console: bool) -> tuple[bytes, bytes]:
    """Return the log's line for a page of a mapped file that is gone, as what stands before and after the place."""
    what = "the service ends: another program made a file shorter, or its disk can't be read: "
    if is_console:
        return f"reput {service}: {what}".encode(), b"\n"
    return f'{{"service": "{service}", "level": "critical", "event": "{what}'.encode(), b'"}\n'


def signal_stack() -> tuple[int, int]:
    """Return where this thread's stack for signals begins, and its size in bytes."""
    stack = _Stack()
    _sigaltstack(None, ctypes.byref(stack))
    return stack.start or 0, stack.size_bytes


def _use_large_stack() -> None:
    _sigaltstack(ctypes.byref(_Stack(ctypes.addressof(_memory), 0, SIGNAL_STACK_BYTES)), None)


def _sigaltstack(new: object, former: object) -> None:
    if ctypes.CDLL(None, use_errno=True).sigaltstack(new, former) != 0:
        raise OSError(ctypes.get_errno(), "sigaltstack failed")
