# SPDX-License-Identifier: Apache-2.0
"""HTTP/2 without I/O, by the package ngh2 (libnghttp2): bytes in, events out; answers in, bytes out.

The one place that names the package. Its connection belongs to one loop; once it has raised an error of a connection,
it is asked for nothing more. Limits against floods (resets, CONTINUATION, SETTINGS, PING, header lists, glitches) are
the library's, set here.
"""

from typing import Final

import ngh2
from ngh2.events import (
    ConnectionClosed,
    DataReceived,
    PingAcknowledged,
    RequestReceived,
    StreamClosed,
    StreamReset,
    TrailersReceived,
)

__all__ = [
    "ConnectionClosed",
    "DataReceived",
    "PingAcknowledged",
    "RequestReceived",
    "StreamClosed",
    "StreamReset",
    "TrailersReceived",
    "Wire",
    "WireError",
    "open_wire",
]

Wire = ngh2.Connection
WireError = ngh2.NGH2Error

STREAM_WINDOW_BYTES: Final = 4 << 20
CONNECTION_WINDOW_BYTES: Final = 16 << 20
"""What a caller may send before it is taken, in one call and in all of one connection."""

FRAME_SIZE_BYTES_MAX: Final = 1 << 20
STREAM_COUNT_MAX: Final = 8_192
"""Calls of one connection at once."""

HEADER_LIST_BYTES_MAX: Final = 16 << 10
HEADER_COUNT_MAX: Final = 128
RESET_RATE: Final = (2_000, 200)
"""Calls that a caller takes back: at once, and a second. All deadlines of one client may pass together."""

_CONFIGURATION: Final = ngh2.Configuration(
    auto_window_update=False,
    max_inbound_header_list_size=HEADER_LIST_BYTES_MAX,
    max_inbound_header_count=HEADER_COUNT_MAX,
    stream_reset_rate_limit=RESET_RATE,
)
_SETTINGS: Final = {
    ngh2.Setting.MAX_CONCURRENT_STREAMS: STREAM_COUNT_MAX,
    ngh2.Setting.INITIAL_WINDOW_SIZE: STREAM_WINDOW_BYTES,
    ngh2.Setting.MAX_FRAME_SIZE: FRAME_SIZE_BYTES_MAX,
    ngh2.Setting.MAX_HEADER_LIST_SIZE: HEADER_LIST_BYTES_MAX,
}


def open_wire() -> Wire:
    """Return the server's side of a new connection, whose settings are ready to be sent."""
    wire = ngh2.Connection(ngh2.Role.SERVER, _CONFIGURATION)
    wire.initiate_connection(_SETTINGS)
    wire.set_local_window_size(CONNECTION_WINDOW_BYTES)
    return wire
