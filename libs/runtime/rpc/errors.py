# SPDX-License-Identifier: Apache-2.0
"""From a raised error to `google.rpc.Status`: each service has a table, and this module applies it.

Invariants: the status of every failed call has an ErrorInfo with domain "reput" and a reason of the ErrorReason proto.
A wrong argument adds a BadRequest, a temporary refusal adds a RetryInfo. An error that no table knows is a bug: the
caller gets INTERNAL and no detail, the log gets the traceback. docs/errors.md describes how clients handle each reason.
"""

import logging
from collections import Counter
from collections.abc import Mapping

import grpc
from google.protobuf.any import pack
from google.protobuf.duration import from_milliseconds
from google.protobuf.message import Message
from google.rpc.error_details_pb2 import BadRequest, ErrorInfo, RetryInfo
from google.rpc.status_pb2 import Status
from msgspec import Struct
from reput.common.v1.error_reason_pb2 import ErrorReason

from libs.requests import errors
from libs.runtime.rpc.planned import PlannedRefusal
from libs.runtime.trust.rights.access import AccessDenied, NoDoor, NoToken
from libs.runtime.trust.rights.quota import QuotaExceeded
from libs.runtime.trust.roles import Role

_log = logging.getLogger(__name__)

DOMAIN = "reput"
"""The `domain` of every ErrorInfo."""

SERVICE_SHOWN = 100

STATUS_METADATA_KEY = "grpc-status-details-bin"
"""The trailing metadata in which gRPC carries the serialized google.rpc.Status."""


TEXT_SIZE_BYTES_MAX, VALUE_SIZE_BYTES_MAX = 600, 300
"""Maximum size of a status text, and of a value of its metadata, which may repeat parts of a request. All metadata of a
call must fit into 8 KiB, with the text percent-encoded and the details in base64. Otherwise the caller would get no
status."""

LEFT_OUT = " … ".encode()
"""The mark that replaces the middle of a long text."""


class ErrorRow(Struct, frozen=True):
    """The status of a class of errors.

    `reason` is a name of ErrorReason without its prefix. `metadata` names attributes of the error that go into
    ErrorInfo under the same names; an attribute that is None is left out. `retry_after_ms` adds a RetryInfo.
    """

    code: grpc.StatusCode
    reason: str
    metadata: tuple[str, ...] = ()
    retry_after_ms: int | None = None

    def __post_init__(self) -> None:
        assert f"ERROR_REASON_{self.reason}" in ErrorReason.keys(), f"{self.reason} is not in the ErrorReason proto"  # noqa: SIM118


ErrorTable = Mapping[type[Exception], ErrorRow]


class RequestTooLarge(Exception):
    """A request exceeds a limit of its method. It was not parsed."""

    def __init__(self, what: str, *, value: int, limit: int) -> None:
        super().__init__(f"the request has {value} {what} or more, the limit is {limit}")
        self.value, self.limit = value, limit


class NotReady(Exception):
    """The server recovers its store and accepts no calls yet."""


class NotPermitted(Exception):
    """The caller is known, but its roles do not permit this call."""

    def __init__(self, method: str, role: Role) -> None:
        self.role = str(role.name).lower()
        text = f"{method.removeprefix('/')} needs the token of a store's {self.role} in the metadata key authorization"
        super().__init__(f"{text}; docs/security.md tells where it is")


class ServerFull(Exception):
    """The maximum of running calls, or of bytes of answers that wait for their readers, is reached."""

    def __init__(self, what: str, *, limit: int) -> None:
        super().__init__(f"{what}, the limit is {limit}")
        self.limit = limit


class HeldAnswer(Exception):
    """The answer of a protocol with statuses of its own to a request over a quota. It is held as a refusal is."""

    def __init__(self, subject: str, reply: bytes) -> None:
        super().__init__(f"{subject} is over its quota")
        self.subject, self.reply = subject, reply


class StreamNotRead(Exception):
    """A reader has left an answer of its stream unread for too long."""

    def __init__(self, limit_s: float) -> None:
        self.limit_ms = round(limit_s * 1000)
        super().__init__(f"nothing of the stream was read for {self.limit_ms} ms")


class ServiceNotFound(Exception):
    """A health call names a service that this server does not have."""

    def __init__(self, service: str) -> None:
        self.service = service[:SERVICE_SHOWN]
        super().__init__(f"no service {self.service!r} is served here")


