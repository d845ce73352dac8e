# SPDX-License-Identifier: Apache-2.0
"""Tracing: spans of producers and consumers, for programs that use OpenTelemetry.

The tracer provider and the propagator are the program's own. Names follow OpenTelemetry's conventions for
messaging. The properties of a message carry the context of the span that sends it, as W3C's `traceparent` unless the
program has another propagator.
"""

import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import TYPE_CHECKING, Any

from reput_client.core.telemetry.unread import AnyFuture
from reput_client.core.types import Message, NewMessage, SendResult

if TYPE_CHECKING:
    from opentelemetry.trace import Span


def find_tracing() -> "Tracing | None":
    """Return a Tracing, None for a program that has not imported OpenTelemetry and so does not use spans."""
    if "opentelemetry" not in sys.modules:
        return None
    try:
        return Tracing()
    except ImportError:  # the program has only another part of its namespace
        return None


class Tracing:
    """Makes spans. Raises ImportError without OpenTelemetry's API."""

    def __init__(self) -> None:
        from opentelemetry import propagate, trace

        self._propagate, self._trace = propagate, trace
        self._tracer = trace.get_tracer("reput-client")

    @contextmanager
    def sending(
        self, messages: Sequence[NewMessage], target: str, future: "AnyFuture", *, is_batch: bool
    ) -> Iterator[Mapping[str, str]]:
        """Make the span of messages that the block encodes for a target, with their outcome in `future`.

        Yields the properties that carry its context.
        """
        address, _, port = target.rpartition(":")
        attributes = _attributes("send", "send", {str(message.topic) for message in messages})
        attributes |= {"server.address": address.strip("[]"), "server.port": int(port) if port.isdecimal() else 0}
        if is_batch:
            attributes["messaging.batch.message_count"] = len(messages)
        span = self._tracer.start_span(_name(attributes), kind=self._trace.SpanKind.PRODUCER, attributes=attributes)
        carried: dict[str, str] = {}
        self._propagate.inject(carried, self._trace.set_span_in_context(span))
        try:
            yield carried
        except Exception as error:
            _note(self._trace, span, error)
            span.end()
            raise
        if not is_batch:
            span.set_attribute("messaging.message.body.size", len(messages[0].body))
        future.watch(lambda done: self._end(span, done))

    def received(self, messages: Sequence[Message], group: str | None, *, is_batch: bool) -> None:
        """Make the span of messages that a poll returns, with links to the spans that sent them.

        The span for a single message belongs to the sender's trace, unless the caller has its own span.
        """
        contexts = [self._propagate.extract(message.properties) for message in messages]
        origins = [self._trace.get_current_span(context).get_span_context() for context in contexts]
        attributes = _attributes("poll", "receive", {message.topic for message in messages})
        if group is not None:
            attributes["messaging.consumer.group.name"] = group
        parent = None
        if is_batch:
            attributes["messaging.batch.message_count"] = len(messages)
        else:
            attributes |= _place(messages[0].queue_id, messages[0].unique_id)
            attributes["messaging.message.body.size"] = len(messages[0].raw_body)
            is_alone = not self._trace.get_current_span().get_span_context().is_valid
            parent = contexts[0] if is_alone else None
        links = [self._trace.Link(origin) for origin in origins if origin.is_valid]
        kind = self._trace.SpanKind.CONSUMER
        self._tracer.start_span(_name(attributes), parent, kind, attributes, links).end()

    @contextmanager
    def processing(self, message: Message, group: str) -> Iterator[None]:
        """Run a callback's block as a span, which is the current span there, with a link to the sender's span.

        The span belongs to the sender's trace, unless the caller has its own span.
        """
        context = self._propagate.extract(message.properties)
        origin = self._trace.get_current_span(context).get_span_context()
        is_alone = not self._trace.get_current_span().get_span_context().is_valid
        attributes = _attributes("process", "process", {message.topic}) | _place(message.queue_id, message.unique_id)
        attributes["messaging.consumer.group.name"] = group
        attributes["messaging.message.body.size"] = len(message.raw_body)
        with self._tracer.start_as_current_span(
            _name(attributes),
            context if is_alone else None,
            self._trace.SpanKind.CONSUMER,
            attributes,
            [self._trace.Link(origin)] if origin.is_valid else [],
            record_exception=False,
            set_status_on_exception=False,
        ) as span:
            try:
                yield
            except BaseException as error:
                _note(self._trace, span, error)
                raise

    def _end(self, span: "Span", done: Any) -> None:
        """End a span with the outcome of its messages."""
        if done.cancelled():
            span.end()
            return
        outcome = done.look()
        errors = [each for each in (outcome if isinstance(outcome, list) else [outcome]) if isinstance(each, Exception)]
        if errors:
            _note(self._trace, span, errors[0])
        elif isinstance(outcome, SendResult):
            span.set_attributes(_place(outcome.queue_id, outcome.unique_id))
        span.end()


def processing(tracing: Tracing | None, message: Message, group: str) -> AbstractContextManager[None]:
    """Run a callback's block as a span of a program that traces."""
    return nullcontext() if tracing is None else tracing.processing(message, group)


def _attributes(name: str, kind: str, topics: set[str]) -> dict[str, Any]:
    """Return the attributes of all spans. The destination is named if there is a single topic."""
    attributes = {"messaging.system": "reput", "messaging.operation.name": name, "messaging.operation.type": kind}
    if len(topics) == 1:
        attributes["messaging.destination.name"] = next(iter(topics))
    return attributes


def _name(attributes: Mapping[str, Any]) -> str:
    return " ".join(
        str(attributes[key]) for key in ("messaging.operation.name", "messaging.destination.name") if key in attributes
    )


def _place(queue_id: int, unique_id: str | None) -> dict[str, Any]:
    ids = {"messaging.message.id": unique_id} if unique_id else {}
    return {"messaging.destination.partition.id": str(queue_id), **ids}


def _note(trace: Any, span: "Span", error: BaseException) -> None:
    """Set the error of failed messages on a span."""
    span.set_attribute("error.type", getattr(error, "reason", "") or type(error).__qualname__)
    span.set_status(trace.Status(trace.StatusCode.ERROR, str(error)))
