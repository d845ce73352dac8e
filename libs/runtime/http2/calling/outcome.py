# SPDX-License-Identifier: Apache-2.0
"""The head and the outcome of an outgoing call: header fields, resets and lost connections as gRPC's status.

Source: PROTOCOL-HTTP2.md and http-grpc-status-mapping.md of gRPC. No I/O.
"""

from collections.abc import Iterable
from typing import Final, NamedTuple
from urllib.parse import unquote

import grpc

from libs.runtime.http2.framing import ENCODINGS, IDENTITY, CallRefused, check_encoding
from libs.runtime.http2.heads import Fields, Metadata, fields_of, metadata_of

USER_AGENT: Final = b"reput-service/0.1.0"
"""The name and version of a service that calls another, which `reput clients` shows."""
_DIGITS_MAX: Final = 10**8
_UNITS: Final = ((b"u", 1_000_000), (b"m", 1_000), (b"S", 1))
_CODES: Final = {str(code.value[0]).encode(): code for code in grpc.StatusCode}
_HTTP: Final = {
    b"400": grpc.StatusCode.INTERNAL,
    b"401": grpc.StatusCode.UNAUTHENTICATED,
    b"403": grpc.StatusCode.PERMISSION_DENIED,
    b"404": grpc.StatusCode.UNIMPLEMENTED,
    b"429": grpc.StatusCode.UNAVAILABLE,
    b"502": grpc.StatusCode.UNAVAILABLE,
    b"503": grpc.StatusCode.UNAVAILABLE,
    b"504": grpc.StatusCode.UNAVAILABLE,
}
REFUSED_STREAM: Final = 7
CANCEL: Final = 8
_RESETS: Final = {
    REFUSED_STREAM: grpc.StatusCode.UNAVAILABLE,
    CANCEL: grpc.StatusCode.CANCELLED,
    11: grpc.StatusCode.RESOURCE_EXHAUSTED,  # ENHANCE_YOUR_CALM
    12: grpc.StatusCode.PERMISSION_DENIED,  # INADEQUATE_SECURITY
}


class Outcome(NamedTuple):
    """The outcome of a call."""

    code: grpc.StatusCode
    text: str = ""
    metadata: Metadata = ()

    def error(self, initial: Metadata) -> grpc.aio.AioRpcError:
        """Return it as the exception of grpc.aio."""
        return grpc.aio.AioRpcError(
            self.code, grpc.aio.Metadata(*initial), grpc.aio.Metadata(*self.metadata), details=self.text
        )


CANCELLED: Final = Outcome(grpc.StatusCode.CANCELLED, "the caller has cancelled the call")
EXPIRED: Final = Outcome(grpc.StatusCode.DEADLINE_EXCEEDED, "the deadline has passed")


def head_of(
    path: bytes, authority: bytes, scheme: bytes, timeout_s: float | None, metadata: Iterable[tuple[str, str | bytes]]
) -> list[tuple[bytes, bytes]]:
    """Return the fields that begin a call."""
    timeout = [] if timeout_s is None else [(b"grpc-timeout", timeout_field(timeout_s))]
    return [
        (b":method", b"POST"),
        (b":scheme", scheme),
        (b":path", path),
        (b":authority", authority),
        *timeout,
        (b"te", b"trailers"),
        (b"content-type", b"application/grpc"),
        (b"grpc-accept-encoding", ENCODINGS),
        (b"user-agent", USER_AGENT),
        *fields_of(metadata),
    ]


def timeout_field(timeout_s: float) -> bytes:
    """Return seconds in the format of grpc-timeout: up to eight digits, rounded up, in the finest unit that fits."""
    for unit, per_s in _UNITS:
        count = -int(-timeout_s * per_s // 1)
        if count < _DIGITS_MAX:
            return b"%d%s" % (max(count, 0), unit)
    return b"%dS" % (_DIGITS_MAX - 1)


def encoding_of(fields: Fields) -> bytes:
    """Return the compression of the messages of an answer. Raises CallRefused for an unknown compression."""
    encoding = next((value for name, value in fields if name == b"grpc-encoding"), IDENTITY)
    check_encoding(encoding)
    return encoding


def refusal_of(fields: Fields) -> Outcome | None:
    """Return the outcome of a call if its answer is not an answer of gRPC. None for an answer of gRPC."""
    status = _value(fields, b":status")
    if status == b"200" and _value(fields, b"content-type").startswith(b"application/grpc"):
        return None
    code = _HTTP.get(status, grpc.StatusCode.UNKNOWN)
    return Outcome(code, f"the answer is not gRPC's, but HTTP with status {status[:8].decode('latin-1')}")


def outcome_of(fields: Fields) -> Outcome:
    """Return the outcome of a call from the last fields of its answer."""
    code = _CODES.get(_value(fields, b"grpc-status"))
    text = unquote(_value(fields, b"grpc-message").decode("latin-1"), errors="replace")
    if code is None:
        return Outcome(grpc.StatusCode.UNKNOWN, f"the answer ends without a status that is known. {text}".rstrip())
    try:
        return Outcome(code, text, metadata_of(fields))
    except CallRefused as refusal:
        return Outcome(refusal.code, str(refusal))


def is_last(fields: Fields) -> bool:
    """Return whether the fields contain the outcome of the call."""
    return any(name == b"grpc-status" for name, _ in fields)


def reset_outcome(error_code: int) -> Outcome:
    """Return the outcome of a call whose stream was reset before its end."""
    code = _RESETS.get(error_code, grpc.StatusCode.INTERNAL)
    return Outcome(code, f"the other side has reset the call, with error {error_code} of HTTP/2")


def _value(fields: Fields, name: bytes) -> bytes:
    return next((value for key, value in fields if key == name), b"")
