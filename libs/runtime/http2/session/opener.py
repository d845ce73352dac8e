# SPDX-License-Identifier: Apache-2.0
"""SessionLimits: the limits of the sessions of a server, and what all its sessions share."""

from typing import Final

from libs.runtime.http2 import wire as h2
from libs.runtime.http2.heads import Head
from libs.runtime.http2.limits import ConnectionLimits
from libs.runtime.http2.session.whole import HeadOf


class SessionLimits:
    """The limits of a session. `head_of` is for calls that may come whole."""

    def __init__(self, limits: ConnectionLimits, message_size_bytes_max: int, head_of: HeadOf) -> None:
        self.window_bytes: Final = limits.connection_window_size_bytes
        self.call_window_bytes: Final = limits.call_window_size_bytes
        self.call_count_max: Final = limits.connection_call_count_max
        self.header_size_bytes_max: Final = limits.call_header_size_bytes_max
        self.header_count_max: Final = h2.HEADER_COUNT_MAX
        self.frame_size_bytes_max: Final = h2.FRAME_SIZE_BYTES_MAX
        self.resets: Final = (limits.call_reset_count_max, limits.call_resets_per_s_max)
        self.defaults: Final = h2.Configuration()
        """The limits of the package that are not set here."""
        self.message_size_bytes_max: Final = message_size_bytes_max
        self.head_of: Final = head_of
        self.known: Final[dict[bytes, Head | bool]] = {}
        """Heads that the compiled session has parsed, by their bytes. False for a call that does not come whole."""
