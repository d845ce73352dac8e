# SPDX-License-Identifier: Apache-2.0
"""Errors of this client: the decoded details of a failed call, so that callers can switch on a type or a reason."""

from collections.abc import Iterable
from typing import Any

import grpc
from google.protobuf.message import DecodeError
from google.rpc import status_pb2

DETAILS_KEY = "grpc-status-details-bin"
DOMAIN = "reput"


class ReputError(Exception):
    """A call failed.

    `code` is gRPC's status code. `reason` is a reason of docs/errors.md, empty if the answer did not come from Reput.
    `metadata` has the values that belong to the reason. `fields` has the names of the request's invalid fields.
    `retry_after` is the time in seconds after which another attempt makes sense, None if the server gave no time.
    """

    def __init__(
        self,
        text: str,
        *,
        code: grpc.StatusCode = grpc.StatusCode.UNKNOWN,
        reason: str = "",
        metadata: dict[str, str] | None = None,
        fields: tuple[str, ...] = (),
        retry_after: float | None = None,
    ) -> None:
        super().__init__(f"{reason}: {text}" if reason else f"{code.name}: {text}")
        self.text, self.code, self.reason = text, code, reason
        self.metadata = metadata or {}
        self.fields, self.retry_after = fields, retry_after


class InvalidArgumentError(ReputError):
    """The request is invalid, and can't succeed without a change. `fields` names its invalid fields."""


class NotFoundError(ReputError):
    """The requested topic, queue, message, offset, group or other object does not exist."""


class AlreadyExistsError(ReputError):
    """The object to create already exists."""


class OutOfRangeError(ReputError):
    """An offset lies below or above the stored range. `metadata` has the bounds."""


class FailedPreconditionError(ReputError):
    """The store is in a state that forbids the call."""


class AuthenticationError(ReputError):
    """Credentials are missing, wrong or not enough."""


class ResourceExhaustedError(ReputError):
    """The disk or a window is full (see `retry_after`), or a message is larger than the transport carries."""


class UnavailableError(ReputError):
    """The server can't be reached, is starting or is stopping."""


class OutcomeUnknownError(UnavailableError):
    """The connection broke after the messages were sent: they may or may not be stored."""


class DeadlineExceededError(ReputError):
    """The time for the call is over. It may still take effect."""


class AbortedError(ReputError):
    """The call conflicted with another call."""


class DataLossError(ReputError):
    """Stored bytes fail their check."""


class BodyError(ReputError):
    """A compressed body can't be inflated. `Message.raw_body` has it as it is stored."""


class BodyTooLargeError(BodyError):
    """A compressed body becomes larger than the reader allows."""


class ServerError(ReputError):
    """The server failed without an explanation, or does not know the call: a bug, or another kind of server."""


_CLASSES: dict[grpc.StatusCode, type[ReputError]] = {
    grpc.StatusCode.INVALID_ARGUMENT: InvalidArgumentError,
    grpc.StatusCode.NOT_FOUND: NotFoundError,
    grpc.StatusCode.ALREADY_EXISTS: AlreadyExistsError,
    grpc.StatusCode.OUT_OF_RANGE: OutOfRangeError,
    grpc.StatusCode.FAILED_PRECONDITION: FailedPreconditionError,
    grpc.StatusCode.UNAUTHENTICATED: AuthenticationError,
    grpc.StatusCode.PERMISSION_DENIED: AuthenticationError,
    grpc.StatusCode.RESOURCE_EXHAUSTED: ResourceExhaustedError,
    grpc.StatusCode.UNAVAILABLE: UnavailableError,
    grpc.StatusCode.DEADLINE_EXCEEDED: DeadlineExceededError,
    grpc.StatusCode.ABORTED: AbortedError,
    grpc.StatusCode.DATA_LOSS: DataLossError,
}
_CODES: dict[int, grpc.StatusCode] = {code.value[0]: code for code in grpc.StatusCode}


_KINDS = {"commitlog": "a CommitLog", "indexer": "an Indexer", "janitor": "a Janitor", "delivery": "a Delivery"}
_LOST_STATUS = "Internal error from Core"
"""gRPC's text for a stream that ended while a request was written: asyncio loses the cause (grpc issue 36066)."""
_NO_CONNECTION = ("failed to connect to all addresses", "DNS resolution failed")
"""The beginnings of gRPC's texts for a call without a connection; its codes do not show this."""


