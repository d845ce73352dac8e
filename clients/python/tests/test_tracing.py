# SPDX-License-Identifier: Apache-2.0
"""Spans of producers and consumers, as a program that uses OpenTelemetry gets them, against a real store."""

import asyncio
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode
from reput_client import NewMessage, ReputError, aio, connect

from clients.python.tests.support import LIMIT_S
from tests.support.reput_up import Store, environment, store

pytestmark = pytest.mark.e2e


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Store]:
    """A store for all tests. Each test uses its own topic."""
    with store(tmp_path_factory.mktemp("store")) as running:
        yield running


@pytest.fixture
def spans(monkeypatch: pytest.MonkeyPatch) -> InMemorySpanExporter:
    """Where the program's tracer provider puts its spans."""
    exporter = InMemorySpanExporter()
    provider = TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    monkeypatch.setattr(trace, "get_tracer", provider.get_tracer)
    return exporter


def send_and_poll(running: Store, topic: str, *, is_async: bool) -> Any:
    """Send a message, poll it, and return it."""

    async def run() -> Any:
        async with aio.connect(**running.targets) as client:
            async with client.producer() as producer:
                await (await producer.send(topic, b"hello", queue_id=0))
            async with client.consumer(topic, group="g") as consumer:
                return await consumer.poll(LIMIT_S)

    if is_async:
        return asyncio.run(run())
    with connect(**running.targets) as client:
        with client.producer() as producer:
            producer.send(topic, b"hello", queue_id=0).result(LIMIT_S)
        with client.consumer(topic, group="g") as consumer:
            return consumer.poll(LIMIT_S)


@pytest.mark.parametrize("is_async", [False, True])
def test_one_message_is_one_trace(running: Store, spans: InMemorySpanExporter, is_async: bool) -> None:
    """The span of the receiver belongs to the trace of the sender, and both spans name their operation."""
    topic = f"one-{is_async}"
    message = send_and_poll(running, topic, is_async=is_async)
    sent, polled = spans.get_finished_spans()
    context = sent.get_span_context()
    ids = f"{context.trace_id:032x}-{context.span_id:016x}"
    assert message.properties["traceparent"] == f"00-{ids}-{context.trace_flags:02x}"
    assert (sent.name, sent.kind, sent.status.status_code) == (f"send {topic}", SpanKind.PRODUCER, StatusCode.UNSET)
    address, _, port = running.targets["commitlog"].rpartition(":")
    shared = {
        "messaging.system": "reput",
        "messaging.destination.name": topic,
        "messaging.destination.partition.id": "0",
        "messaging.message.id": message.unique_id,
        "messaging.message.body.size": 5,
    }
    assert dict(sent.attributes) == shared | {
        "messaging.operation.name": "send",
        "messaging.operation.type": "send",
        "server.address": address,
        "server.port": int(port),
    }
    assert (polled.name, polled.kind) == (f"poll {topic}", SpanKind.CONSUMER)
    assert polled.parent.span_id == context.span_id
    assert [link.context.span_id for link in polled.links] == [context.span_id]
    assert dict(polled.attributes) == shared | {
        "messaging.operation.name": "poll",
        "messaging.operation.type": "receive",
        "messaging.consumer.group.name": "g",
    }


def test_the_callers_own_span(running: Store, spans: InMemorySpanExporter) -> None:
    """It is the parent of the spans within it. A context that a message has already stays."""
    with connect(**running.targets) as client, trace.get_tracer("test").start_as_current_span("work") as work:
        with client.producer() as producer:
            own = {"traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"}
            producer.send("own", b"", queue_id=0, properties=own).result(LIMIT_S)
            messages = [NewMessage("own", b"", queue_id=0), NewMessage("own", b"", queue_id=0)]
            producer.send_batch(messages).result(LIMIT_S)
        with client.consumer("own") as consumer:
            received = []
            while len(received) < 3:
                received += consumer.poll_many(3 - len(received), LIMIT_S)
    by_name: dict[str, list[Any]] = {}
    for span in spans.get_finished_spans():
        by_name.setdefault(span.name, []).append(span)
    parents = {span.parent.span_id for span in by_name["send own"] + by_name["poll own"]}
    assert parents == {work.get_span_context().span_id}
    assert received[0].properties["traceparent"] == own["traceparent"]
    batch = by_name["send own"][1]
    assert batch.attributes["messaging.batch.message_count"] == 2
    linked = [link.context.span_id for span in by_name["poll own"] for link in span.links]
    assert linked == [0xB7AD6B7169203331, *[batch.get_span_context().span_id] * 2]
    assert sum(span.attributes["messaging.batch.message_count"] for span in by_name["poll own"]) == 3


def test_failures(running: Store, spans: InMemorySpanExporter) -> None:
    """A span has the error of a message that the server or the client refused."""
    with connect(**running.targets) as client, client.producer() as producer:
        with pytest.raises(ReputError):
            producer.send("refused", b"", queue_id=4444).result(LIMIT_S)
        producer.send_batch([NewMessage("refused", b"", queue_id=4444)]).result(LIMIT_S)
        with pytest.raises(TypeError):
            producer.send("refused", None)
    kinds = [span.attributes["error.type"] for span in spans.get_finished_spans()]
    assert kinds == ["QUEUE_OUT_OF_RANGE", "QUEUE_OUT_OF_RANGE", "TypeError"]
    assert {span.status.status_code for span in spans.get_finished_spans()} == {StatusCode.ERROR}


def test_a_program_that_does_not_trace(running: Store) -> None:
    """It does not import OpenTelemetry, and its messages carry nothing."""
    program = (
        "import sys\n"
        "from reput_client import connect\n"
        "with connect() as client:\n"
        "    with client.producer() as producer:\n"
        "        producer.send('untraced', b'', queue_id=0).result()\n"
        "    with client.consumer('untraced') as consumer:\n"
        "        assert set(consumer.poll().properties) == {'UNIQ_KEY'}\n"
        "assert not [name for name in sys.modules if name.partition('.')[0] == 'opentelemetry']\n"
    )
    variables = environment(running.client_environment())
    subprocess.run([sys.executable, "-c", program], env=variables, check=True, timeout=LIMIT_S)
