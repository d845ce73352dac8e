# SPDX-License-Identifier: Apache-2.0
"""Histograms of durations, as families of metrics."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from libs.machine.durations import Durations

if TYPE_CHECKING:
    from prometheus_client.core import HistogramMetricFamily

Read = Callable[[], Mapping[tuple[str, ...], Durations]]
"""Returns durations by the values of their labels. Quick, from any thread, and without need of the event loop."""


class DurationsFamily:
    """The histogram `name`, whose samples `read` returns with each collection."""

    def __init__(self, name: str, description: str, labels: Sequence[str], read: Read) -> None:
        self._name, self._description, self._labels, self._read = name, description, labels, read

    def collect(self) -> "Iterator[HistogramMetricFamily]":
        """Yield the histogram."""
        from prometheus_client.core import HistogramMetricFamily

        family = HistogramMetricFamily(self._name, self._description, labels=self._labels)
        for values, durations in list(self._read().items()):
            family.add_metric(values, durations.buckets(), durations.sum_s)
        yield family


class CallDurations:
    """The durations of calls by method and status code. A single thread counts; any thread may read."""

    def __init__(self) -> None:
        self.by_call: dict[tuple[str, ...], Durations] = {}

    def count(self, method: str, code_name: str, duration_s: float) -> None:
        """Count a call."""
        call = method, code_name
        durations = self.by_call.get(call)
        if durations is None:
            durations = self.by_call[call] = Durations()
        durations.count(duration_s)
