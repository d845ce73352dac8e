# SPDX-License-Identifier: Apache-2.0
"""A common end of several calls, for programs that answer within a time of their own.

The calls end by their deadlines. A cancelled call of grpcio leaves a kilobyte of memory behind (its issue 43360).
"""

import contextlib
import math
import time
from collections.abc import Iterator
from contextvars import ContextVar

_END_S: ContextVar[float] = ContextVar("end of calls", default=math.inf)


@contextlib.contextmanager
def calls_end_at(end_s: float) -> Iterator[None]:
    """Let all calls within the block end at a moment of the monotonic clock, in seconds, if they have not before."""
    token = _END_S.set(min(end_s, _END_S.get()))
    try:
        yield
    finally:
        _END_S.reset(token)


def end_of_call(timeout_s: float) -> float:
    """Return the end of a call that begins now and may take so long."""
    return min(time.monotonic() + timeout_s, _END_S.get())
