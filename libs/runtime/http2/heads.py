# SPDX-License-Identifier: Apache-2.0
"""The header fields of a call: its head, and its end.

Source: PROTOCOL-HTTP2.md of gRPC, "Requests" and "Responses". No I/O.
"""

import base64
import binascii
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

import grpc

from libs.runtime.http2.framing import ENCODINGS, IDENTITY, CallRefused, check_encoding

Fields = Sequence[tuple[bytes, bytes]]
Metadata = tuple[tuple[str, str | bytes], ...]

HEAD: Final = (
    (b":status", b"200"),
    (b"content-type", b"application/grpc"),
    (b"grpc-accept-encoding", ENCODINGS),
)
RICH_STATUS: Final = b"grpc-status-details-bin"
"""The only field with the prefix grpc- that gRPC shows to callers."""

DOOR_PREFIX: Final = b"reput-door"
"""The names of fields that only a door sends begin so."""

OK: Final = ((b"grpc-status", b"0"),)

_UNITS_S: Final = {72: 3600.0, 77: 60.0, 83: 1.0, 109: 1e-3, 117: 1e-6, 110: 1e-9}
"""Maps the units of grpc-timeout, the letters H M S m u n, to seconds."""

_TIMEOUT: Final = re.compile(rb"[0-9]{1,8}[HMSmun]")
_UNSAFE: Final = re.compile(rb"[^ -$&-~]")
"""Bytes that grpc-message contains as %XX: the percent sign, and all bytes but printable ASCII."""


class HttpRefused(Exception):
    """A request that is no request of gRPC. It is answered with an HTTP status."""

    def __init__(self, status: int) -> None:
        super().__init__(str(status))
        self.status = status


class Origin:
    """Where a call through a door comes from. `names` are the names of the caller's certificate."""

    __slots__ = ("key", "names", "peer")

    def __init__(self, peer: str, names: Mapping[str, Sequence[bytes]], key: bytes) -> None:
        self.peer, self.names, self.key = peer, names, key


class Head:
    """The head of a call. It is also the HandlerCallDetails of gRPC."""

    __slots__ = ("_fields", "_metadata", "encoding", "handler", "is_passed_on", "method", "origin", "timeout_s", "work")

    def __init__(self, fields: Fields) -> None:
        """Raises HttpRefused and CallRefused."""
        self._fields = fields
        self._metadata: Metadata | None = None
        self.encoding = IDENTITY
        self.timeout_s: float | None = None
        self.handler: grpc.RpcMethodHandler[Any, Any] | None = None
        """The handler of its method. None if it was not looked up."""
        self.work = 0
        """The work of a whole call with this head, in the unit of an endpoint."""
        self.is_passed_on = False
        """Whether it has fields of a door."""
        self.origin: Origin | None = None
        """Where the call comes from, if a door has passed it on and was believed."""
        path = verb = kind = b""
        for name, value in fields:
            if name == b":path":
                path = value
            elif name == b":method":
                verb = value
            elif name == b"content-type":
                kind = value
            elif name == b"grpc-timeout":
                self.timeout_s = timeout_s_of(value)
            elif name == b"grpc-encoding":
                self.encoding = value
            elif name.startswith(DOOR_PREFIX):
                self.is_passed_on = True
        if verb != b"POST":
            raise HttpRefused(405)
        if not kind.startswith(b"application/grpc") or kind.startswith(b"application/grpc-web"):
            raise HttpRefused(415)
        self.method: Final = path.decode("latin-1")

    def check(self) -> None:
        """Raise CallRefused for a head that no servicer should see."""
        check_encoding(self.encoding)

    @property
    def fields(self) -> Fields:
        """All fields, in their order."""
        return self._fields

    @property
    def invocation_metadata(self) -> Metadata:
        """The metadata of the caller. Values of keys that end in -bin are bytes."""
        if self._metadata is None:
            self._metadata = metadata_of(self._fields)
        return self._metadata


def timeout_s_of(value: bytes) -> float:
    """Return the seconds of a grpc-timeout. Raises CallRefused."""
    if _TIMEOUT.fullmatch(value) is None:
        text = f"grpc-timeout {value[:40].decode('latin-1')!r} is not up to 8 digits and one of H, M, S, m, u, n"
        raise CallRefused(grpc.StatusCode.INTERNAL, text)
    return int(value[:-1]) * _UNITS_S[value[-1]]


def trailers(code: grpc.StatusCode, text: str, metadata: Iterable[tuple[str, str | bytes]] = ()) -> Fields:
    """Return the fields that end a call."""
    fields = [(b"grpc-status", str(code.value[0]).encode())]
    if text:
        fields.append((b"grpc-message", percent_encoded(text)))
    return [*fields, *fields_of(metadata)]


def fields_of(metadata: Iterable[tuple[str, str | bytes]]) -> list[tuple[bytes, bytes]]:
    """Return the header fields of metadata. Keys of bytes end in -bin."""
    return [
        (key.encode(), base64.b64encode(value).rstrip(b"=") if isinstance(value, bytes) else value.encode())
        for key, value in metadata
    ]


def metadata_of(fields: Fields) -> Metadata:
    """Return the metadata of header fields. Raises CallRefused for a value of bytes that is not in base64."""
    return tuple(_item(name, value) for name, value in fields if not _is_reserved(name))


def ending(refusal: CallRefused) -> Fields:
    """Return the fields that end a refused call."""
    return trailers(refusal.code, str(refusal), refusal.metadata)


def percent_encoded(text: str) -> bytes:
    """Return a status text in the encoding of grpc-message."""
    return _UNSAFE.sub(lambda found: b"%%%02X" % ord(found[0]), text.encode("utf-8", "replace"))


def _is_reserved(name: bytes) -> bool:
    return (name[:5] == b"grpc-" and name != RICH_STATUS) or name[:1] == b":" or name in (b"te", b"content-type")


def _item(name: bytes, value: bytes) -> tuple[str, str | bytes]:
    key = name.decode("latin-1")
    if not name.endswith(b"-bin"):
        return key, value.decode("latin-1")
    try:
        return key, base64.b64decode(value + b"=" * (-len(value) % 4), validate=True)
    except binascii.Error as error:
        raise CallRefused(grpc.StatusCode.INTERNAL, f"the metadata key {key[:60]} is not in base64") from error
