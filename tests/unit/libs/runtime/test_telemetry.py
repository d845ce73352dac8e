# SPDX-License-Identifier: Apache-2.0
"""Telemetry: metrics at the endpoint, traces from caller to callee, uniform logs, no cost without an exporter."""

import asyncio
import socket
import threading
import urllib.request
from collections.abc import Sequence
from dataclasses import dataclass

import grpc
import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import SpanExporter, SpanExportResult
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind

from libs.runtime.errors import ListenFailed, PortInUse
from libs.runtime.rpc.fronts.in_loop import FrontStatistics
from libs.runtime.watch.metrics import columns
from libs.runtime.watch.telemetry import Telemetry
from services.delivery.engine.receive.filters import FilterCount
from tests.support.patience import LIMIT_S
from tests.unit.libs.runtime.servers import APPEND, DISPATCH, TooLate, serving

pytestmark = pytest.mark.usefixtures("each_front")


@dataclass(frozen=True)
class Numbers:
    """The counts of an engine."""

    appended_total: int
    """Messages."""
    queue_count: int
    """Queues."""
    log_size_bytes: int
    """Bytes of the log."""
    late_ms: int = 1_500
    """How late."""
    used_percent: int = 75
    """How full."""


async def scrape(telemetry: Telemetry) -> dict[str, float]:
    port = telemetry.serve_metrics("127.0.0.1", 0)

    def fetch() -> str:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=LIMIT_S) as answer:
            return answer.read().decode()

    lines = (await asyncio.to_thread(fetch)).splitlines()
    return {line.rsplit(" ", 1)[0]: float(line.rsplit(" ", 1)[1]) for line in lines if not line.startswith("#")}


async def test_statistics_become_metrics() -> None:
    """Each field is a metric, `_total` a counter; a collection takes a single snapshot."""
    telemetry = Telemetry.off("commitlog")
    calls = []

    def statistics() -> Numbers:
        calls.append(1)
        return Numbers(appended_total=7, queue_count=4, log_size_bytes=1 << 40)

    telemetry.observe("log", statistics)
    calls.clear()
    metrics = await scrape(telemetry)
    telemetry.shutdown()
    values = {name.partition("{")[0]: value for name, value in metrics.items()}
    assert values["reput_commitlog_log_appended_total"] == 7
    assert values["reput_commitlog_log_queues"] == 4
    assert values["reput_commitlog_log_log_size_bytes"] == 1 << 40
    assert values["reput_commitlog_log_late_seconds"] == 1.5
    assert values["reput_commitlog_log_used_ratio"] == 0.75
    assert "reput_commitlog_log_late_ms" not in values
    assert len(calls) == 1


async def test_several_things_have_labels() -> None:
    """Labels separate the numbers of several objects; a removed object has no numbers any more."""
    telemetry = Telemetry.off("delivery")
    things: dict[tuple[str, ...], Numbers] = {("g", "t"): Numbers(1, 2, 3), ("h", "t"): Numbers(4, 5, 6)}
    telemetry.observe_each("lag", ("group", "topic"), lambda: things, Numbers)

    async def found() -> dict[str, float]:
        metrics = await scrape(telemetry)
        return {
            name[name.index('"', name.index("group=")) + 1]: value
            for name, value in metrics.items()
            if "lag_queues{" in name
        }

    assert await found() == {"g": 2, "h": 5}
    del things["g", "t"]
    assert await found() == {"h": 5}
    telemetry.shutdown()


class DeadCollector(SpanExporter):
    """An exporter that tries until it is shut down."""

    def __init__(self) -> None:
        self.is_trying = threading.Event()
        self.is_shut_down = threading.Event()

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        self.is_trying.set()
        self.is_shut_down.wait()
        return SpanExportResult.FAILURE

    def shutdown(self) -> None:
        self.is_shut_down.set()


@pytest.mark.timeout(25)  # OpenTelemetry itself waits half a minute
async def test_a_dead_collector_does_not_hold_up_the_stop() -> None:
    """The exporter has a second for the last spans, which are lost then."""
    collector = DeadCollector()
    telemetry = Telemetry("commitlog", exporter=collector, trace_ratio=1)
    async with serving(telemetry=telemetry) as served:
        await served.call(APPEND)
    assert collector.is_trying.is_set()
    assert collector.is_shut_down.is_set()


async def test_calls_are_counted_by_method_and_code() -> None:
    """Good and failed calls appear in the histogram of durations."""
    telemetry = Telemetry.off("commitlog")
    async with serving(telemetry=telemetry) as served:
        await served.call(APPEND)
        served.append.error = TooLate(1)
        with pytest.raises(grpc.aio.AioRpcError):
            await served.call(APPEND)
        metrics = await scrape(telemetry)
    counts = {name: value for name, value in metrics.items() if "duration_seconds_count" in name}
    assert sorted(counts.values()) == [1, 1]
    assert {("INVALID_ARGUMENT" in name, "AppendService/Append" in name) for name in counts} == {
        (True, True),
        (False, True),
    }


