# SPDX-License-Identifier: Apache-2.0
"""NewQueueBudget: how many queues may begin, so that an Indexer, which makes files for each, keeps up for all others.

It fills with time, up to what a quarter of a second adds. A batch may begin queues as long as there is some left,
however many; what it took too much is owed, and no queue begins until that has come back. So small batches and large
ones have the same chance, and the largest debt is what one batch may begin.
Callers: the loop that owns the log.
"""

import logging
import math
from collections.abc import Callable

from services.commitlog.errors import TooManyNewQueues

BURST_S = 0.25
"""How much may be left: what comes in this time."""

_log = logging.getLogger(__name__)


class NewQueueBudget:
    """See the module. `monotonic_s` is the clock; a rate of 0 is no bound."""

    def __init__(self, monotonic_s: Callable[[], float], *, per_s_max: int) -> None:
        self.refused_count = 0
        """Batches that were refused."""
        self._monotonic_s = monotonic_s
        self._per_s_max = per_s_max
        self._most = max(1.0, per_s_max * BURST_S)
        self._left = self._most
        self._as_of_s = monotonic_s()
        self._is_told = False

    def has_left(self) -> bool:
        """Return whether a batch may begin queues now. Asks the clock only when that was not so before."""
        if self._left <= 0:
            self._fill()
        return self._left > 0

    def take(self, count: int, *, is_owed: bool = True) -> None:
        """Take note that so many queues have begun. `is_owed` False takes what is left, and no more."""
        if self._per_s_max and count:
            self._fill()
            self._left = max(self._left - count, -math.inf if is_owed else min(self._left, 0.0))

    def refusal(self, count: int) -> TooManyNewQueues:
        """Return what tells that a batch with the first messages of `count` queues is refused, and count it.

        The first one since the budget was full logs a line.
        """
        self.refused_count += 1
        if not self._is_told:
            self._is_told = True
            _log.warning(
                "queues begin faster than new_queues_per_s_max, %d: batches with first messages of queues are refused "
                "with WINDOW_FULL until there is room again, others are not",
                self._per_s_max,
            )
        return TooManyNewQueues(count, limit=self._per_s_max)

    def _fill(self) -> None:
        now_s = self._monotonic_s()
        self._left = min(self._most, self._left + (now_s - self._as_of_s) * self._per_s_max)
        self._as_of_s = now_s
        if self._left >= self._most:
            self._is_told = False
