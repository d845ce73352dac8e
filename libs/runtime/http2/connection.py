# SPDX-License-Identifier: Apache-2.0
"""Connection: the connection of a caller. It begins, feeds, answers and ends the calls of this caller.

All calls whose bytes arrive together begin in the same turn of the loop.
Invariants: the invariants of an endpoint; the end of the connection ends its calls.
"""

import asyncio
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from typing import Any, Final

import grpc

from libs.runtime.http2 import wire as h2
from libs.runtime.http2.behind import CallerBehind, CallersBehind
from libs.runtime.http2.call import Call
from libs.runtime.http2.early_ends import EarlyEnds
from libs.runtime.http2.endpoint import LEAVE_S, Endpoint
from libs.runtime.http2.framing import CallRefused, TooManyCalls
from libs.runtime.http2.heads import HEAD, OK, Fields, Head, HttpRefused
from libs.runtime.http2.peers import names_of_certificate, peer_of
from libs.runtime.http2.relay.call import RelayedCall
from libs.runtime.http2.relay.upstream import RelayHandler
from libs.runtime.http2.serving import Server
from libs.runtime.http2.session.plain import PlainSession
from libs.runtime.http2.session.whole import WholeCall
from libs.runtime.http2.turns import TurnHandler

NO_ERROR: Final = 0
BEGINNINGS: Final = frozenset((h2.RequestReceived, WholeCall))
"""Events that begin a call."""

DOOR_WINDOW_BYTES: Final = 2**31 - 1
"""Bytes of requests that may be under way on the connection of a door. A caller whose stream is not read has a window
of its own, and the budget of all requests counts them, so it holds no other caller up."""

FLOOD_COUNT, FLOOD_S = 1_000, 5.0
"""A connection floods when it ends after the caller has reset `FLOOD_COUNT` calls within `FLOOD_S`."""