def test_a_metrics_port_in_use_is_named() -> None:
    """The endpoint's own port gets its own line."""
    telemetry = Telemetry.off()
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(
            PortInUse, match=f"127.0.0.1:{port} is in use by another process; choose another metrics_port"
        ):
            telemetry.serve_metrics("127.0.0.1", port)
    with pytest.raises(ListenFailed, match=r"192\.0\.2\.1"):
        telemetry.serve_metrics("192.0.2.1", 0)
    telemetry.shutdown()


def traced() -> tuple[Telemetry, InMemorySpanExporter]:
    exporter = InMemorySpanExporter()
    return Telemetry("commitlog", exporter=exporter, trace_ratio=1.0), exporter


async def test_a_trace_goes_from_caller_to_callee() -> None:
    """The server's span is a child of the client's, has service and status, and covers the servicer."""
    client, client_spans = traced()
    server, server_spans = traced()
    inside: list[int] = []
    async with serving(telemetry=server) as served:
        original = served.append.Append

        async def remember(request: bytes, context: object) -> bytes:
            inside.append(trace.get_current_span().get_span_context().trace_id)
            return await original(request, context)

        interceptors = client.client_interceptors()
        async with grpc.aio.insecure_channel(f"localhost:{served.server.port}", interceptors=interceptors) as channel:
            await channel.unary_unary(APPEND)(b"x")
            served.append.error = TooLate(1)
            with pytest.raises(grpc.aio.AioRpcError):
                await channel.unary_unary(APPEND)(b"x")
        assert server.tracer_provider is not None
        assert client.tracer_provider is not None
        client.tracer_provider.force_flush()
        while len(server_spans.get_finished_spans()) < 2:  # the caller may hear of the end before the span does
            await asyncio.sleep(0)
            server.tracer_provider.force_flush()
    callers: tuple[ReadableSpan, ...] = client_spans.get_finished_spans()
    callees: tuple[ReadableSpan, ...] = server_spans.get_finished_spans()
    client.shutdown()
    assert [span.kind for span in callees] == [SpanKind.SERVER, SpanKind.SERVER]
    assert {span.parent.span_id for span in callees if span.parent} == {span.context.span_id for span in callers}
    assert [(span.attributes or {})["rpc.grpc.status_code"] for span in callees] == [0, 3]
    assert [span.status.is_ok for span in callees] == [True, False]
    assert callees[0].resource.attributes["service.name"] == "reput-commitlog"


async def test_nobody_exports_so_nothing_is_traced(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without an exporter there is no interceptor, no tracer and no look at the metadata."""
    telemetry = Telemetry.off()
    assert list(telemetry.client_interceptors()) == []
    monkeypatch.setattr("opentelemetry.propagate.extract", lambda *_: pytest.fail("looked at the metadata"))
    async with serving(telemetry=telemetry) as served:
        await served.call(APPEND)
        call = served.channel.unary_stream(DISPATCH)(b"")
        await call.read()
        call.cancel()


async def test_old_names_are_served_when_asked_for() -> None:
    """Each renamed family is there twice, each with its own unit."""
    telemetry = Telemetry("commitlog", exporter=None, trace_ratio=0, has_old_names=True)
    telemetry.observe("log", lambda: Numbers(appended_total=7, queue_count=4, log_size_bytes=1))
    values = await scrape(telemetry)
    telemetry.shutdown()
    assert values["reput_commitlog_log_late_ms"] == 1_500
    assert values["reput_commitlog_log_late_seconds"] == 1.5
    assert values["reput_commitlog_log_queue_count"] == values["reput_commitlog_log_queues"] == 4


async def test_statistics_that_fail_hide_no_other_metric(caplog: pytest.LogCaptureFixture) -> None:
    """The other families have their samples, and the log says which family has none."""
    telemetry = Telemetry.off("commitlog")
    fail = iter([Numbers(1, 2, 3)])
    telemetry.observe("broken", lambda: next(fail))
    telemetry.observe("log", lambda: Numbers(7, 4, 1))
    values = await scrape(telemetry)
    telemetry.shutdown()
    assert values["reput_commitlog_log_queues"] == 4
    assert "reput_commitlog_broken_queues" not in values
    assert "no metrics of reput_commitlog_broken_appended_total" in caplog.text


def test_a_field_without_a_sentence_is_refused() -> None:
    """Each family has a help."""

    @dataclass
    class Mute:
        """Numbers without sentences."""

        appended_total: int = 0

    with pytest.raises(ValueError, match="appended_total: a metric needs a sentence"):
        columns("reput_x_log", Mute)


def test_former_names_are_those_that_were_served() -> None:
    """Fields that were renamed keep the former name of their family."""
    found = {column.name: column.former.name for column in columns("reput_x_front", FrontStatistics)}
    assert found["reput_x_front_opened_connections_total"] == "reput_x_front_connections_total"
    (filters,) = columns("reput_delivery_group", FilterCount)
    assert (filters.name, filters.former.name) == ("reput_delivery_group_filters", "reput_delivery_group_filter_count")