def from_status(status: status_pb2.Status) -> ReputError:
    """Return the error that a google.rpc.Status describes. Raises ValueError if its details can't be read."""
    from google.rpc.error_details_pb2 import BadRequest, ErrorInfo, RetryInfo  # imported only when a call fails

    code = _CODES.get(status.code, grpc.StatusCode.UNKNOWN)
    reason, retry_after = "", None
    metadata: dict[str, str] = {}
    fields: tuple[str, ...] = ()
    info, violations, retry = ErrorInfo(), BadRequest(), RetryInfo()
    try:
        for detail in status.details:
            if detail.Unpack(info) and info.domain == DOMAIN:
                reason, metadata = info.reason, dict(info.metadata)
            elif detail.Unpack(violations):
                fields = tuple(violation.field for violation in violations.field_violations)
            elif detail.Unpack(retry):
                retry_after = retry.retry_delay.seconds + retry.retry_delay.nanos / 1e9
    except DecodeError as error:
        raise ValueError("the details of a status can't be read") from error
    return _CLASSES.get(code, ServerError)(
        status.message, code=code, reason=reason, metadata=metadata, fields=fields, retry_after=retry_after
    )


def from_rpc_error(error: grpc.RpcError, service: str, target: str = "this address") -> ReputError:
    """Return the error of a failed call, synchronous or asyncio, with its details if it has them.

    `service` and `target` name the receiver of the call; the text names them if the server there is of another kind.
    """
    call: Any = error
    trailers: Iterable[tuple[str, str | bytes]] = call.trailing_metadata() or ()
    for key, value in trailers:
        if key == DETAILS_KEY and isinstance(value, bytes):
            try:
                return from_status(status_pb2.Status.FromString(value))
            except (DecodeError, ValueError):  # not a Status: from a proxy; the plain code is used
                break
    code = call.code()
    text = call.details() or "no text"
    if code is grpc.StatusCode.INTERNAL and text == _LOST_STATUS:
        return UnavailableError("the stream ended for a reason that got lost", code=grpc.StatusCode.UNAVAILABLE)
    if code is grpc.StatusCode.UNIMPLEMENTED:
        text += f"; the server at {target} is not {_KINDS[service]}, or one of another version"
    return _CLASSES.get(code, ServerError)(text, code=code)


def was_never_sent(error: ReputError) -> bool:
    """Return whether the call failed because there was no connection, so that the server can't have seen it."""
    return isinstance(error, UnavailableError) and error.text.startswith(_NO_CONNECTION)


def too_large(reason: str, field: str, size_bytes: int, limit_bytes: int) -> InvalidArgumentError:
    """Return the error for a value above this client's own limit, in the words that the server uses for its limits.

    gRPC would refuse it, too, but it would end the stream and leave the outcome of all batches in flight unknown.
    """
    return InvalidArgumentError(
        f"{field} has {size_bytes} bytes, and this client sends {limit_bytes} at most; nothing was sent",
        code=grpc.StatusCode.INVALID_ARGUMENT,
        reason=reason,
        metadata={"field": field, "value": str(size_bytes), "limit": str(limit_bytes)},
        fields=(field,),
    )


def was_never_taken(error: ReputError) -> bool:
    """Return whether a stream failed in a way that excludes that the server stored any part of it."""
    was_refused = isinstance(error, AuthenticationError) or error.code is grpc.StatusCode.UNIMPLEMENTED
    was_refused = was_refused or error.reason == "QUOTA_EXCEEDED"  # a batch over a quota ends no stream
    return was_refused or was_never_sent(error)


def stream_ended() -> UnavailableError:
    """Return the error for a stream that the server ended too early."""
    return UnavailableError("the server ended the stream", code=grpc.StatusCode.UNAVAILABLE)


def no_answer(timeout_s: float | None) -> DeadlineExceededError:
    """Return the error for a stream whose next answer does not come in time."""
    return DeadlineExceededError(f"no answer within {timeout_s} s", code=grpc.StatusCode.DEADLINE_EXCEEDED)


def nonsense(failure: Exception) -> ServerError:
    """Return the error for an answer that can't be right."""
    return ServerError(f"the server's answer makes no sense: {failure}", code=grpc.StatusCode.INTERNAL)
