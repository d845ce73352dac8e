# SPDX-License-Identifier: Apache-2.0
"""Fake services, made to misbehave on demand, behind a real gRPC server: the seam that the client's tests drive.

NotingSink: the receiver of an outcome, without a producer.
"""

import threading
from collections.abc import Callable, Iterator
from concurrent import futures
from contextlib import contextmanager
from typing import Any

import grpc
from google.protobuf.any_pb2 import Any as AnyProto
from google.protobuf.duration_pb2 import Duration
from google.rpc import error_details_pb2, status_pb2
from reput.commitlog.v1 import append_service_pb2 as append
from reput_client import ReputError, SendResult
from reput_client.core.sending import Stored
from reput_client.core.telemetry.unread import Round

LIMIT_S = 240.0
"""How long a test waits for an expected event: longer than any machine takes; only a hanging test reaches it."""


def status(
    code: grpc.StatusCode,
    reason: str,
    *,
    metadata: dict[str, str] | None = None,
    field: str = "",
    retry_after_s: float | None = None,
) -> status_pb2.Status:
    """A google.rpc.Status as Reput sends it."""
    details: list[Any] = [error_details_pb2.ErrorInfo(reason=reason, domain="reput", metadata=metadata or {})]
    if field:
        violation = error_details_pb2.BadRequest.FieldViolation(field=field, description="wrong")
        details.append(error_details_pb2.BadRequest(field_violations=[violation]))
    if retry_after_s is not None:
        delay = Duration(seconds=int(retry_after_s), nanos=int(retry_after_s % 1 * 1e9))
        details.append(error_details_pb2.RetryInfo(retry_delay=delay))
    result = status_pb2.Status(code=code.value[0], message=f"because of {reason}")
    for detail in details:
        packed = AnyProto()
        packed.Pack(detail)
        result.details.append(packed)
    return result


def fail(context: grpc.ServicerContext, error: status_pb2.Status) -> None:
    """End a call with a rich status."""
    context.set_trailing_metadata((("grpc-status-details-bin", error.SerializeToString()),))
    code = next(code for code in grpc.StatusCode if code.value[0] == error.code)
    context.abort(code, error.message)


