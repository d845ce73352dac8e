# SPDX-License-Identifier: Apache-2.0
"""The fields of a head on its way to a service: fields to leave out, fields to add, and the largest size. No I/O."""

from typing import Final

import grpc

from libs.runtime.http2.framing import CallRefused
from libs.runtime.http2.heads import DOOR_PREFIX, Fields
from libs.runtime.http2.wire import HEADER_COUNT_MAX

SERVICE_FIELD: Final = b"reput-service"
"""The field that names the service of a call whose method several services have."""

ROOM_BYTES: Final = 4 << 10
"""Bytes of a head, as HTTP/2 counts them, that a door keeps for its own fields."""

ROOM_COUNT: Final = 8
"""Number of fields that a door keeps for itself."""

FIELD_BYTES: Final = 32
"""Bytes that HTTP/2 counts for each field beside its name and value."""

_LEFT_OUT: Final = frozenset({b":method", b":scheme", b":path", b":authority", SERVICE_FIELD})


def passed_on(fields: Fields, *, size_bytes_max: int) -> list[tuple[bytes, bytes]]:
    """Return the fields of a caller's head that go on: fields with the name of a door are left out.

    Raises CallRefused for a head without room for the door's own fields.
    """
    kept = [field for field in fields if field[0] not in _LEFT_OUT and not field[0].startswith(DOOR_PREFIX)]
    size_bytes = sum(len(name) + len(value) for name, value in kept) + FIELD_BYTES * len(kept)
    if size_bytes > size_bytes_max - ROOM_BYTES:
        text = f"the metadata have {size_bytes} bytes, the limit of this gateway is {size_bytes_max - ROOM_BYTES}"
        raise CallRefused(grpc.StatusCode.RESOURCE_EXHAUSTED, text)
    if len(kept) > HEADER_COUNT_MAX - ROOM_COUNT:
        text = f"the metadata have {len(kept)} fields, the limit of this gateway is {HEADER_COUNT_MAX - ROOM_COUNT}"
        raise CallRefused(grpc.StatusCode.RESOURCE_EXHAUSTED, text)
    return kept


def ending_of(fields: Fields) -> list[tuple[bytes, bytes]]:
    """Return the fields of an answer's end that go on to the caller, also of an answer that is its end alone."""
    return [field for field in fields if field[0][:1] != b":" and field[0] not in _OF_HEAD]


_OF_HEAD: Final = frozenset({b"content-type", b"grpc-accept-encoding", b"grpc-encoding"})


def status_of(fields: Fields) -> bytes:
    """Return the grpc-status of an answer's end. Empty without one."""
    return next((value for name, value in fields if name == b"grpc-status"), b"")
