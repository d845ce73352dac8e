# SPDX-License-Identifier: Apache-2.0
"""Telemetry: logs to standard error, metrics for Prometheus, traces by OTLP. The engines count; this room reports.

OpenTelemetry is imported where an endpoint is set: it takes longer than the rest of a service.

Invariants: while no OTLP endpoint is set, no span is made and no interceptor runs, so tracing costs nothing. Metrics
are collected only on request. A process has a single object, which is passed to its users. Only logging is global.
"""

from __future__ import annotations

import contextlib
import errno
import functools
import logging
import ssl
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Self

import grpc

from libs.runtime.errors import ConfigError, ListenFailed, PortInUse
from libs.runtime.settings import ListenConfig, TelemetryConfig
from libs.runtime.trust.credentials import ssl_context
from libs.runtime.trust.tokens import TokenFile
from libs.runtime.watch.durations import CallDurations, DurationsFamily, Read
from libs.runtime.watch.identity import Build
from libs.runtime.watch.logs import set_up_logging
from libs.runtime.watch.message_spans import Note, note_of
from libs.runtime.watch.metrics import Metrics

if TYPE_CHECKING:
    from _typeshed import DataclassInstance
    from opentelemetry.sdk._logs.export import LogRecordExporter
    from opentelemetry.sdk.metrics.export import MetricExporter
    from opentelemetry.sdk.resources import Resource
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import SpanExporter
    from opentelemetry.trace import Span, Tracer
    from prometheus_client import CollectorRegistry

    from libs.runtime.watch.log_export import LogExport
    from libs.runtime.watch.metrics_export import MetricsExport
    from libs.runtime.watch.metrics_server import MetricsServer
    from libs.runtime.watch.registry import Source

EXPORT_TIMEOUT_S = 1.0
"""Maximum delay of a stop by the export of the last spans."""

_NO_SPAN = contextlib.nullcontext[None]()
"""Shared by all calls that are not traced."""


def end_span(span: Span | None, code: grpc.StatusCode) -> None:
    """Record the status code of a served call in its span. None: the call is not traced."""
    if span is not None and span.is_recording():
        from opentelemetry.trace import Status, StatusCode

        span.set_attribute("rpc.grpc.status_code", code.value[0])
        if code is not grpc.StatusCode.OK:
            span.set_status(Status(StatusCode.ERROR, code.name))


