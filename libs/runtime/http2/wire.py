# SPDX-License-Identifier: Apache-2.0
"""HTTP/2 without I/O, by the package ngh2 (libnghttp2): bytes in, events out; answers in, bytes out.

The one place that names the package. Its connection belongs to one loop; once it has raised an error of a connection,
it is asked for nothing more. Limits against floods (resets, CONTINUATION, SETTINGS, PING, header lists, glitches) are
the library's, set here and in `ConnectionLimits`.
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
"""One stream can't be used; its connection can."""

FRAME_SIZE_BYTES_MAX: Final = 32 << 10
"""Of callers. The library puts a frame together before it tells of it: 1 MiB falls out of the processor's cache
meanwhile, which cost batches of 1 MiB a seventh of their rate."""

HEADER_COUNT_MAX: Final = 128
ANSWER_HEADER_SIZE_BYTES_MAX: Final = 64 << 10
ANSWER_WINDOW_BYTES: Final = 8 << 20
"""Of what a server may send of one call before it was read."""

CALLING_WINDOW_BYTES: Final = 32 << 20
"""The same for all calls of a connection."""


class Opener:
    """Makes the server's side of connections."""

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
        """Return a new one, whose settings are ready to be sent."""
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
