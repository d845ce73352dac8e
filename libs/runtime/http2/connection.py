# SPDX-License-Identifier: Apache-2.0
"""Connection: one caller's connection, whose calls it begins, feeds, answers and ends.

All calls whose bytes arrive together begin in one turn of the loop; all answers of one turn leave in one write.
Invariants: bytes leave the library only when the transport takes them; a connection whose rules were broken is asked
for nothing more; when it is gone, so are its calls.
"""

import asyncio
import contextlib
import logging
import socket
from collections import deque
from collections.abc import Callable, Collection
from functools import partial
from typing import Any, Final, Protocol

import grpc

from libs.runtime.http2 import wire as h2
from libs.runtime.http2.call import Call
from libs.runtime.http2.connections import CLOSE_S, Connections
from libs.runtime.http2.deadlines import Deadlines
from libs.runtime.http2.ends import Ends
from libs.runtime.http2.framing import CallRefused, TooManyCalls, framed
from libs.runtime.http2.heads import HEAD, Fields, Head, HttpRefused

WRITE_BYTES: Final = 256 << 10
"""At most so much is handed to the transport at once."""

UNSENT_BYTES_MAX: Final = 64 << 10
"""Bytes of a stream's answers that may wait here while its handler goes on."""

WORK_A_TURN: Final = 256
"""What one turn of the loop takes of one connection, in pieces of data."""

WORK_OF_A_CALL: Final = 10
"""The beginning of a call, the end of its request, which starts most handlers, or its own end, likewise."""

NO_ERROR: Final = 0
_log = logging.getLogger(__name__)


class Budget(Protocol):
    """Bytes that are held for callers."""

    charged_bytes: int

    @property
    def is_half_used(self) -> bool:
        """Whether callers should wait."""
        ...

    def charge(self, size_bytes: int) -> None:
        """Count bytes. Raises CallRefused."""
        ...

    def give_back(self, size_bytes: int) -> None:
        """Stop counting bytes."""
        ...


class Server(Protocol):
    """What a connection needs of its server."""

    connections: Connections
    deadlines: Deadlines
    incoming: Budget
    """Bytes of requests that no handler has taken, over all connections."""
    arriving: memoryview
    """Where the transports of all connections put what arrives, which its connection has read when the next one asks
    for it."""
    request_size_bytes_max: int
    call_count: int
    call_count_max: int
    """Calls whose answers have not left, over all connections."""

    def handler_of(self, head: Head) -> "grpc.RpcMethodHandler[Any, Any] | None":
        """Return who answers, or None."""
        ...

    def ending(self, refusal: CallRefused) -> Fields:
        """Return how a call ends that no handler sees."""
        ...

    def open_wire(self) -> h2.Wire:
        """Return HTTP/2 for a connection."""
        ...


