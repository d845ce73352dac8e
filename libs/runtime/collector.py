# SPDX-License-Identifier: Apache-2.0
"""Collector: when Python's cyclic collector walks over everything.

A full round holds the loop while it walks over all that was made since the start: 0.3 s when 8,000 calls wait. It finds
next to nothing, because a call that ends leaves no cycle, and what gRPC and errors leave dies young, where short rounds
find it. So the collector's own full rounds are made rare, and a timer makes one while there is little to walk over.
That round also empties Python's lists of free tuples, lists and contexts: some thousands of them, left over from a
time with many calls, keep tens of mebibytes from the system.
Callers: the event loop's thread.
"""

import asyncio
import contextlib
import gc
import sys
from collections.abc import Callable, Iterator

LOOK_INTERVAL_S = 5.0

NEW_BLOCK_COUNT_MAX = 40_000
"""So many blocks of memory more than at the start, and the timer makes no full round: fewer are walked over in less
than 20 ms. A call that waits has about a hundred."""

YOUNG_ROUND_COUNT = 1_000
"""Rounds over young objects before the collector may make a full one by itself: eight million objects that stayed."""


class Collector:
    """The policy of one process. Make it, `settle` once when the service is up, then let it run."""

    def __init__(self, block_count: Callable[[], int] = sys.getallocatedblocks) -> None:
        self._block_count = block_count
        self._settled_block_count = 0
        self._timer: asyncio.TimerHandle | None = None

    def settle(self) -> None:
        """Exempt what the start made from all rounds, and make full rounds rare."""
        gc.collect()
        gc.freeze()
        young, middle, _ = gc.get_threshold()
        gc.set_threshold(young, middle, YOUNG_ROUND_COUNT)
        self._settled_block_count = self._block_count()

    def look(self) -> bool:
        """Make a full round if there is little to walk over. Returns whether it was made."""
        if self._block_count() - self._settled_block_count > NEW_BLOCK_COUNT_MAX:
            return False
        gc.collect()
        return True

    @contextlib.contextmanager
    def running(self, interval_s: float = LOOK_INTERVAL_S) -> Iterator[None]:
        """Look again and again within the block."""
        self._wait(interval_s)
        try:
            yield
        finally:
            assert self._timer is not None
            self._timer.cancel()

    def _wait(self, interval_s: float) -> None:
        self._timer = asyncio.get_running_loop().call_later(interval_s, self._tick, interval_s)

    def _tick(self, interval_s: float) -> None:
        self.look()
        self._wait(interval_s)
