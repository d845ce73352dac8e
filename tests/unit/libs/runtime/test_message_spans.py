# SPDX-License-Identifier: Apache-2.0
"""The spans of messages in requests and answers."""

import time

import pytest
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from reput.common.v1 import message_pb2

from libs.runtime.trust.roles import ROLES
from libs.runtime.watch import message_spans
from libs.runtime.watch.message_spans import METHODS, contexts_in
from libs.runtime.watch.telemetry import Telemetry

METHOD = "reput.commitlog.v1.AppendService/AppendStream"
TRACE, SPAN = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"


def in_string(trace_id: str = TRACE, span_id: str = SPAN, flags: str = "01") -> bytes:
    """A context as a record has it."""
    return b"KEYS\x01k\x02traceparent\x01" + f"00-{trace_id}-{span_id}-{flags}".encode() + b"\x02"


def in_map() -> bytes:
    """A context as an answer has it."""
    return message_pb2.StoredMessage(properties={"traceparent": f"00-{TRACE}-{SPAN}-01", "a": "b"}).SerializeToString(
        deterministic=True
    )


@pytest.mark.parametrize("data", [in_string(), in_map(), in_string() + in_map()])
def test_a_context_is_found_once(data: bytes) -> None:
    """In a property string and in a map of protobuf."""
    (found,) = contexts_in(data)
    assert (f"{found.trace_id:032x}", f"{found.span_id:016x}") == (TRACE, SPAN)


@pytest.mark.parametrize(
    "data", [b"", in_string(flags="00"), in_string(trace_id="0" * 32), in_string()[:-10], b"traceparent\x01nonsense"]
)
def test_other_bytes_have_no_context(data: bytes) -> None:
    """A context that is not sampled, is invalid or is cut off has no span."""
    assert not list(contexts_in(data))


def test_spans_of_a_batch_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first messages of a batch have spans."""
    monkeypatch.setattr(message_spans, "SPAN_COUNT_MAX", 3)
    assert len(list(contexts_in(b"".join(in_string(span_id=f"{number:016x}") for number in range(1, 9))))) == 3


def test_a_span_belongs_to_the_messages_trace() -> None:
    """It is a child of the sender's span, also if the service itself samples nothing."""
    exporter = InMemorySpanExporter()
    telemetry = Telemetry("commitlog", exporter=exporter, trace_ratio=0)
    note = telemetry.message_note(METHOD)
    assert note is not None
    start_ns = time.time_ns()
    note(in_string(), start_ns)
    note(b"a request without", start_ns)
    telemetry.shutdown()
    (span,) = exporter.get_finished_spans()
    assert span.parent is not None
    assert span.context is not None
    assert (f"{span.context.trace_id:032x}", f"{span.parent.span_id:016x}") == (TRACE, SPAN)
    assert (span.name, span.start_time) == (METHOD, start_ns)


def test_nothing_is_searched_without_traces() -> None:
    """A service that exports no traces, and a call without messages, have no Note."""
    assert Telemetry.off().message_note(METHOD) is None
    telemetry = Telemetry("commitlog", exporter=InMemorySpanExporter(), trace_ratio=1)
    assert telemetry.message_note("reput.commitlog.v1.LogService/GetStatus") is None
    telemetry.shutdown()


def test_the_methods_are_ours() -> None:
    """Each call with messages is a call of the protos."""
    assert {f"/{method}" for method in METHODS} <= set(ROLES)
