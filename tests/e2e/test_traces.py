# SPDX-License-Identifier: Apache-2.0
"""Traces across the services: a question and a message make a single trace each, which a collector receives."""

import threading
from pathlib import Path

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from reput_client import Received, connect

from tests.support.patience import LIMIT_S
from tests.support.reput_up import store
from tests.support.span_collector import collecting

pytestmark = pytest.mark.e2e


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


@pytest.fixture
def own_spans(monkeypatch: pytest.MonkeyPatch) -> InMemorySpanExporter:
    """The spans of this program, which traces all that it does."""
    exporter = InMemorySpanExporter()
    provider = TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    monkeypatch.setattr(trace, "get_tracer", provider.get_tracer)
    return exporter


def test_one_message_is_one_trace_over_all_services(tmp_path: Path, own_spans: InMemorySpanExporter) -> None:
    """The trace of a message has its way from the producer to its consumers, although the services sample nothing."""
    with collecting() as (collector, port):
        settings = {
            f"REPUT_{service}_{name}": value
            for service in ("COMMITLOG", "INDEXER", "DELIVERY")
            for name, value in (("OTLP_ENDPOINT", f"http://127.0.0.1:{port}"), ("TRACE_RATIO", "0"))
        }
        ports = ("--delivery", "--delivery-port", "0")
        with store(tmp_path / "store", *ports, extra=settings) as served, connect(**served.targets) as client:
            with client.producer() as producer:
                producer.send("orders", b"hello").result(LIMIT_S)
            with client.consumer("orders", group="nightly") as consumer:
                assert consumer.poll(LIMIT_S) is not None
            with client.share_consumer("orders", group="billing") as sharing:
                inside = []

                def handle(_: Received) -> None:
                    inside.append(trace.get_current_span().get_span_context().trace_id)
                    threading.Thread(target=sharing.close).start()

                sharing.run(handle)
            assert collector.wait_for(
                {
                    ("reput-commitlog", "reput.commitlog.v1.AppendService/AppendStream"),
                    ("reput-indexer", "reput.indexer.v1.QueueService/Subscribe"),
                    ("reput-delivery", "reput.delivery.v1.DeliveryService/Receive"),
                }
            ), collector.spans
    own = {span.name: span.context for span in own_spans.get_finished_spans() if span.context is not None}
    ids = {own[name].trace_id for name in ("send orders", "process orders")}
    assert ids == {*inside} == {int.from_bytes(one, "big") for one in collector.spans}