BASE_TABLE: ErrorTable = {
    errors.MalformedRequest: ErrorRow(grpc.StatusCode.INVALID_ARGUMENT, "MALFORMED_REQUEST"),
    errors.BadArgument: ErrorRow(grpc.StatusCode.INVALID_ARGUMENT, "BAD_ARGUMENT", ("field", "value", "limit")),
    errors.BadTopicName: ErrorRow(grpc.StatusCode.INVALID_ARGUMENT, "BAD_TOPIC_NAME", ("field", "value", "limit")),
    errors.BadPageToken: ErrorRow(grpc.StatusCode.INVALID_ARGUMENT, "BAD_PAGE_TOKEN", ("field",)),
    errors.TopicSetApart: ErrorRow(grpc.StatusCode.FAILED_PRECONDITION, "TOPIC_SET_APART", ("topic", "why", "field")),
    errors.TopicNotFound: ErrorRow(grpc.StatusCode.NOT_FOUND, "TOPIC_NOT_FOUND", ("topic", "field")),
    errors.RecordDamaged: ErrorRow(grpc.StatusCode.DATA_LOSS, "RECORD_DAMAGED", ("segment", "position", "reason")),
    errors.WindowFull: ErrorRow(grpc.StatusCode.RESOURCE_EXHAUSTED, "WINDOW_FULL", ("limit",), retry_after_ms=100),
    errors.DependencyUnavailable: ErrorRow(
        grpc.StatusCode.UNAVAILABLE, "DEPENDENCY_UNAVAILABLE", ("service",), retry_after_ms=1_000
    ),
    errors.NotDurableYet: ErrorRow(grpc.StatusCode.UNAVAILABLE, "NOT_DURABLE_YET", retry_after_ms=1_000),
    RequestTooLarge: ErrorRow(grpc.StatusCode.INVALID_ARGUMENT, "REQUEST_TOO_LARGE", ("value", "limit")),
    NotReady: ErrorRow(grpc.StatusCode.UNAVAILABLE, "RECOVERING", retry_after_ms=1_000),
    errors.Stopping: ErrorRow(grpc.StatusCode.UNAVAILABLE, "STOPPING"),
    NoDoor: ErrorRow(grpc.StatusCode.UNAUTHENTICATED, "UNAUTHENTICATED"),
    NoToken: ErrorRow(grpc.StatusCode.UNAUTHENTICATED, "UNAUTHENTICATED"),
    NotPermitted: ErrorRow(grpc.StatusCode.PERMISSION_DENIED, "NOT_PERMITTED", metadata=("role",)),
    AccessDenied: ErrorRow(
        grpc.StatusCode.PERMISSION_DENIED, "NOT_PERMITTED", metadata=("subject", "action", "resource", "field")
    ),
    ServerFull: ErrorRow(grpc.StatusCode.RESOURCE_EXHAUSTED, "WINDOW_FULL", ("limit",), retry_after_ms=100),
    QuotaExceeded: ErrorRow(
        grpc.StatusCode.RESOURCE_EXHAUSTED, "QUOTA_EXCEEDED", ("subject", "quota", "value", "limit"), retry_after_ms=100
    ),
    StreamNotRead: ErrorRow(grpc.StatusCode.UNAVAILABLE, "STREAM_NOT_READ", ("limit_ms",)),
    ServiceNotFound: ErrorRow(grpc.StatusCode.NOT_FOUND, "SERVICE_NOT_FOUND", ("service",)),
}
"""Errors of the shell itself, and errors that all services share. A service's own table has priority."""

refusals: Counter[tuple[str, ...]] = Counter()
"""How many statuses were made in this process, by the names of their code and reason. The tables bound its size.

An answer can have many statuses: a stream has one for each refused batch, a call that settles one for each message.
"""


class Refusals(Struct, frozen=True):
    """How often something was refused for a reason."""

    refusals_total: int = 0
    """Calls, batches of streams, and messages of a call that were refused, by the reason that the caller got."""

    @classmethod
    def counted(cls) -> dict[tuple[str, ...], "Refusals"]:
        """Return the refusals of this process by code and reason."""
        return {names: cls(count) for names, count in refusals.copy().items()}


_INTERNAL = ErrorRow(grpc.StatusCode.INTERNAL, "INTERNAL")


def status_of(error: Exception, table: ErrorTable, *, is_counted: bool = True) -> Status:
    """Return the status that a client gets for this error. Logs a traceback when no row knows the error.

    An error with a retry time of its own has it as `retry_after_ms`.
    """
    if isinstance(error, PlannedRefusal):
        return error.status
    row = _find(error, table)
    if row is None:
        _log.error("unexpected %s: %s", type(error).__name__, error, exc_info=error)
        return _status(_INTERNAL, "internal error; the server's log has the details", [_error_info(_INTERNAL, error)])
    details: list[Message] = [_error_info(row, error)]
    if row.retry_after_ms is not None:
        retry_after_ms: int = getattr(error, "retry_after_ms", row.retry_after_ms)
        details.append(RetryInfo(retry_delay=from_milliseconds(retry_after_ms)))
    text = _bounded(str(error), TEXT_SIZE_BYTES_MAX)
    field = getattr(error, "field", "")
    if row.code is grpc.StatusCode.INVALID_ARGUMENT and field:
        violation = BadRequest.FieldViolation(field=_bounded(str(field), VALUE_SIZE_BYTES_MAX), description=text)
        details.append(BadRequest(field_violations=[violation]))
    return _status(row, text, details, is_counted=is_counted)


def code_of(status: Status) -> grpc.StatusCode:
    """Return the code of a status as gRPC's StatusCode."""
    return next(code for code in grpc.StatusCode if code.value[0] == status.code)


def _find(error: Exception, table: ErrorTable) -> ErrorRow | None:
    for rows in (table, BASE_TABLE):
        for kind in type(error).__mro__:
            if kind in rows:
                return rows[kind]
    return None


def _error_info(row: ErrorRow, error: Exception) -> ErrorInfo:
    values = {name: getattr(error, name) for name in row.metadata}
    metadata = {name: _bounded(str(value), VALUE_SIZE_BYTES_MAX) for name, value in values.items() if value is not None}
    return ErrorInfo(reason=row.reason, domain=DOMAIN, metadata=metadata)


def _bounded(text: str, size_bytes_max: int) -> str:
    """Return the text, with a mark in place of its middle if it is longer in UTF-8."""
    data = text.encode("utf-8", "replace")
    if len(data) <= size_bytes_max:
        return text
    half = (size_bytes_max - len(LEFT_OUT)) // 2
    return data[:half].decode(errors="ignore") + LEFT_OUT.decode() + data[-half:].decode(errors="ignore")


def _status(row: ErrorRow, message: str, details: list[Message], *, is_counted: bool = True) -> Status:
    refusals[row.code.name, row.reason] += is_counted
    return Status(code=row.code.value[0], message=message, details=[pack(detail) for detail in details])