class Connection(Endpoint):
    """The connection of a caller."""

    _wire: PlainSession

    def __init__(self, server: Server) -> None:
        super().__init__(
            server.arriving,
            {
                h2.DataReceived: self._data,
                h2.RequestReceived: self._request,
                WholeCall: self._whole,
                h2.StreamClosed: self._gone,
                h2.StreamReset: self._gone,
                h2.TrailersReceived: self._trailers,
                h2.ConnectionClosed: self._connection_closed,
            },
        )
        self._server = server
        self._calls: dict[int, Call | RelayedCall] = {}
        self._waiting: set[int] = set()
        """Streams of whole calls that are answered at the end of this turn."""
        self._leaving_count = 0
        """Number of calls that were answered at the end of a turn, and whose answers have not left."""
        self._unfinished: set[int] = set()
        """Streams whose single request is incomplete, and has less time to arrive than the call's deadline allows."""
        self._reset_count, self._resets_since_s = 0, self.loop.time()
        """Number of calls that the caller has reset, and the time since which they are counted."""
        self._early_ends = EarlyEnds(self._say_end, self._cut_request)
        self._certificate_names: Mapping[str, Sequence[bytes]] | None = None
        self.when_lost: dict[object, Callable[[], None]] = {}
        """Functions that are called when the connection is lost, by their owner."""
        self.relayed_fields: dict[Head, Fields] = {}
        """The fields of heads that were passed on, for calls with the same heads."""
        self.number = 0
        self.begun_count = 0
        """Calls that have begun here."""
        self.last_head: Head | None = None
        """The head of the call that has begun last."""
        self.behind: CallersBehind | None = None
        """The callers behind the door at the other end. None if it is no door."""
        self.groups: dict[str, None] = {}
        """Consumer groups that calls have named, the latest last. Servicers add them, and bound them."""

    def connection_made(self, transport: Any) -> None:
        """Begin HTTP/2 with the caller."""
        self._greet(transport, self._server.open_session())
        self.peer = peer_of(transport)
        if not self._server.connections.opened(self):
            self._is_broken = True
            transport.abort()
            return
        self.flush()

    def connection_lost(self, error: Exception | None) -> None:
        """End all calls of the caller."""
        self._is_broken = True
        for call in list(self._calls.values()):
            self._forget(call)
        self._calls.clear()
        self._server.call_count -= len(self._waiting) + self._leaving_count
        self._waiting.clear()
        self._leaving_count = 0
        super().connection_lost(error)
        self._early_ends.close()
        self._server.connections.closed(self)
        if self.behind is not None:
            self.behind.lose()
        for told in self.when_lost.values():
            told()
        self.when_lost.clear()

    # Methods for its calls: it is their CallTransport

    def auth_context(self) -> Mapping[str, Sequence[bytes]]:
        """Return the names of the caller's certificate by gRPC's properties. Empty without a certificate."""
        if self._certificate_names is None:
            self._certificate_names = names_of_certificate(self._transport.get_extra_info("peercert"))
        return self._certificate_names

    def caller_of(self, head: Head) -> "Connection | CallerBehind":
        """Return the caller of a call on it: itself, or a caller behind a door."""
        if head.origin is None or self.behind is None:
            return self
        return self.behind.get(head.origin) or self

    def begin(self, call: Call) -> None:
        """Send the head, unless it was sent."""
        if not call.is_begun:
            call.is_begun = True
            self._tell(self._wire.send_response, call.stream_id, HEAD)

    def begin_with(self, call: RelayedCall, fields: Fields) -> None:
        """Send the head of a relayed answer."""
        if not call.is_begun:
            call.is_begun = True
            self._tell(self._wire.send_response, call.stream_id, fields)

    @property
    def header_size_bytes_max(self) -> int:
        """The size of the largest head, as HTTP/2 counts it."""
        return self._server.connections.limits.call_header_size_bytes_max

    def send(self, call: Call, message: bytes) -> None:
        """Send a message, after the head if it is the first."""
        self.begin(call)
        self._send(call.stream_id, message)

    def answer(self, call: Call, message: bytes) -> None:
        """Send the only message of the answer, and end the call with the status OK."""
        if call.is_begun or not call.is_half_closed:
            self.send(call, message)
            self.finish(call, OK)
            return
        call.is_begun = call.is_over = True
        if call.tick is not None:
            self._server.deadlines.take_back(call, call.tick)
        self._tell(self._wire.answer, call.stream_id, message)

    async def sent(self, call: Call) -> None:
        """Wait until few enough bytes of the call's answers are held here."""
        await self._sent(call.stream_id)

    def finish(self, call: Call | RelayedCall, fields: Fields) -> None:
        """End a call."""
        call.is_over = True
        if call.is_expired and call.stream_id in self._unfinished:
            self._server.connections.counts.late_requests += 1
        if call.tick is not None:
            self._server.deadlines.take_back(call, call.tick)
        if self._is_broken:
            return
        if not call.is_begun:
            self._early_ends.refuse(
                call.stream_id, (*HEAD, *fields), has_spoken=call.has_spoken, is_last=call.is_half_closed
            )
            return
        self._tell(self._wire.send_trailers, call.stream_id, fields)
        if not call.is_half_closed:
            self._early_ends.note_early(call.stream_id)

    def acknowledge(self, call: Call, size_bytes: int) -> None:
        """Allow the caller to send `size_bytes` more bytes."""
        self._acknowledge(call.stream_id, size_bytes)

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

    # Methods for the server

    @property
    def calls(self) -> Collection[Call | RelayedCall]:
        """Calls whose answers have not left."""
        return self._calls.values()

    @property
    def is_idle(self) -> bool:
        """Whether it has no call, no call is about to begin, and all answers have left."""
        return not self._has_calls and not self._events and not self._transport.get_write_buffer_size()

    @property
    def _has_calls(self) -> bool:
        return bool(self._calls or self._waiting or self._leaving_count)

    def shut(self) -> None:
        """Ask the caller to begin no more calls here."""
        self._say(self._wire.send_shutdown_notice)

    def cancel(self) -> list["asyncio.Task[None]"]:
        """Cancel all handlers. Returns their tasks."""
        tasks = []
        for call in list(self._calls.values()):
            call.cancel()
            if call.task is not None:
                tasks.append(call.task)
        return tasks

    # Events

    def _worth_taking(self, arrived: list[Any]) -> list[Any]:
        """Leave out calls whose beginning and reset have arrived together."""
        gone = {event.stream_id for event in arrived if type(event) is h2.StreamReset}
        if gone:
            self._note_resets(len(gone))
            gone &= {event.stream_id for event in arrived if type(event) in BEGINNINGS}
        if not gone:
            return arrived
        worth: list[Any] = []
        for event in arrived:
            if getattr(event, "stream_id", 0) not in gone:
                worth.append(event)
            elif type(event) is h2.DataReceived:
                self._wire.acknowledge_received_data(len(event.data), event.stream_id)
        return worth

    def _note_resets(self, count: int) -> None:
        now_s = self.loop.time()
        if now_s - self._resets_since_s > FLOOD_S:
            self._reset_count, self._resets_since_s = 0, now_s
        self._reset_count += count

    def _request(self, event: h2.RequestReceived) -> None:
        stream_id = event.stream_id
        try:
            head = Head(event.headers)
            head.check()
            handler = self._server.handler_of(head)
            if handler is None:
                raise CallRefused(grpc.StatusCode.UNIMPLEMENTED, self._server.unknown_text)  # noqa: TRY301 - it is short
            if self._server.call_count >= self._server.call_count_max:
                _note_full(handler)
                raise TooManyCalls(self._server.call_count_max)
        except HttpRefused as refusal:
            fields: Fields = ((b":status", b"%d" % refusal.status),)
            self._early_ends.refuse(stream_id, fields, has_spoken=event.end_stream, is_last=event.end_stream)
        except CallRefused as refusal:
            fields = (*HEAD, *self._server.ending(refusal))
            self._early_ends.refuse(stream_id, fields, has_spoken=event.end_stream, is_last=event.end_stream)
        else:
            self._count_call(head)
            call = self._begin_call(stream_id, head, head.timeout_s, handler)
            self._set_deadline(call, is_whole=handler.request_streaming or event.end_stream)
            if event.end_stream:
                self._feed(call, b"", is_last=True)

    def _count_call(self, head: Head) -> None:
        if not self._has_calls:
            self._server.connections.busy(self)
        self._server.call_count += 1
        self.begun_count += 1
        if head.origin is None:
            self.last_head = head
            return
        if self.behind is None:
            self.behind = CallersBehind(self, self._server.connections.next_number)
            self._tell(self._wire.set_local_window_size, DOOR_WINDOW_BYTES)
        self.behind.begin(head.origin, head)

    def _begin_call(
        self, stream_id: int, head: Head, timeout_s: float | None, handler: "grpc.RpcMethodHandler[Any, Any]"
    ) -> Call | RelayedCall:
        if isinstance(handler, RelayHandler):
            is_whole = head.handler is handler  # the session has looked it up
            relayed = RelayedCall(self, stream_id, head, handler, timeout_s, is_whole=is_whole)
            self._calls[stream_id] = relayed
            relayed.start()
            return relayed
        if isinstance(caller := self.caller_of(head), CallerBehind):
            caller.running[head.method] += 1
        size_bytes_max = self._server.request_size_bytes_max
        call = self._calls[stream_id] = Call(self, stream_id, head, handler, size_bytes_max, timeout_s)
        return call

    def _whole(self, event: WholeCall) -> None:
        """Begin a call whose request is here. A method that takes the requests of a turn gets it at the turn's end."""
        server = self._server
        try:
            refusing = server.refusing(event.head)
            if server.call_count >= server.call_count_max:
                _note_full(event.head.handler)
                raise TooManyCalls(server.call_count_max)
        except CallRefused as refusal:
            fields = (*HEAD, *server.ending(refusal))
            self._early_ends.refuse(event.stream_id, fields, has_spoken=True, is_last=True)
            return
        self._count_call(event.head)
        handler = event.head.handler
        assert handler is not None
        if refusing is not None:
            self._begin_whole(event, refusing)
        elif isinstance(handler, TurnHandler):
            self._waiting.add(event.stream_id)
            server.turns.add(handler, self, event)
        else:
            self._begin_whole(event, handler)

    def _begin_whole(self, event: WholeCall, handler: "grpc.RpcMethodHandler[Any, Any]") -> None:
        call = self._begin_call(event.stream_id, event.head, event.timeout_s, handler)
        if event.timeout_s is not None:
            call.tick = self._server.deadlines.set(call, event.timeout_s)
        try:
            call.take_whole(event.message)
        except CallRefused as refusal:
            self._end(call, self._server.ending(refusal))

    # Methods for the turns of the server

    def waits(self, stream_id: int) -> bool:
        """Return whether a call waits for the end of the turn. Its caller may have taken it back."""
        return stream_id in self._waiting

    def answer_whole(self, event: WholeCall, message: bytes) -> None:
        """Answer a call with the status OK. If the stream is closed, an event follows that ends the call."""
        if self._tell(self._wire.answer, event.stream_id, message, True):
            self._waiting.discard(event.stream_id)
            self._leaving_count += 1

    def run_whole(self, event: WholeCall, handler: "grpc.RpcMethodHandler[Any, Any]") -> None:
        """Let a handler answer a call."""
        self._waiting.discard(event.stream_id)
        self._begin_whole(event, handler)

    def _set_deadline(self, call: Call | RelayedCall, *, is_whole: bool) -> None:
        """Set the deadline of a call. A call whose request is incomplete ends sooner, after the limit for requests."""
        timeout_s = call.timeout_s
        request_s = self._server.connections.limits.call_request_timeout_ms / 1000
        if not is_whole and (timeout_s is None or timeout_s > request_s):
            timeout_s = request_s
            self._unfinished.add(call.stream_id)
        if timeout_s is not None:
            call.tick = self._server.deadlines.set(call, timeout_s)

    def _finish_request(self, call: Call | RelayedCall) -> None:
        self._unfinished.discard(call.stream_id)
        if call.tick is not None and not call.is_over:
            self._server.deadlines.take_back(call, call.tick)
            call.tick = None
            self._set_deadline(call, is_whole=True)

    def _data(self, event: h2.DataReceived) -> None:
        call = self._calls.get(event.stream_id)
        if call is None or call.is_over:
            self._wire.acknowledge_received_data(len(event.data), event.stream_id)
            self._early_ends.heard(event.stream_id)
        else:
            self._feed(call, event.data, is_last=event.end_stream)

    def _feed(self, call: Call | RelayedCall, data: bytes, *, is_last: bool) -> None:
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
        self._early_ends.forget(event.stream_id)
        call = self._calls.pop(event.stream_id, None)
        if call is not None:
            self._forget(call)
        elif event.stream_id in self._waiting:
            self._waiting.discard(event.stream_id)
            self._uncount_calls(1)

    def _connection_closed(self, _: h2.ConnectionClosed) -> None:
        self._is_ending = True

    # Ends

    def _say_end(self, stream_id: int, fields: Fields) -> None:
        self._tell(partial(self._wire.send_response, end_stream=True), stream_id, fields)

    def _cut_request(self, stream_id: int) -> bool:
        """Stop a request, and return True. Returns False while its answer is unsent: a reset would cut it, too."""
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

    def _end(self, call: Call | RelayedCall, fields: Fields) -> None:
        """End a call whose handler has not seen its request, or gets no more of it."""
        self.finish(call, fields)
        call.halt()

    def _write(self) -> bool:
        """Write as much output as the transport takes, and count the calls whose answers have left."""
        is_all = super()._write()
        left_count = self._wire.take_left_count()
        if left_count:
            self._leaving_count -= left_count
            self._uncount_calls(left_count)
        return is_all

    def _uncount_calls(self, count: int) -> None:
        self._server.call_count -= count
        if not self._has_calls:
            self._server.connections.idle(self)

    def _forget(self, call: Call | RelayedCall) -> None:
        self._unfinished.discard(call.stream_id)
        if call.tick is not None:
            self._server.deadlines.take_back(call, call.tick)
        call.drop()
        if isinstance(call, Call) and isinstance(caller := self.caller_of(call.head), CallerBehind):
            caller.end(call.head)
        self._uncount_calls(1)

    def _break(self, error: Exception) -> None:
        self._server.connections.counts.broken += 1
        super()._break(error)

    def _close(self) -> None:
        """Close it. The close of a flooding connection is delayed, because its caller would connect again at once."""
        if self._reset_count < FLOOD_COUNT or self.loop.time() - self._resets_since_s > 2 * FLOOD_S:
            super()._close()
        elif self._last_moment is None:
            self._is_broken = True
            self._read_more(may_read=False)
            self._last_moment = self.loop.call_later(LEAVE_S, self._transport.abort)


def _note_full(handler: Any) -> None:
    """Count a call that is not passed on because too many calls are under way."""
    if isinstance(handler, RelayHandler):
        handler.upstream.full_count += 1
