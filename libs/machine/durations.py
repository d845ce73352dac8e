# SPDX-License-Identifier: Apache-2.0
"""Durations: counts of durations in buckets, as a histogram of Prometheus shows them. It is cheap enough for each call.

OpenTelemetry's histogram costs a tenth of a small append.
Callers: a single thread counts; any thread may read. Memory: a number for each bucket.
"""

from bisect import bisect_left
from collections.abc import Sequence
from itertools import accumulate
from typing import Final

BUCKETS_S: Final = (0.000_25, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 60.0)
"""Upper edges of the buckets in seconds: from an acknowledgement out of memory to a long poll."""

_EDGES: Final = (*(str(edge) for edge in BUCKETS_S), "+Inf")


class Durations:
    """Counted durations. The counts only grow."""

    __slots__ = ("_counts", "sum_s")

    def __init__(self) -> None:
        self._counts = [0] * len(_EDGES)
        self.sum_s = 0.0
        """The sum of all durations, in seconds."""

    def count(self, duration_s: float) -> None:
        """Count a duration."""
        self._counts[bisect_left(BUCKETS_S, duration_s)] += 1
        self.sum_s += duration_s

    def count_since_ms(self, begins_ms: Sequence[int], end_ms: int) -> None:
        """Count the durations from these times to an end, in milliseconds."""
        for begin_ms in begins_ms:
            self.count(max(0, end_ms - begin_ms) / 1000)

    def count_none(self) -> None:
        """Count a duration of 0."""
        self._counts[0] += 1

    def buckets(self) -> list[tuple[str, int]]:
        """Return the number of durations up to each edge, as Prometheus' format has them."""
        return list(zip(_EDGES, accumulate(self._counts), strict=True))
