# SPDX-License-Identifier: Apache-2.0
"""ConnectionLimits: what callers may take of the front in the event loop. Values only, which are settings."""

from dataclasses import dataclass
from typing import Annotated

from msgspec import Meta

Window = Annotated[int, Meta(ge=65_535, le=2**31 - 1)]


@dataclass(frozen=True, kw_only=True, slots=True)
class ConnectionLimits:
    """Limits that gRPC's own clients never meet. Only the front http2 knows them."""

    connection_count_max: Annotated[int, Meta(ge=1)] = 4_096
    """Most connections at once. One more takes the place of the one that has been without a call for longest; while all
    have calls it is closed. They are fewer where the process may not open twice as many files and 256 more
    (RLIMIT_NOFILE), and a warning says so at the start. This setting and those of connections and calls below are known
    to the front http2 only."""

    connection_call_count_max: Annotated[int, Meta(ge=1, le=2**31 - 1)] = 8_192
    """Most calls at once on one connection; libraries hold further ones back."""

    connection_idle_timeout_ms: Annotated[int, Meta(ge=0)] = 3_600_000
    """How long, in milliseconds, a connection without a call is kept; 0 keeps it for ever. gRPC's clients connect again
    by themselves."""

    connection_age_max_ms: Annotated[int, Meta(ge=0)] = 0
    """How long, in milliseconds and give or take a tenth, a connection takes new calls. Then its caller is asked to
    make another one, so that callers spread over servers that came later. 0 sets no end."""

    connection_window_size_bytes: Window = 32 << 20
    """Bytes of requests on one connection that may be under way before they are taken. Callers hear that they may send
    more when half of it was taken."""

    call_window_size_bytes: Window = 16 << 20
    """The same of one call: a stream of batches of which 8 MiB are under way never waits for it."""

    call_header_size_bytes_max: Annotated[int, Meta(ge=1_024, le=1 << 20)] = 16 << 10
    """Bytes of the header list of a call, its metadata among them, as HTTP/2 counts them."""

    call_request_timeout_ms: Annotated[int, Meta(ge=1)] = 60_000
    """How long, in milliseconds, the one request of a call may take to arrive; then the call ends with
    DEADLINE_EXCEEDED."""

    call_reset_count_max: Annotated[int, Meta(ge=1)] = 2_000
    """Calls of one connection that may be taken back at once, as when their deadlines pass together; whoever takes back
    more loses the connection."""

    call_resets_per_s_max: Annotated[int, Meta(ge=1)] = 200
    """Calls of one connection that may be taken back each second on and on."""
