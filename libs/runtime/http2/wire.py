# SPDX-License-Identifier: Apache-2.0
"""HTTP/2 without I/O, by the package ngh2 (libnghttp2): bytes in, events out; answers in, bytes out.

Only this module names the package. A connection of the package belongs to a single loop; after it has raised an error
of the connection, it is not used any more. The limits against floods (resets, CONTINUATION, SETTINGS, PING, header
lists, glitches) are limits of the library, which are set here and in `ConnectionLimits`.
"""

from typing import Final

import ngh2
from ngh2.events import (
    ConnectionClosed,
    DataReceived,
    GoAwayReceived,
    PingAcknowledged,
    RequestReceived,
    ResponseReceived,
    StreamClosed,
    StreamReset,
    TrailersReceived,
)

from libs.runtime.http2.limits import ConnectionLimits

__all__ = [
    "ConnectionClosed",
    "DataReceived",
    "GoAwayReceived",
    "Opener",
    "PingAcknowledged",
    "RequestReceived",
    "ResponseReceived",
    "StreamClosed",
    "StreamError",
    "StreamReset",
    "TrailersReceived",
    "Wire",
    "WireError",
    "open_calling",
]

Wire = ngh2.Connection
WireError = ngh2.NGH2Error
StreamError = ngh2.StreamProtocolError
"""An error of a stream. Its connection can still be used."""

FRAME_SIZE_BYTES_MAX: Final = 32 << 10
"""Maximum frame of callers. The library reports only complete frames: a frame of 1 MiB leaves the processor's cache
meanwhile, which cost batches of 1 MiB a seventh of their rate."""

HEADER_COUNT_MAX: Final = 128
ANSWER_HEADER_SIZE_BYTES_MAX: Final = 64 << 10
ANSWER_WINDOW_BYTES: Final = 8 << 20
"""Bytes of the answers of a call that a server may send before the caller has read them."""

CALLING_WINDOW_BYTES: Final = 32 << 20
"""The same limit for all calls of a connection."""


class Opener:
    """Creates the wires of a server's connections."""

    def __init__(self, limits: ConnectionLimits) -> None:
        self._window_bytes = limits.connection_window_size_bytes
        self._configuration = ngh2.Configuration(
            auto_window_update=False,
            max_inbound_header_list_size=limits.call_header_size_bytes_max,
            max_inbound_header_count=HEADER_COUNT_MAX,
            stream_reset_rate_limit=(limits.call_reset_count_max, limits.call_resets_per_s_max),
        )
        self._settings = {
            ngh2.Setting.MAX_CONCURRENT_STREAMS: limits.connection_call_count_max,
            ngh2.Setting.INITIAL_WINDOW_SIZE: limits.call_window_size_bytes,
            ngh2.Setting.MAX_FRAME_SIZE: FRAME_SIZE_BYTES_MAX,
            ngh2.Setting.MAX_HEADER_LIST_SIZE: limits.call_header_size_bytes_max,
        }

    def open(self) -> Wire:
        """Return a new wire, whose settings are ready to be sent."""
        wire = ngh2.Connection(ngh2.Role.SERVER, self._configuration)
        wire.initiate_connection(self._settings)
        wire.set_local_window_size(self._window_bytes)
        return wire


def open_calling() -> Wire:
    """Return the caller's side of a connection, whose settings are ready to be sent."""
    configuration = ngh2.Configuration(
        auto_window_update=False,
        max_inbound_header_list_size=ANSWER_HEADER_SIZE_BYTES_MAX,
        max_inbound_header_count=HEADER_COUNT_MAX,
    )
    wire = ngh2.Connection(ngh2.Role.CLIENT, configuration)
    wire.initiate_connection(
        {
            ngh2.Setting.ENABLE_PUSH: 0,
            ngh2.Setting.INITIAL_WINDOW_SIZE: ANSWER_WINDOW_BYTES,
            ngh2.Setting.MAX_FRAME_SIZE: FRAME_SIZE_BYTES_MAX,
            ngh2.Setting.MAX_HEADER_LIST_SIZE: ANSWER_HEADER_SIZE_BYTES_MAX,
        }
    )
    wire.set_local_window_size(CALLING_WINDOW_BYTES)
    return wire