class Log:
    """An AppendService that stores its requests, each number of a writer a single time, and follows `plan`.

    `plan(batch_number, messages)` returns None to store the batch, a Status to refuse it, or an exception to break the
    stream before (ConnectionError) or after (ConnectionResetError) the batch was stored.
    """

    def __init__(self, plan: Callable[[int, list[Any]], Any] = lambda _number, _messages: None) -> None:
        self.plan = plan
        self.stored: list[append.AppendMessage] = []
        self.by_writer: dict[tuple[str, int], bytes] = {}
        self._lock = threading.Lock()
        self.batch_sizes: list[int] = []
        self.stream_count = 0
        self.metadata: list[tuple[str, str]] = []
        self.gate = threading.Event()
        self.gate.set()

    def AppendStream(self, requests: Iterator[bytes], context: grpc.ServicerContext) -> Iterator[bytes]:  # noqa: N802
        """See append_service.proto."""
        self.stream_count += 1
        self.metadata = [(key, value) for key, value in context.invocation_metadata()]
        was_refused = False
        for data in requests:
            self.gate.wait()
            request = append.AppendStreamRequest.FromString(data)
            messages = list(request.messages)
            self.batch_sizes.append(len(messages))
            answer = self.plan(len(self.batch_sizes) - 1, messages)
            if isinstance(answer, ConnectionResetError):
                self._settle(request)
            if isinstance(answer, Exception):
                context.abort(grpc.StatusCode.UNAVAILABLE, "the line was cut")
            if answer is None and was_refused and request.needs_previous:
                answer = status(grpc.StatusCode.ABORTED, "AFTER_REFUSAL")
            was_refused = answer is not None
            response = append.AppendStreamResponse()
            if answer is None:
                response.outcomes.append(self._settle(request))
            else:
                response.outcomes.add().error.CopyFrom(answer)
            yield response.SerializeToString()

    def _settle(self, request: append.AppendStreamRequest) -> append.AppendOutcome:
        with self._lock:
            return self._outcome(request)

    def _outcome(self, request: append.AppendStreamRequest) -> append.AppendOutcome:
        """Store a batch, unless its writer's number says otherwise."""
        writer, failed = request.writer, grpc.StatusCode.FAILED_PRECONDITION
        key, raw = (writer.id, writer.sequence), request.SerializeToString()
        if not writer.id:
            return append.AppendOutcome(result=self._store(list(request.messages)))
        if key in self.by_writer:
            if self.by_writer[key] != raw:
                return append.AppendOutcome(error=status(grpc.StatusCode.ALREADY_EXISTS, "WRITER_CONTENT_DIFFERS"))
            return append.AppendOutcome(result=append.AppendResult(durability=1, is_repeated=True))
        if writer.sequence > 0 and (writer.id, writer.sequence - 1) not in self.by_writer:
            return append.AppendOutcome(error=status(failed, "WRITER_SEQUENCE_GAP"))
        self.by_writer[key] = raw
        return append.AppendOutcome(result=self._store(list(request.messages)))

    def _store(self, messages: list[append.AppendMessage]) -> append.AppendResult:
        first = len(self.stored)
        self.stored.extend(messages)
        numbers = range(first, len(self.stored))
        return append.AppendResult(
            start_physical_offset=first * 100,
            store_time_ms=1_700_000_000_123,
            durability=1,
            physical_offsets=[number * 100 for number in numbers],
            queue_offsets=list(numbers),
            queue_ids=[message.queue_id for message in messages],
            store_host={"address": bytes([127, 0, 0, 1]), "port": 7101},
        )

    def handler(self) -> grpc.GenericRpcHandler:
        """Return the handler that a server registers."""
        method = grpc.stream_stream_rpc_method_handler(self.AppendStream)
        return grpc.method_handlers_generic_handler("reput.commitlog.v1.AppendService", {"AppendStream": method})


class Unary:
    """A service of unary and server-streaming methods given as functions of (request, context)."""

    def __init__(self, service: str, *, streams: dict[str, Any] | None = None, **methods: tuple[Any, Any]) -> None:
        handlers = {
            name: grpc.unary_unary_rpc_method_handler(
                function, request_deserializer=kind.FromString, response_serializer=lambda m: m.SerializeToString()
            )
            for name, (kind, function) in methods.items()
        }
        for name, (kind, function) in (streams or {}).items():
            handlers[name] = grpc.unary_stream_rpc_method_handler(
                function, request_deserializer=kind.FromString, response_serializer=lambda m: m.SerializeToString()
            )
        self._handler = grpc.method_handlers_generic_handler(service, handlers)

    def handler(self) -> grpc.GenericRpcHandler:
        """Return the handler that a server registers."""
        return self._handler


@contextmanager
def serving(*services: Any) -> Iterator[str]:
    """Serve the fakes and give their target."""
    server = grpc.server(
        futures.ThreadPoolExecutor(16), options=[("grpc.max_receive_message_length", -1), ("grpc.so_reuseport", 0)]
    )
    server.add_generic_rpc_handlers([service.handler() for service in services])
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    try:
        yield f"127.0.0.1:{port}"
    finally:
        server.stop(None).wait()


class NotingSink:
    """The sink of a message that puts its outcome under a name into a dictionary, a single time."""

    stored: Stored | SendResult | None = None

    def __init__(self, outcomes: dict[str, object], name: str) -> None:
        self._outcomes, self._name = outcomes, name

    def done(self) -> bool:
        return False

    def set_result(self, row: int, /) -> None:
        assert isinstance(self.stored, Stored)
        self._note(self.stored.at(row))

    def set_exception(self, error: ReputError, /) -> None:
        self._note(error)

    def note_failure(self, round_: Round, error: ReputError) -> None:
        round_.add(error)

    def _note(self, outcome: object) -> None:
        assert self._name not in self._outcomes, "settled twice"
        self._outcomes[self._name] = outcome
