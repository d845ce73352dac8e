# SPDX-License-Identifier: Apache-2.0
"""Collector: the policy for full rounds of Python's cyclic collector.

A full round blocks the loop while it visits all objects that were created since the start: 0.3 s when 8,000 calls wait.
It finds almost nothing, because an ended call leaves no cycle, and cycles of gRPC and of errors are young, so that
short rounds find them. Therefore the collector's own full rounds are made rare, and a timer makes a full round while
there are few objects. That round also empties Python's lists of free tuples, lists and contexts: some thousands of
them, which remain from a time with many calls, keep tens of mebibytes from the system.
Callers: the event loop's thread.
"""

import asyncio
import contextlib
import gc
import sys
from collections.abc import Callable, Iterator

LOOK_INTERVAL_S = 5.0

NEW_BLOCK_COUNT_MAX = 40_000
"""Maximum number of memory blocks, beyond the number at the start, with which the timer makes a full round. The round
then takes less than 20 ms. A waiting call has about a hundred blocks."""

YOUNG_ROUND_COUNT = 1_000
"""Rounds over young objects before the collector may make its own full round: eight million objects that stayed."""


class Collector:
    """The policy of a process. Call `settle` once when the service is up, then enter `running`."""

    def __init__(self, block_count: Callable[[], int] = sys.getallocatedblocks) -> None:
        self._block_count = block_count
        self._settled_block_count = 0
        self._timer: asyncio.TimerHandle | None = None

    def settle(self) -> None:
        """Exempt the objects of the start from all rounds, and make full rounds rare."""
        gc.collect()
        gc.freeze()
        young, middle, _ = gc.get_threshold()
        gc.set_threshold(young, middle, YOUNG_ROUND_COUNT)
        self._settled_block_count = self._block_count()

    def look(self) -> bool:
        """Make a full round if there are few objects. Returns whether it was made."""
        if self._block_count() - self._settled_block_count > NEW_BLOCK_COUNT_MAX:
            return False
        gc.collect()
        return True

    @contextlib.contextmanager
    def running(self, interval_s: float = LOOK_INTERVAL_S) -> Iterator[None]:
        """Call `look` every `interval_s` within the block."""
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
