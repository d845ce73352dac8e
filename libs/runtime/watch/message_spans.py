# SPDX-License-Identifier: Apache-2.0
"""MessageSpans: a span in the trace of each sampled message that a call takes or returns.

A producer that uses tracing puts its span's context into the property `traceparent` (W3C). The services find it in the
bytes of requests and answers. So a message's trace has its send, its append, each answer with it, and its consumers.
The producer decides: a message whose context is not sampled has no span. While a service exports no traces, nothing is
searched.
"""

import re
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from opentelemetry.trace import SpanContext, Tracer

METHODS = frozenset(
    {
        "reput.commitlog.v1.AppendService/Append",
        "reput.commitlog.v1.AppendService/AppendStream",
        "reput.indexer.v1.QueueService/Pull",
        "reput.indexer.v1.QueueService/Subscribe",
        "reput.indexer.v1.ScanService/Scan",
        "reput.delivery.v1.DeliveryService/Receive",
        "reput.delivery.v1.DeliveryService/Consume",
    }
)
"""The calls that take or return messages. Queries for single messages are left out: they look at the past."""
NAME = b"traceparent"
CONTEXT = re.compile(NAME + rb"(?:\x01|\x12\x37)00-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})")
"""In a property string the value follows a byte 1; in a map of protobuf it is a field of 55 bytes."""
SPAN_COUNT_MAX = 128
"""Spans of a request or an answer, so that a batch of traced messages does not fill the exporter's queue."""

Note = Callable[[bytes, int], None]
"""Makes the spans of a request or an answer. The second value is the time of their start, in ns since the epoch."""


def note_of(tracer: "Tracer | None", method: str) -> Note | None:
    """Return the Note of a method, None if it carries no messages or nothing is traced."""
    if tracer is None or method not in METHODS:
        return None
    from opentelemetry import trace
    from opentelemetry.trace import Link, NonRecordingSpan, SpanKind

    def note(data: bytes, start_ns: int) -> None:
        if NAME not in data:
            return
        call = trace.get_current_span().get_span_context()
        links = [Link(call)] if call.is_valid else []
        attributes = {"messaging.system": "reput", "rpc.system": "grpc", "rpc.method": method}
        for context in contexts_in(data):
            parent = trace.set_span_in_context(NonRecordingSpan(context))
            tracer.start_span(method, parent, SpanKind.INTERNAL, attributes, links, start_ns).end(time.time_ns())

    return note


def contexts_in(data: bytes) -> "Iterator[SpanContext]":
    """Yield the sampled contexts of messages in a request or an answer, each once, the first SPAN_COUNT_MAX."""
    from opentelemetry.trace import SpanContext, TraceFlags

    found: set[tuple[bytes, bytes]] = set()
    for match in CONTEXT.finditer(data):
        trace_id, span_id, flags = match.groups()
        if int(flags, 16) & TraceFlags.SAMPLED and (trace_id, span_id) not in found:
            found.add((trace_id, span_id))
            context = SpanContext(int(trace_id, 16), int(span_id, 16), is_remote=True, trace_flags=TraceFlags(1))
            if context.is_valid:
                yield context
            if len(found) == SPAN_COUNT_MAX:
                return
