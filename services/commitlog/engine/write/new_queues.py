# SPDX-License-Identifier: Apache-2.0
"""NewQueueBudget: a token bucket that bounds how many queues begin per second.

An Indexer makes files for each queue; within the bound it keeps up for readers of all other queues. The bucket holds a
quarter of a second's tokens. A batch passes while a token is left, and may take more tokens than are left; then no
queue begins until the bucket has refilled above 0. So small and large batches have the same chance, and the largest
debt is the number of queues that a single batch may begin.
Callers: the loop that owns the log.
"""

import logging
import math
from collections.abc import Callable

from services.commitlog.errors import TooManyNewQueues

BURST_S = 0.25
"""The bucket holds the tokens of this time."""

_log = logging.getLogger(__name__)


class NewQueueBudget:
    """The token bucket for new queues. `monotonic_s` is the clock. A rate of 0 means no bound."""

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
        """Return whether a batch may begin queues now. Reads the clock only if no token was left before."""
        if self._left <= 0:
            self._fill()
        return self._left > 0

    def take(self, count: int, *, is_owed: bool = True) -> None:
        """Take a token for each queue that has begun. With `is_owed` False no debt begins or grows."""
        if self._per_s_max and count:
            self._fill()
            self._left = max(self._left - count, -math.inf if is_owed else min(self._left, 0.0))

    def refusal(self, count: int) -> TooManyNewQueues:
        """Count a refused batch, and return its error. `count` is the number of queues that the batch would begin.

        The first refusal since the bucket was full logs a line.
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
