# SPDX-License-Identifier: Apache-2.0
"""Metrics and logs by OTLP, to a collector that is a real gRPC server."""

import logging
import queue
import time
from collections.abc import Iterator
from concurrent import futures
from dataclasses import dataclass
from typing import Any

import grpc
import pytest
from opentelemetry.proto.collector.logs.v1 import logs_service_pb2, logs_service_pb2_grpc
from opentelemetry.proto.collector.metrics.v1 import metrics_service_pb2, metrics_service_pb2_grpc

from libs.runtime.settings import ServerConfig, TelemetryConfig
from libs.runtime.watch.telemetry import set_up
from tests.support.patience import LIMIT_S
from tests.support.surroundings import free_port


@dataclass(frozen=True)
class Numbers:
    """The counts of an engine."""

    appended_total: int = 7
    """Messages."""
    late_ms: int = 1_500
    """How late."""


class Collector(metrics_service_pb2_grpc.MetricsServiceServicer, logs_service_pb2_grpc.LogsServiceServicer):
    """Keeps the requests that it gets."""

    def __init__(self) -> None:
        self.requests: queue.Queue[Any] = queue.Queue()

    def Export(self, request: Any, _: grpc.ServicerContext) -> Any:  # noqa: N802 - the name is the protocol's
        """Keep a request of metrics or logs."""
        self.requests.put(request)
        if isinstance(request, metrics_service_pb2.ExportMetricsServiceRequest):
            return metrics_service_pb2.ExportMetricsServiceResponse()
        return logs_service_pb2.ExportLogsServiceResponse()

    def next(self, kind: type[Any]) -> Any:
        """Return the next request of a kind."""
        while not isinstance(found := self.requests.get(timeout=LIMIT_S), kind):
            pass
        return found


def server_of(collector: Collector, port: int) -> grpc.Server:
    """Start a collector's server."""
    server = grpc.server(futures.ThreadPoolExecutor(2))
    metrics_service_pb2_grpc.add_MetricsServiceServicer_to_server(collector, server)
    logs_service_pb2_grpc.add_LogsServiceServicer_to_server(collector, server)
    server.add_insecure_port(f"127.0.0.1:{port}")
    server.start()
    return server


@pytest.fixture(autouse=True)
def logging_as_before() -> Iterator[None]:
    """Put the handlers of the root logger back."""
    root = logging.getLogger()
    handlers, level = root.handlers, root.level
    yield
    root.handlers, root.level = handlers, level


def config(port: int) -> TelemetryConfig:
    """Settings that send to a port, ten times a second."""
    return TelemetryConfig(metrics_port=0, otlp_endpoint=f"http://127.0.0.1:{port}", otlp_metrics_interval_ms=100)


def test_metrics_and_logs_reach_a_collector() -> None:
    """Counters are monotonic sums, gauges and histograms have their units, a log line keeps its fields."""
    collector, port = Collector(), free_port()
    server = server_of(collector, port)
    telemetry = set_up("commitlog", config(port), ServerConfig(port=0))
    telemetry.observe("log", Numbers)
    for duration_s in (0.0004, 0.0004, 70.0):
        telemetry.count_rpc("Append", "OK", duration_s)
    logging.getLogger("x").warning({"event": "the disk is slow", "sync_ms": 12})
    try:
        metrics: dict[str, Any] = {}
        while "reput_commitlog_log_appended" not in metrics:
            request = collector.next(metrics_service_pb2.ExportMetricsServiceRequest)
            metrics = {found.name: found for found in request.resource_metrics[0].scope_metrics[0].metrics}
    finally:
        telemetry.shutdown()
    lines = collector.next(logs_service_pb2.ExportLogsServiceRequest).resource_logs[0].scope_logs[0].log_records
    server.stop(None)
    appended = metrics["reput_commitlog_log_appended"].sum
    assert appended.is_monotonic
    assert appended.data_points[0].as_double == 7
    late = metrics["reput_commitlog_log_late_seconds"]
    assert (late.unit, late.description, late.gauge.data_points[0].as_double) == ("s", "How late.", 1.5)
    durations = metrics["reput_commitlog_rpc_duration_seconds"].histogram.data_points[0]
    assert {pair.key: pair.value.string_value for pair in durations.attributes} == {"method": "Append", "code": "OK"}
    assert durations.count == 3
    assert durations.bucket_counts[1] == 2
    assert durations.bucket_counts[-1] == 1
    assert len(durations.bucket_counts) == len(durations.explicit_bounds) + 1
    slow = next(line for line in lines if line.body.string_value == "the disk is slow")
    assert slow.severity_text == "WARNING"
    assert {pair.key: pair.value.string_value for pair in slow.attributes} == {"sync_ms": "12"}


def test_a_collector_that_is_away_holds_up_no_stop(caplog: pytest.LogCaptureFixture) -> None:
    """The stop waits seconds at most, and the log says once that metrics are not taken."""
    telemetry = set_up("commitlog", config(free_port()), ServerConfig(port=0))
    logging.getLogger().addHandler(caplog.handler)
    telemetry.observe("log", Numbers)
    end_s = time.monotonic() + LIMIT_S
    while "takes no metrics" not in caplog.text and time.monotonic() < end_s:
        time.sleep(0.05)
    telemetry.shutdown()
    assert caplog.text.count("takes no metrics") == 1
