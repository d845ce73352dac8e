# SPDX-License-Identifier: Apache-2.0
"""CallDurations: a histogram of the durations of calls. It is cheap enough to record each call.

OpenTelemetry's histogram costs a tenth of a small append. So this histogram counts by itself, and is collected like all
other metrics.
"""

from bisect import bisect_left
from collections.abc import Iterator
from itertools import accumulate
from typing import Final

from prometheus_client.core import HistogramMetricFamily
from prometheus_client.registry import Collector

BUCKETS_S: Final = (0.000_25, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 60.0)
"""Upper edges of the buckets: from a memory acknowledgement to a long poll."""

_EDGES: Final = (*(str(edge) for edge in BUCKETS_S), "+Inf")


class CallDurations(Collector):
    """A histogram of durations by method and status code. A single thread counts; any thread may collect."""

    def __init__(self, name: str, description: str) -> None:
        self._name, self._description = name, description
        self._counts: dict[tuple[str, str], list[int]] = {}
        self._sums_s: dict[tuple[str, str], float] = {}

    def count(self, method: str, code_name: str, duration_s: float) -> None:
        """Count a call."""
        call = method, code_name
        counts = self._counts.get(call)
        if counts is None:
            self._sums_s[call] = 0.0
            counts = self._counts[call] = [0] * len(_EDGES)
        counts[bisect_left(BUCKETS_S, duration_s)] += 1
        self._sums_s[call] += duration_s

    def collect(self) -> Iterator[HistogramMetricFamily]:
        """Yield the histogram."""
        family = HistogramMetricFamily(self._name, self._description, labels=("method", "code"))
        for call, counts in list(self._counts.items()):
            buckets = list(zip(_EDGES, accumulate(counts), strict=True))
            family.add_metric(call, buckets, self._sums_s[call])
        yield family
