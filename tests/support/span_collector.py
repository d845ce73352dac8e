# SPDX-License-Identifier: Apache-2.0
"""A collector of OTLP for tests: it receives the spans of services."""

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import grpc
from opentelemetry.proto.collector.trace.v1 import trace_service_pb2, trace_service_pb2_grpc

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
