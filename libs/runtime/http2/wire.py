# SPDX-License-Identifier: Apache-2.0
"""HTTP/2 without I/O, by the package ngh2 (libnghttp2): bytes in, events out; answers in, bytes out.

Only this module names the package. A connection of the package belongs to a single loop; after it has raised an error
of the connection, it is not used any more. The limits against floods (resets, CONTINUATION, SETTINGS, PING, header
lists, glitches) are limits of the library, which are set here and in `session`.
"""

from collections.abc import Sequence
from typing import Any, Final, Protocol

import ngh2
import ngh2._core
from ngh2 import (
    ConnectionProtocolError,
    ConnectionStateError,
    DenialOfServiceError,
    InternalError,
    StreamUnavailableError,
)
from ngh2.events import (
    ConnectionClosed,
    DataReceived,
    Event,
    GoAwayReceived,
    PingAcknowledged,
    RequestReceived,
    ResponseReceived,
    StreamClosed,
    StreamReset,
    TrailersReceived,
)

from libs.runtime.http2.framing import framed

__all__ = [
    "ConnectionClosed",
    "ConnectionProtocolError",
    "ConnectionStateError",
    "DataReceived",
    "DenialOfServiceError",
    "Event",
    "GoAwayReceived",
    "InternalError",
    "PingAcknowledged",
    "RequestReceived",
    "ResponseReceived",
    "StreamClosed",
    "StreamError",
    "StreamReset",
    "StreamUnavailableError",
    "TrailersReceived",
    "Wire",
    "WireError",
    "open_calling",
]

WireError = ngh2.NGH2Error
StreamError = ngh2.StreamProtocolError
"""An error of a stream. Its connection can still be used."""

LIBRARY_PATH: Final[str] = ngh2._core.__file__  # noqa: SLF001 - libnghttp2 is inside
"""The file that contains libnghttp2."""

Configuration = ngh2.Configuration
Role = ngh2.Role
Setting = ngh2.Setting

FRAME_SIZE_BYTES_MAX: Final = 32 << 10
"""Maximum frame of callers. The library reports only complete frames: a frame of 1 MiB leaves the processor's cache
meanwhile, which cost batches of 1 MiB a seventh of their rate."""

HEADER_COUNT_MAX: Final = 128
ANSWER_HEADER_SIZE_BYTES_MAX: Final = 64 << 10
ANSWER_WINDOW_BYTES: Final = 8 << 20
"""Bytes of the answers of a call that a server may send before the caller has read them."""

CALLING_WINDOW_BYTES: Final = 32 << 20
"""The same limit for all calls of a connection."""


class Wire(ngh2.Connection):
    """HTTP/2 of a connection, by the package."""

    def send_message(self, stream_id: int, message: bytes) -> None:
        """Send a message of gRPC. A large message is not copied."""
        for piece in framed(message):
            self.send_data(stream_id, piece)

    def parts_to_send(self, amount: int) -> list[bytes]:
        """Return about `amount` bytes that are ready to be sent, in pieces. Empty if nothing is ready."""
        data = self.data_to_send(amount)
        return [data] if data else []


class EndpointWire(Protocol):
    """The part of a wire that both ends of a connection use."""

    def receive_data(self, data: memoryview, /) -> None:
        """Take arrived bytes. Raises WireError."""
        ...

    def events(self) -> list[Any]:
        """Return the events since the last call, and for a server also the whole calls."""
        ...

    def parts_to_send(self, amount: int, /) -> Sequence[bytes | memoryview]:
        """Return about `amount` bytes that are ready to be sent, in pieces. Raises WireError."""
        ...

    def send_message(self, stream_id: int, message: bytes, /) -> None:
        """Send a message of gRPC on a stream. Raises WireError."""
        ...

    def send_data(self, stream_id: int, data: bytes, /) -> None:
        """Send bytes on a stream. Raises WireError."""
        ...

    def queued_body_size(self, stream_id: int, /) -> int:
        """Return the number of unsent bytes of a stream."""
        ...

    def acknowledge_received_data(self, amount: int, stream_id: int, /) -> None:
        """Allow the other side to send `amount` more bytes. Raises WireError."""
        ...

    def reset_stream(self, stream_id: int, error_code: int = ..., /) -> None:
        """End a stream at once. Raises WireError."""
        ...

    def ping(self) -> None:
        """Ask the other side for a sign of life. Raises WireError."""
        ...

    def send_goaway(self) -> None:
        """Announce the end of the connection. Raises WireError."""
        ...


RELAYED_WINDOW_BYTES: Final = 1 << 20
"""The limit for the answers of a relayed call: what a slow reader costs a door."""

RELAYING_WINDOW_BYTES: Final = 2**31 - 1
"""The same limit for a connection to which calls of many callers are passed on: slow readers hold nobody else up."""


def open_relaying() -> "Wire":
    """Return the side of a door on its connection to a service, whose settings are ready to be sent."""
    return open_calling(RELAYED_WINDOW_BYTES, RELAYING_WINDOW_BYTES)


def open_calling(call_window_bytes: int = ANSWER_WINDOW_BYTES, window_bytes: int = CALLING_WINDOW_BYTES) -> Wire:
    """Return the caller's side of a connection, whose settings are ready to be sent."""
    configuration = ngh2.Configuration(
        auto_window_update=False,
        max_inbound_header_list_size=ANSWER_HEADER_SIZE_BYTES_MAX,
        max_inbound_header_count=HEADER_COUNT_MAX,
    )
    wire = Wire(ngh2.Role.CLIENT, configuration)
    wire.initiate_connection(
        {
            ngh2.Setting.ENABLE_PUSH: 0,
            ngh2.Setting.INITIAL_WINDOW_SIZE: call_window_bytes,
            ngh2.Setting.MAX_FRAME_SIZE: FRAME_SIZE_BYTES_MAX,
            ngh2.Setting.MAX_HEADER_LIST_SIZE: ANSWER_HEADER_SIZE_BYTES_MAX,
        }
    )
    wire.set_local_window_size(window_bytes)
    return wire
