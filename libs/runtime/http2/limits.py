# SPDX-License-Identifier: Apache-2.0
"""ConnectionLimits: the limits for the callers of the front in the event loop. Values only; they are settings."""

from dataclasses import dataclass
from typing import Annotated

from msgspec import Meta

from libs.importance import Advanced

Window = Annotated[int, Meta(ge=65_535, le=2**31 - 1)]


@dataclass(frozen=True, kw_only=True, slots=True)
class ConnectionLimits:
    """Limits that gRPC's own clients never reach. Only the front http2 knows them."""

    connection_count_max: Advanced[Annotated[int, Meta(ge=1)]] = 4_096
    """Maximum number of connections at once. A further connection replaces the connection that has been without a call
    for longest; while all have calls, the new connection is closed. The maximum is lower if the process may not open
    twice as many files and 256 more (RLIMIT_NOFILE); a warning at the start says so. Only the front http2 knows this
    setting and the settings of connections and calls below."""

    connection_call_count_max: Advanced[Annotated[int, Meta(ge=1, le=2**31 - 1)]] = 8_192
    """Maximum number of calls at once on a connection; libraries hold further calls back."""

    connection_idle_timeout_ms: Advanced[Annotated[int, Meta(ge=0)]] = 3_600_000
    """Time, in milliseconds, for which a connection without a call is kept; 0 keeps it for ever. gRPC's clients connect
    again by themselves."""

    connection_age_max_ms: Advanced[Annotated[int, Meta(ge=0)]] = 0
    """Time, in milliseconds and give or take a tenth, for which a connection takes new calls. Then its caller is asked
    to connect again, so that callers spread over servers that were added later. 0 sets no end."""

    connection_window_size_bytes: Advanced[Window] = 32 << 20
    """Bytes of requests on a connection that may be under way before the server has taken them. When it has taken half
    of them, it allows the caller to send more."""

    call_window_size_bytes: Advanced[Window] = 16 << 20
    """The same limit for a call: a stream of batches with 8 MiB under way never waits for it."""

    call_header_size_bytes_max: Advanced[Annotated[int, Meta(ge=1_024, le=1 << 20)]] = 16 << 10
    """Bytes of the header list of a call, its metadata among them, as HTTP/2 counts them."""

    call_request_timeout_ms: Advanced[Annotated[int, Meta(ge=1)]] = 60_000
    """Time, in milliseconds, within which the single request of a call must arrive; then the call ends with
    DEADLINE_EXCEEDED."""

    call_reset_count_max: Advanced[Annotated[int, Meta(ge=1)]] = 2_000
    """Calls of a connection that its caller may reset at once, for example when their deadlines pass together. A caller
    that resets more calls loses the connection."""

    call_resets_per_s_max: Advanced[Annotated[int, Meta(ge=1)]] = 200
    """Calls of a connection that its caller may reset per second, continuously."""
