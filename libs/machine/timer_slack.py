# SPDX-License-Identifier: Apache-2.0
"""Timer slack: how late Linux may wake threads that wait with a time-out, so that it wakes several of them together.

Threads inherit the slack of the thread that starts them. Source: prctl(2), PR_SET_TIMERSLACK. Elsewhere than on Linux
this module has no effect.
"""

import ctypes
import sys
from collections.abc import Iterator
from contextlib import contextmanager

PR_SET_TIMERSLACK = 29


@contextmanager
def started_with_slack(seconds: float) -> Iterator[None]:
    """Threads that are started within the block may wake so much later. The calling thread has its own slack again."""
    _set(round(seconds * 1e9))
    try:
        yield
    finally:
        _set(0)  # the slack that the thread was started with


def _set(nanoseconds: int) -> None:
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_TIMERSLACK, ctypes.c_ulong(nanoseconds), 0, 0, 0)
