# SPDX-License-Identifier: Apache-2.0
"""PlainSession: the session of a caller's connection on the package's own connection, in Python.

The compiled session (`session_cy`) has the same contract, and the tests of this package run on both. This session is
used where the other is not built, and shows what the other does.
"""

from libs.runtime.http2 import wire as h2
from libs.runtime.http2.framing import PREFIX_SIZE_BYTES, CallRefused
from libs.runtime.http2.heads import HEAD, OK, Head, timeout_s_of
from libs.runtime.http2.session.opener import SessionLimits
from libs.runtime.http2.session.whole import WholeCall

TIMEOUT = b"grpc-timeout"


class _Pending:
    """A call that becomes whole if its request ends with the bytes that arrived together."""

    __slots__ = ("data", "head", "request", "timeout_s")

    def __init__(self, request: h2.RequestReceived, head: Head, timeout_s: float | None) -> None:
        self.request, self.head, self.timeout_s = request, head, timeout_s
        self.data: list[bytes] = []


class PlainSession(h2.Wire):
    """The session of a caller's connection: bytes in, whole calls and events out; answers in, bytes out.

    Invariants: a call is whole only if its head and its single, uncompressed message arrived in one `receive_data`; all
    other calls are events of the package. After a WireError that is no StreamError the session is not used any more.
    Callers: a single event loop.
    """

    def __init__(self, limits: SessionLimits) -> None:
        configuration = h2.Configuration(
            auto_window_update=False,
            max_inbound_header_list_size=limits.header_size_bytes_max,
            max_inbound_header_count=limits.header_count_max,
            stream_reset_rate_limit=limits.resets,
        )
        super().__init__(h2.Role.SERVER, configuration)
        self._limits = limits
        self._pending: dict[int, _Pending] = {}
        self._found: list[h2.Event | WholeCall] = []
        self._counted: set[int] = set()
        """Streams whose end is only counted."""
        self._left_count = 0
        self.initiate_connection(
            {
                h2.Setting.MAX_CONCURRENT_STREAMS: limits.call_count_max,
                h2.Setting.INITIAL_WINDOW_SIZE: limits.call_window_bytes,
                h2.Setting.MAX_FRAME_SIZE: limits.frame_size_bytes_max,
                h2.Setting.MAX_HEADER_LIST_SIZE: limits.header_size_bytes_max,
            }
        )
        self.set_local_window_size(limits.window_bytes)

    def receive_data(self, data: "bytes | bytearray | memoryview") -> None:
        """Take arrived bytes. Raises WireError for an error of the connection."""
        super().receive_data(data)
        for event in super().events():
            self._take(event)
        for stream_id in list(self._pending):
            self._demote(stream_id)

    def events(self) -> "list[h2.Event | WholeCall]":  # type: ignore[override]
        """Return whole calls and events since the last call."""
        for event in super().events():
            self._take(event)
        found, self._found = self._found, []
        return found

    def answer(self, stream_id: int, message: bytes, is_counted: bool = False) -> None:
        """Answer a call with a single message and the status OK.

        With `is_counted`, the end of the stream is counted and is no event. Raises WireError.
        """
        self.send_response(stream_id, HEAD)
        self.send_message(stream_id, message)
        self.send_trailers(stream_id, OK)
        if is_counted:
            self._counted.add(stream_id)

    def take_left_count(self) -> int:
        """Return the number of counted streams that have ended since the last call."""
        count, self._left_count = self._left_count, 0
        return count

    def _take(self, event: h2.Event) -> None:
        if isinstance(event, h2.RequestReceived):
            if event.end_stream or not self._begin(event):
                self._found.append(event)
        elif isinstance(event, h2.DataReceived) and event.stream_id in self._pending:
            pending = self._pending[event.stream_id]
            pending.data.append(event.data)
            if event.end_stream:
                self._end(event.stream_id, pending)
        else:
            stream_id = getattr(event, "stream_id", 0)
            if stream_id in self._pending:
                self._demote(stream_id)
            if isinstance(event, h2.StreamClosed) and stream_id in self._counted:
                self._counted.discard(stream_id)
                self._left_count += 1
            else:
                self._found.append(event)

    def _begin(self, event: h2.RequestReceived) -> bool:
        """Begin a call that may become whole. Returns False for any other call."""
        timeouts = [value for name, value in event.headers if name == TIMEOUT]
        try:
            timeout_s = timeout_s_of(timeouts[0]) if timeouts else None
        except CallRefused:
            return False
        if len(timeouts) > 1:
            return False
        head = self._limits.head_of(tuple(field for field in event.headers if field[0] != TIMEOUT))
        if head is None:
            return False
        self._pending[event.stream_id] = _Pending(event, head, timeout_s)
        return True

    def _end(self, stream_id: int, pending: _Pending) -> None:
        data = b"".join(pending.data)
        size_bytes = int.from_bytes(data[1:PREFIX_SIZE_BYTES], "big")
        is_whole = len(data) == PREFIX_SIZE_BYTES + size_bytes and not data[0]
        if not is_whole or size_bytes > self._limits.message_size_bytes_max:
            self._demote(stream_id, is_last=True)
            return
        del self._pending[stream_id]
        self.acknowledge_received_data(len(data), stream_id)
        message = data[PREFIX_SIZE_BYTES:]
        self._found.append(WholeCall(stream_id, pending.head, pending.timeout_s, message))

    def _demote(self, stream_id: int, *, is_last: bool = False) -> None:
        """Report the request of a call that does not become whole as events. `is_last`: it has ended."""
        pending = self._pending.pop(stream_id)
        data = b"".join(pending.data)
        self._found.append(pending.request)
        if data or is_last:
            self._found.append(h2.DataReceived(stream_id, data, is_last))