class Telemetry:
    """The metrics, traces and exported logs of a service. Make it with `set_up`, or with `off` to report nothing."""

    def __init__(
        self, service: str, *, exporter: SpanExporter | None, trace_ratio: float, has_old_names: bool = False
    ) -> None:
        self.service = service
        self._metrics = Metrics(has_old_names=has_old_names)
        self._sources: list[Source] = [self._metrics, Build(service)]
        calls = CallDurations()
        self.observe_durations(
            "rpc_duration", ("method", "code"), "Duration of served calls; streams count when they end.",
            lambda: calls.by_call,
        )  # fmt: skip
        self.count_rpc = calls.count
        self._exporter = exporter
        self.tracer_provider: TracerProvider | None = None
        self._tracer: Tracer | None = None
        if exporter is not None:
            self._begin_traces(exporter, trace_ratio)
        self._http: MetricsServer | None = None
        self._metrics_export: MetricsExport | None = None
        self._log_export: LogExport | None = None
        self.settings: Callable[[], object] | None = None
        """Returns for /settings the settings in force. None before a service exists."""
        self.is_serving: Callable[[], bool] | None = None
        """Returns for /healthz whether the service's gRPC health is SERVING. None before a service exists."""

    def _begin_traces(self, exporter: SpanExporter, trace_ratio: float) -> None:
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor
        from opentelemetry.sdk.trace.sampling import ParentBasedTraceIdRatio

        sampler = ParentBasedTraceIdRatio(trace_ratio)
        self.tracer_provider = TracerProvider(sampler, self._resource(), shutdown_on_exit=False)
        self.tracer_provider.add_span_processor(BatchSpanProcessor(exporter))
        self._tracer = self.tracer_provider.get_tracer("reput")

    def _resource(self) -> Resource:
        from opentelemetry.sdk.resources import Resource

        return Resource.create({"service.name": f"reput-{self.service}"})

    @classmethod
    def off(cls, service: str = "test") -> Self:
        """Return a telemetry that reports nothing, for tests and tools."""
        return cls(service, exporter=None, trace_ratio=0)

    def serve_metrics(
        self, host: str, port: int, *, context: ssl.SSLContext | None = None, tokens: TokenFile | None = None
    ) -> int:
        """Open the Prometheus endpoint and return its port. Raises PortInUse or ListenFailed."""
        from libs.runtime.watch.metrics_server import MetricsServer

        address = f"{host}:{port}"
        try:
            self._http = MetricsServer(
                host, port, self.registry, self._is_serving, context=context, tokens=tokens, settings=self._settings
            )
        except OSError as error:
            if error.errno == errno.EADDRINUSE:
                raise PortInUse(address, setting="metrics_port") from error
            raise ListenFailed(address, reason=error.strerror or str(error)) from error
        return self._http.server_port

    def export_metrics(self, exporter: MetricExporter, *, interval_s: float) -> None:
        """Send all metrics by OTLP at an interval, until `shutdown`."""
        from libs.runtime.watch.metrics_export import MetricsExport

        self._metrics_export = MetricsExport(self.registry, exporter, self._resource(), interval_s=interval_s)
        self._metrics_export.start()

    def export_logs(self, exporter: LogRecordExporter) -> None:
        """Send all log lines by OTLP, too, until `shutdown`."""
        from libs.runtime.watch.log_export import LogExport

        self._log_export = LogExport(exporter, self._resource())
        logging.getLogger().addHandler(self._log_export)

    @functools.cached_property
    def registry(self) -> CollectorRegistry:
        """The registry of all metrics, also of metrics that are added later."""
        from libs.runtime.watch.registry import registry_of

        return registry_of(self._sources)

    def add(self, source: Source) -> None:
        """Report further families of metrics."""
        self._sources.append(source)

    def _settings(self) -> object:
        return None if self.settings is None else self.settings()

    def _is_serving(self) -> bool:
        return self.is_serving is not None and self.is_serving()

    def observe(self, name: str, statistics: Callable[[], DataclassInstance]) -> None:
        """Report the numbers of a dataclass that `statistics` returns, as `reput_<service>_<name>_…`.

        `libs.runtime.watch.metrics` has the names, types and units. `statistics` is called in the endpoint's thread,
        once per collection; it must be quick and must not need the event loop.
        """
        self._metrics.add(f"reput_{self.service}_{name}", (), type(statistics()), lambda: {(): statistics()})

    def observe_each(
        self,
        name: str,
        labels: Sequence[str],
        statistics: Callable[[], Mapping[tuple[str, ...], DataclassInstance]],
        kind: type[DataclassInstance],
    ) -> None:
        """Report the numbers of several objects of a `kind`, with labels that identify the object.

        `statistics` returns the objects by the values of their labels, and is called like the function of `observe`.
        The caller bounds the number of objects.
        """
        self._metrics.add(f"reput_{self.service}_{name}", labels, kind, statistics)

    def observe_durations(self, name: str, labels: Sequence[str], description: str, read: Read) -> None:
        """Report durations as the histogram `reput_<service>_<name>_seconds`.

        `read` returns the durations by the values of their labels, and is called like the function of `observe`.
        """
        self.add(DurationsFamily(f"reput_{self.service}_{name}_seconds", description, labels, read))

    @property
    def is_tracing(self) -> bool:
        """Whether served calls are traced."""
        return self._tracer is not None

    def server_span(
        self, method: str, context: grpc.aio.ServicerContext[Any, Any]
    ) -> contextlib.AbstractContextManager[Span | None]:
        """Run a block as the span of a served call, child of the caller's span if the metadata carry one (W3C)."""
        if self._tracer is None:
            return _NO_SPAN
        from opentelemetry import propagate
        from opentelemetry.trace import SpanKind

        carrier = {key: value for key, value in context.invocation_metadata() or () if isinstance(value, str)}
        return self._tracer.start_as_current_span(
            method,
            propagate.extract(carrier),
            SpanKind.SERVER,
            {"rpc.system": "grpc", "rpc.method": method},
            record_exception=False,
            set_status_on_exception=False,
        )

    def message_note(self, method: str) -> Note | None:
        """Return what makes the spans of a call's messages, None if nothing is traced or the call has no messages."""
        return note_of(self._tracer, method)

    def client_interceptors(self) -> Sequence[grpc.aio.ClientInterceptor]:
        """Return the interceptors that trace a channel's calls. Empty when no spans are exported."""
        if self.tracer_provider is None:
            return []
        from opentelemetry.instrumentation.grpc import aio_client_interceptors

        interceptors = aio_client_interceptors(tracer_provider=self.tracer_provider)  # type: ignore[no-untyped-call]
        return [
            interceptor for interceptor in interceptors if isinstance(interceptor, grpc.aio.UnaryUnaryClientInterceptor)
        ]

    def shutdown(self) -> None:
        """Export the remaining spans and close the endpoint. May be repeated."""
        if self._http is not None:
            self._http.close()
            self._http = None
        if self._metrics_export is not None:
            self._metrics_export.stop()
            self._metrics_export = None
        if self._log_export is not None:
            logging.getLogger().removeHandler(self._log_export)
            self._log_export.close()
            self._log_export = None
        if self.tracer_provider is not None:
            self._end_traces(self.tracer_provider)
            self.tracer_provider = self._tracer = None

    def _end_traces(self, provider: TracerProvider) -> None:
        """Export the last spans. They are lost if a collector does not answer, because the stop must not wait."""
        assert self._exporter is not None
        ending = threading.Thread(target=provider.shutdown, name="traces", daemon=True)
        ending.start()
        ending.join(EXPORT_TIMEOUT_S)
        if ending.is_alive():
            self._exporter.shutdown()  # ends the attempt that is under way
            ending.join(EXPORT_TIMEOUT_S)


