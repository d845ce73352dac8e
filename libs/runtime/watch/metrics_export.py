# SPDX-License-Identifier: Apache-2.0
"""MetricsExport: sends the metrics of a registry by OTLP at an interval, the same that /metrics shows.

OpenTelemetry's data model is the source of the types: a counter is a monotonic sum since the start of the process.
"""

import logging
import threading
import time
from collections import defaultdict
from collections.abc import Iterable, Sequence

from opentelemetry.sdk.metrics.export import (
    AggregationTemporality,
    Gauge,
    Histogram,
    HistogramDataPoint,
    Metric,
    MetricExporter,
    MetricExportResult,
    MetricsData,
    NumberDataPoint,
    ResourceMetrics,
    ScopeMetrics,
    Sum,
)
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from prometheus_client import CollectorRegistry
from prometheus_client import Metric as Family
from prometheus_client.samples import Sample

_log = logging.getLogger(__name__)

EXPORT_TIMEOUT_MS = 1_000
"""Maximum time of an attempt, so that a stop does not wait for a collector that is away."""
SCOPE = InstrumentationScope("reput")
CUMULATIVE = AggregationTemporality.CUMULATIVE
EDGE = "le"
"""The label with the upper edge of a bucket."""


class MetricsExport:
    """Sends metrics from a thread of its own, from `start` to `stop`. A failed attempt is logged once in a row."""

    def __init__(
        self, registry: CollectorRegistry, exporter: MetricExporter, resource: Resource, *, interval_s: float
    ) -> None:
        self._registry, self._exporter, self._resource = registry, exporter, resource
        self._interval_s = interval_s
        self._start_ns = time.time_ns()
        self._is_failing = False
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._run, name="metrics export", daemon=True)

    def start(self) -> None:
        """Start to send."""
        self._thread.start()

    def stop(self) -> None:
        """Send the last values, and end. Waits for two attempts at most."""
        self._ending.set()
        self._thread.join(2 * EXPORT_TIMEOUT_MS / 1000)
        self._exporter.shutdown(timeout_millis=0)

    def _run(self) -> None:
        while not self._ending.wait(self._interval_s):
            self._send()
        self._send()

    def _send(self) -> None:
        data = data_of(self._registry.collect(), self._resource, self._start_ns, time.time_ns())
        is_sent = self._exporter.export(data, timeout_millis=EXPORT_TIMEOUT_MS) is MetricExportResult.SUCCESS
        if is_sent == self._is_failing:
            self._is_failing = not is_sent
            _log.warning("metrics reach the collector again" if is_sent else "the collector takes no metrics by OTLP")


def data_of(families: Iterable[Family], resource: Resource, start_ns: int, now_ns: int) -> MetricsData:
    """Return families of Prometheus as metrics of OpenTelemetry. Times are nanoseconds since the epoch."""
    metrics = [_metric(family, start_ns, now_ns) for family in families if family.samples]
    return MetricsData([ResourceMetrics(resource, [ScopeMetrics(SCOPE, metrics, "")], "")])


def _metric(family: Family, start_ns: int, now_ns: int) -> Metric:
    data: Gauge | Sum | Histogram
    if family.type == "histogram":
        data = Histogram(_histogram_points(family.samples, start_ns, now_ns), CUMULATIVE)
    else:
        points = [
            NumberDataPoint(dict(sample.labels), start_ns, now_ns, sample.value)
            for sample in family.samples
            if not sample.name.endswith("_created")
        ]
        data = Sum(points, CUMULATIVE, is_monotonic=True) if family.type == "counter" else Gauge(points)
    unit = next((unit for end, unit in (("_seconds", "s"), ("_bytes", "By")) if family.name.endswith(end)), "")
    return Metric(family.name, family.documentation, unit, data)


def _histogram_points(samples: Sequence[Sample], start_ns: int, now_ns: int) -> list[HistogramDataPoint]:
    """Return a point for each set of labels. Prometheus' buckets add up, OpenTelemetry's do not."""
    buckets: dict[tuple[tuple[str, str], ...], list[tuple[float, int]]] = defaultdict(list)
    sums: dict[tuple[tuple[str, str], ...], float] = {}
    for sample in samples:
        labels = tuple((name, value) for name, value in sample.labels.items() if name != EDGE)
        if sample.name.endswith("_bucket"):
            buckets[labels].append((float(sample.labels[EDGE]), int(sample.value)))
        elif sample.name.endswith("_sum"):
            sums[labels] = sample.value
    points = []
    for labels, found in buckets.items():
        totals = [count for _, count in found]
        counts = [total - before for total, before in zip(totals, [0, *totals], strict=False)]
        edges = [edge for edge, _ in found[:-1]]  # the last one is infinite
        total = sums.get(labels, 0.0)
        nothing = (float("inf"), -float("inf"))  # Prometheus keeps no least and no greatest value
        points.append(HistogramDataPoint(dict(labels), start_ns, now_ns, totals[-1], total, counts, edges, *nothing))
    return points