class Connection(asyncio.BufferedProtocol):
    """See the module."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self.loop = asyncio.get_running_loop()
        self._calls: dict[int, Call] = {}
        self._unsent: dict[int, asyncio.Future[None]] = {}
        """Of handlers that wait until their answers have left."""
        self._unfinished: set[int] = set()
        """Streams whose one request is not whole, and has less time for that than the call has."""
        self._ends = Ends(self._say_end, self._cut_request)
        self._events: deque[Any] = deque()
        self._is_taking, self._may_read = False, True
        self._is_paused = self._is_flush_due = self._is_broken = self._is_ending = False
        self.received_at_s = self.loop.time()
        self.peer = ""
        self._receivers: dict[type, Callable[[Any], None]] = {
            h2.DataReceived: self._data,
            h2.RequestReceived: self._request,
            h2.StreamClosed: self._gone,
            h2.StreamReset: self._gone,
            h2.TrailersReceived: self._trailers,
            h2.ConnectionClosed: self._connection_closed,
        }

    # asyncio.BufferedProtocol

    def connection_made(self, transport: Any) -> None:
        """Greet the caller."""
        self._transport: asyncio.Transport = transport
        self.peer = peer_of(transport)
        self._wire = self._server.open_wire()
        if not self._server.connections.opened(self):
            self._is_broken = True
            transport.abort()
            return
        self.flush()

    def get_buffer(self, sizehint: int) -> memoryview:  # noqa: ARG002 - asyncio's signature
        """Say where the next bytes go."""
        return self._server.arriving

    def buffer_updated(self, nbytes: int) -> None:
        """Take what has arrived."""
        if self._is_broken:
            return
        self.received_at_s = self.loop.time()
        try:
            self._wire.receive_data(self._server.arriving[:nbytes])
            self._events.extend(self._wire.events())
        except h2.WireError as error:
            self._break(error)
        else:
            if not self._is_taking:
                self._take_some()

    def pause_writing(self) -> None:
        """Hand over nothing more: the caller does not read."""
        self._is_paused = True

    def resume_writing(self) -> None:
        """Go on."""
        self._is_paused = False
        self.flush()

    def connection_lost(self, error: Exception | None) -> None:  # noqa: ARG002 - asyncio's signature
        """End what the caller has begun."""
        self._is_broken = True
        for call in list(self._calls.values()):
            self._forget(call)
        self._calls.clear()
        for waiting in self._unsent.values():
            waiting.cancel()
        self._unsent.clear()
        self._ends.close()
        self._server.connections.closed(self)

    # Way, for its calls.

    def send(self, call: Call, message: bytes) -> None:
        """Send a message, after the head if it is the first."""
        if not call.is_begun:
            call.is_begun = True
            self._tell(h2.Wire.send_response, call.stream_id, HEAD)
        for piece in framed(message):
            self._tell(h2.Wire.send_data, call.stream_id, piece)

    async def sent(self, call: Call) -> None:
        """Return when few enough bytes of the call's answers are held here."""
        if self._is_broken or self._wire.queued_body_size(call.stream_id) <= UNSENT_BYTES_MAX:
            return
        waiting = self._unsent[call.stream_id] = self.loop.create_future()
        try:
            await waiting
        finally:
            self._unsent.pop(call.stream_id, None)

    def finish(self, call: Call, fields: Fields) -> None:
        """End a call."""
        call.is_over = True
        if call.is_expired and call.stream_id in self._unfinished:
            self._server.connections.counts.late_requests += 1
        if call.tick is not None:
            self._server.deadlines.take_back(call, call.tick)
        if self._is_broken:
            return
        if not call.is_begun:
            self._ends.refuse(call.stream_id, (*HEAD, *fields), has_spoken=call.has_spoken, is_last=call.is_half_closed)
            return
        self._tell(h2.Wire.send_trailers, call.stream_id, fields)
        if not call.is_half_closed:
            self._ends.note_early(call.stream_id)

    def acknowledge(self, call: Call, size_bytes: int) -> None:
        """Let the caller send so many bytes more."""
        if size_bytes:
            self._tell(h2.Wire.acknowledge_received_data, size_bytes, call.stream_id)

    def admit(self, size_bytes: int) -> None:
        """Count bytes of requests. Raises CallRefused."""
        self._server.incoming.charge(size_bytes)

    def give_back(self, size_bytes: int) -> None:
        """Stop counting bytes of requests."""
        self._server.incoming.give_back(size_bytes)

    @property
    def is_pressed(self) -> bool:
        """Whether so many bytes are held that callers should wait."""
        return self._server.incoming.is_half_used

    # What the server does to it.

    @property
    def calls(self) -> Collection[Call]:
        """Calls whose answers have not left."""
        return self._calls.values()

    @property
    def is_idle(self) -> bool:
        """Whether it has no call, none is about to begin, and all that was answered has left."""
        return not self._calls and not self._events and not self._transport.get_write_buffer_size()

    def shut(self) -> None:
        """Ask the caller to begin no more calls here."""
        self._say(h2.Wire.send_shutdown_notice)

    def cancel(self) -> list["asyncio.Task[None]"]:
        """Let all handlers end. Returns them."""
        tasks = []
        for call in list(self._calls.values()):
            call.cancel()
            if call.task is not None:
                tasks.append(call.task)
        return tasks

    def ping(self) -> None:
        """Ask the caller for a sign of life."""
        self._say(h2.Wire.ping)

    def close(self) -> None:
        """Close it, once what was said has left."""
        self._say(h2.Wire.send_goaway)
        self._hang_up()

    def _say(self, what: Callable[[h2.Wire], None]) -> None:
        """Say something of the connection, unless it ends already."""
        if not self._is_broken:
            with contextlib.suppress(h2.WireError):
                what(self._wire)
            self.flush()

    def abort(self) -> None:
        """Close it at once."""
        self._transport.abort()

    # Events

    def _take_some(self) -> None:
        """Take as many events as fit into one turn of the loop, and let nothing more come until all are taken."""
        self._is_taking = False
        if self._is_broken:
            return
        try:
            self._take()
        except h2.WireError as error:
            self._break(error)
            return
        self._flush_soon()  # with the answers of those that begin now, if they are quick
        if self._events:
            self._is_taking = True
            self.loop.call_soon(self._take_some)
        self._read_more(not self._events)

    def _read_more(self, may_read: bool) -> None:
        if may_read is self._may_read or self._transport.is_closing():
            return
        self._may_read = may_read
        if may_read:
            self._transport.resume_reading()
        else:
            self._transport.pause_reading()

    def _take(self) -> None:
        receivers, taken, left = self._receivers, self._events, WORK_A_TURN
        while taken and left > 0:
            event = taken.popleft()
            kind = type(event)
            left -= 1 if kind is h2.DataReceived and not event.end_stream else WORK_OF_A_CALL
            receive = receivers.get(kind)
            if receive is not None:
                receive(event)

    def _request(self, event: h2.RequestReceived) -> None:
        stream_id = event.stream_id
        try:
            head = Head(event.headers)
            head.check()
            handler = self._server.handler_of(head)
            if handler is None:
                raise CallRefused(grpc.StatusCode.UNIMPLEMENTED, "Method not found!")  # noqa: TRY301 - gRPC's own words
            if self._server.call_count >= self._server.call_count_max:
                raise TooManyCalls(self._server.call_count_max)
        except HttpRefused as refusal:
            fields: Fields = ((b":status", b"%d" % refusal.status),)
            self._ends.refuse(stream_id, fields, has_spoken=event.end_stream, is_last=event.end_stream)
        except CallRefused as refusal:
            fields = (*HEAD, *self._server.ending(refusal))
            self._ends.refuse(stream_id, fields, has_spoken=event.end_stream, is_last=event.end_stream)
        else:
            self._server.call_count += 1
            if not self._calls:
                self._server.connections.busy(self)
            call = self._calls[stream_id] = Call(self, stream_id, head, handler, self._server.request_size_bytes_max)
            self._set_deadline(call, is_whole=handler.request_streaming or event.end_stream)
            if event.end_stream:
                self._feed(call, b"", is_last=True)

    def _set_deadline(self, call: Call, *, is_whole: bool) -> None:
        """Let a call end in its time, and one whose request does not come to its end sooner than that."""
        timeout_s = call.head.timeout_s
        request_s = self._server.connections.limits.call_request_timeout_ms / 1000
        if not is_whole and (timeout_s is None or timeout_s > request_s):
            timeout_s = request_s
            self._unfinished.add(call.stream_id)
        if timeout_s is not None:
            call.tick = self._server.deadlines.set(call, timeout_s)

    def _finish_request(self, call: Call) -> None:
        self._unfinished.discard(call.stream_id)
        if call.tick is not None and not call.is_over:
            self._server.deadlines.take_back(call, call.tick)
            call.tick = None
            self._set_deadline(call, is_whole=True)

    def _data(self, event: h2.DataReceived) -> None:
        call = self._calls.get(event.stream_id)
        if call is None or call.is_over:
            self._wire.acknowledge_received_data(len(event.data), event.stream_id)
            self._ends.heard(event.stream_id)
        else:
            self._feed(call, event.data, is_last=event.end_stream)

    def _feed(self, call: Call, data: bytes, *, is_last: bool) -> None:
        try:
            if data:
                call.feed(data, is_last=is_last)
            elif is_last:
                call.close_half()
        except CallRefused as refusal:
            self._end(call, self._server.ending(refusal))
        if is_last and call.stream_id in self._unfinished:
            self._finish_request(call)

    def _trailers(self, event: h2.TrailersReceived) -> None:
        call = self._calls.get(event.stream_id)
        if call is not None and not call.is_over:
            self._feed(call, b"", is_last=True)

    def _gone(self, event: h2.StreamClosed | h2.StreamReset) -> None:
        self._ends.forget(event.stream_id)
        call = self._calls.pop(event.stream_id, None)
        if call is not None:
            self._forget(call)

    def _connection_closed(self, _: h2.ConnectionClosed) -> None:
        self._is_ending = True

    # Ends

    def _say_end(self, stream_id: int, fields: Fields) -> None:
        self._tell(partial(h2.Wire.send_response, end_stream=True), stream_id, fields)

    def _cut_request(self, stream_id: int) -> bool:
        """Stop a request, unless its answer is not out: that would be cut, too. Returns whether it is stopped."""
        if self._is_broken:
            return True
        try:
            if not self._write() or self._wire.queued_body_size(stream_id):
                return False
            self._wire.reset_stream(stream_id, NO_ERROR)
        except h2.WireError as error:
            self._break(error)
        else:
            self._flush_soon()
        return True

    def _end(self, call: Call, fields: Fields) -> None:
        """End a call whose handler has not seen its request, or sees no more of it."""
        self.finish(call, fields)
        if call.task is not None:
            call.task.cancel()

    def _forget(self, call: Call) -> None:
        self._server.call_count -= 1
        self._unfinished.discard(call.stream_id)
        if call.tick is not None:
            self._server.deadlines.take_back(call, call.tick)
        call.drop()
        if not self._calls:
            self._server.connections.idle(self)

    def _break(self, error: Exception) -> None:
        """Say good-bye to one that broke the rules."""
        self._server.connections.counts.broken += 1
        _log.debug("%s broke the rules of HTTP/2: %s", self.peer, error)
        self._is_broken = True
        with contextlib.suppress(h2.WireError):
            self._transport.write(self._wire.data_to_send())
        self._hang_up()

    def _hang_up(self) -> None:
        """Close it once the caller has taken what was said, or after a moment."""
        if not self._transport.is_closing():
            self._transport.close()
            self.loop.call_later(CLOSE_S, self._transport.abort)

    # Bytes out

    def _tell(self, what: Callable[..., None], *arguments: Any) -> None:
        """Have the library send something in this turn. What it refuses ends the connection.

        A call that its caller has taken back, of which an event will tell, ends nothing.
        """
        if self._is_broken:
            return
        try:
            what(self._wire, *arguments)
        except h2.StreamError as error:
            _log.debug("%s took a call back: %s", self.peer, error)
        except h2.WireError as error:
            self._break(error)
        else:
            self._flush_soon()

    def _flush_soon(self) -> None:
        if not self._is_flush_due:
            self._is_flush_due = True
            self.loop.call_soon(self.flush)

    def flush(self) -> None:
        """Hand over what is ready, and close what has ended."""
        self._is_flush_due = False
        if self._is_broken:
            return
        try:
            self._write()
            self._events.extend(self._wire.events())
        except h2.WireError as error:
            self._break(error)
            return
        if self._events and not self._is_taking:
            self._take_some()
        if self._unsent:
            self._wake_unsent()
        if self._is_ending:
            self._transport.close()

    def _write(self) -> bool:
        """Hand over what the transport takes. Returns whether that is all."""
        wire, transport = self._wire, self._transport
        while not self._is_paused:
            data = wire.data_to_send(WRITE_BYTES)
            if not data:
                return True
            transport.write(data)
        return False

    def _wake_unsent(self) -> None:
        for stream_id, waiting in self._unsent.items():
            if not waiting.done() and self._wire.queued_body_size(stream_id) <= UNSENT_BYTES_MAX:
                waiting.set_result(None)


def peer_of(transport: asyncio.BaseTransport) -> str:
    """Return the address of whoever is on the other side, as gRPC writes it."""
    connection = transport.get_extra_info("socket")
    name = transport.get_extra_info("peername")
    if connection is not None and connection.family == socket.AF_UNIX:
        return "unix:"
    if not isinstance(name, tuple):
        return "unknown:"
    host, port = name[0], name[1]
    return f"ipv6:[{host}]:{port}" if ":" in host else f"ipv4:{host}:{port}"
