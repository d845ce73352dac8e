# SPDX-License-Identifier: Apache-2.0
"""Traces across the services: a question makes a single trace, which a collector receives."""

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import grpc
import pytest
from opentelemetry.proto.collector.trace.v1 import trace_service_pb2, trace_service_pb2_grpc

from tests.support.reput_up import store

pytestmark = pytest.mark.e2e

EXPORT_TIMEOUT_S = 60


class Collector(trace_service_pb2_grpc.TraceServiceServicer):
    """Keeps (service, span name) of all spans by trace id."""

    def __init__(self) -> None:
        self.spans: dict[bytes, set[tuple[str, str]]] = {}
        self._arrived = threading.Condition()

    def Export(  # noqa: N802 - the name of the proto
        self, request: trace_service_pb2.ExportTraceServiceRequest, context: grpc.ServicerContext
    ) -> trace_service_pb2.ExportTraceServiceResponse:
        with self._arrived:
            for resource in request.resource_spans:
                service = next(a.value.string_value for a in resource.resource.attributes if a.key == "service.name")
                for scope in resource.scope_spans:
                    for span in scope.spans:
                        self.spans.setdefault(span.trace_id, set()).add((service, span.name))
            self._arrived.notify_all()
        return trace_service_pb2.ExportTraceServiceResponse()

    def wait_for(self, expected: set[tuple[str, str]]) -> bool:
        """Whether a single trace gets all of these spans."""
        with self._arrived:
            return self._arrived.wait_for(
                lambda: any(expected <= spans for spans in self.spans.values()), EXPORT_TIMEOUT_S
            )


@contextmanager
def collecting() -> Iterator[tuple[Collector, int]]:
    """A collector on a free port."""
    collector = Collector()
    server = grpc.server(ThreadPoolExecutor(2))
    trace_service_pb2_grpc.add_TraceServiceServicer_to_server(collector, server)
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    try:
        yield collector, port
    finally:
        server.stop(0).wait()


def test_one_question_is_one_trace(tmp_path: Path) -> None:
    """A query that reads a record from the CommitLog is a single trace over both services, and so is a dry run."""
    with collecting() as (collector, port):
        settings = {
            f"REPUT_{service}_{name}": value
            for service in ("COMMITLOG", "INDEXER", "JANITOR")
            for name, value in (("OTLP_ENDPOINT", f"http://127.0.0.1:{port}"), ("TRACE_RATIO", "1"))
        }
        with store(tmp_path / "store", extra=settings) as served:
            served.json("put", "orders", "hello", "--key", "order-1")
            served.json("tail", "orders", "--count", "1")
            assert served.run("query", "id", f"{'7F000001':0<16}{1:016X}").code != 0
            served.json("janitor", "run", "--dry-run")
            query, read = "reput.indexer.v1.QueryService/QueryById", "reput.commitlog.v1.LogService/ReadRecords"
            assert collector.wait_for({("reput-indexer", query), ("reput-commitlog", read)}), collector.spans
            run, listing = "reput.janitor.v1.RetentionService/RunOnce", "reput.commitlog.v1.SegmentService/ListSegments"
            assert collector.wait_for({("reput-janitor", run), ("reput-commitlog", listing)}), collector.spans