def set_up(service: str, config: TelemetryConfig, server: ListenConfig) -> Telemetry:
    """Configure logging, and open the metrics endpoint and the exporter of the configuration.

    Raises PortInUse or ListenFailed, and ConfigError for files of TLS and tokens.
    """
    set_up_logging(service, config.log_level, config.log_format)
    telemetry = Telemetry(
        service,
        exporter=_span_exporter(config) if config.otlp_endpoint else None,
        trace_ratio=config.trace_ratio,
        has_old_names=config.metrics_old_names,
    )
    if config.otlp_endpoint:
        _export(telemetry, config)
    if config.metrics_port:
        context = ssl_context(server, protocol="http/1.1") if config.metrics_tls else None
        if config.metrics_tls and context is None:
            raise ConfigError("metrics_tls needs tls_certificate_file and tls_key_file")
        path = config.metrics_token_file
        tokens = None if path is None else TokenFile("metrics_token_file", path)
        telemetry.serve_metrics(config.metrics_host, config.metrics_port, context=context, tokens=tokens)
    return telemetry


def _span_exporter(config: TelemetryConfig) -> SpanExporter:
    from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter

    return OTLPSpanExporter(config.otlp_endpoint, insecure=_is_insecure(config))


def _export(telemetry: Telemetry, config: TelemetryConfig) -> None:
    """Send metrics and log lines, as far as they are wanted."""
    from opentelemetry.exporter.otlp.proto.grpc._log_exporter import OTLPLogExporter
    from opentelemetry.exporter.otlp.proto.grpc.metric_exporter import OTLPMetricExporter

    endpoint, is_insecure = config.otlp_endpoint, _is_insecure(config)
    if config.otlp_metrics_interval_ms:
        metrics = OTLPMetricExporter(endpoint, insecure=is_insecure)
        telemetry.export_metrics(metrics, interval_s=config.otlp_metrics_interval_ms / 1000)
    if config.otlp_logs:
        telemetry.export_logs(OTLPLogExporter(endpoint, insecure=is_insecure))


def _is_insecure(config: TelemetryConfig) -> bool:
    return config.otlp_endpoint.startswith("http://")
