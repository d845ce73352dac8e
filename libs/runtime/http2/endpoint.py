# SPDX-License-Identifier: Apache-2.0
"""Endpoint: one end of a connection. It reads bytes, handles events in bounded portions, and writes bytes.

A turn of the event loop handles a bounded part of the events that arrived together. All output of a turn leaves in a
single write. Invariants: bytes leave the library only when the transport takes them; after a violation of the protocol
the connection is not used any more.
"""

import asyncio
import contextlib
import logging
from collections import deque
from collections.abc import Callable, Mapping
from typing import Any, Final

from libs.runtime.http2 import wire as h2
from libs.runtime.http2.session.whole import WholeCall

WRITE_BYTES: Final = 256 << 10
"""Maximum size of a single write to the transport."""

UNSENT_BYTES_MAX: Final = 64 << 10
"""Unsent bytes of a stream up to which its sender does not have to wait."""

WORK_A_TURN: Final = 256
"""Work of a connection in a turn of the event loop. The unit is a piece of data."""

WORK_OF_A_CALL: Final = 10
"""Work of an event that begins a call, ends its request (this starts most handlers), or ends the call."""

ARRIVING_BYTES_MAX: Final = 256 << 10
"""Bytes of a single read. This amount stays in a processor's cache."""

LEAVE_S: Final = 1.0
"""Time for the other side to receive the last output."""

_log = logging.getLogger(__name__)


class Endpoint(asyncio.BufferedProtocol):
    """The endpoint of a connection: an asyncio protocol.

    `arriving` is the buffer into which the transports of all connections put arriving bytes. A connection has read its
    bytes before the next connection asks for the buffer.
    """

    def __init__(self, arriving: memoryview, receivers: Mapping[type, Callable[[Any], None]]) -> None:
        self._arriving = arriving
        self._receivers: Mapping[type, Callable[[Any], None]] = receivers
        self.loop = asyncio.get_running_loop()
        self._unsent: dict[int, asyncio.Future[None]] = {}
        """Maps each stream to the future of the sender that waits until its output has left."""
        self._leaving: dict[int, Callable[[int], None]] = {}
        """Maps each stream of a relayed call to the function that gets the number of its unsent bytes."""
        self._events: deque[Any] = deque()
        self._is_taking, self._may_read = False, True
        self._is_paused = self._is_flush_due = self._is_broken = self._is_ending = False
        self._last_moment: asyncio.TimerHandle | None = None
        self.opened_at_s = self.received_at_s = self.loop.time()
        self.received_bytes = self.sent_bytes = 0
        """Bytes of HTTP/2, within TLS."""
        self.peer = "unknown:"

    def _greet(self, transport: Any, wire: h2.EndpointWire) -> None:
        """Set the transport and the wire of the connection."""
        self._transport: asyncio.Transport = transport
        self._wire = wire

    # asyncio.BufferedProtocol

    def get_buffer(self, sizehint: int) -> memoryview:  # noqa: ARG002 - asyncio's signature
        """Return the buffer for the next bytes."""
        return self._arriving

    def buffer_updated(self, nbytes: int) -> None:
        """Read the bytes that have arrived, and handle their events."""
        if self._is_broken:
            return
        self.received_at_s = self.loop.time()
        self.received_bytes += nbytes
        try:
            self._wire.receive_data(self._arriving[:nbytes])
            self._events.extend(self._worth_taking(self._wire.events()))
        except h2.WireError as error:
            self._break(error)
        else:
            if not self._is_taking:
                self._take_some()

    def pause_writing(self) -> None:
        """Stop writing to the transport: the other side does not read."""
        self._is_paused = True

    def resume_writing(self) -> None:
        """Resume writing to the transport."""
        self._is_paused = False
        self.flush()

    def connection_lost(self, error: Exception | None) -> None:  # noqa: ARG002 - asyncio's signature
        """Cancel all waits for the connection."""
        self._is_broken = True
        for waiting in self._unsent.values():
            waiting.cancel()
        self._unsent.clear()
        self._leaving.clear()
        if self._last_moment is not None:
            self._last_moment.cancel()
        self._receivers = {}  # they hold the connection: nothing of it shall wait for the cyclic collector

    # Output

    def _send(self, stream_id: int, message: bytes) -> None:
        self._tell(self._wire.send_message, stream_id, message)

    async def _sent(self, stream_id: int) -> None:
        """Wait until at most `UNSENT_BYTES_MAX` bytes of a stream are unsent."""
        if self._is_broken or self._wire.queued_body_size(stream_id) <= UNSENT_BYTES_MAX:
            return
        waiting = self._unsent[stream_id] = self.loop.create_future()
        try:
            await waiting
        finally:
            self._unsent.pop(stream_id, None)

    def _acknowledge(self, stream_id: int, size_bytes: int) -> None:
        """Allow the other side to send `size_bytes` more bytes."""
        if size_bytes:
            self._tell(self._wire.acknowledge_received_data, size_bytes, stream_id)

    # Relayed calls: this is a Side of them

    def pass_on(self, stream_id: int, data: bytes) -> None:
        """Send bytes of a stream as they are."""
        self._tell(self._wire.send_data, stream_id, data)

    def acknowledge_bytes(self, stream_id: int, size_bytes: int) -> None:
        """Allow the other side to send `size_bytes` more bytes."""
        self._acknowledge(stream_id, size_bytes)

    def tell_left(self, stream_id: int, told: Callable[[int], None]) -> None:
        """Call `told` after each write with the unsent bytes of a stream, until there are none."""
        if not self._is_broken:
            self._leaving[stream_id] = told
            self._flush_soon()

    def _tell_leaving(self) -> None:
        for stream_id, told in list(self._leaving.items()):
            size_bytes = self._wire.queued_body_size(stream_id)
            if not size_bytes:
                del self._leaving[stream_id]
            told(size_bytes)

    def ping(self) -> None:
        """Ask for a sign of life."""
        self._say(self._wire.ping)

    def close(self) -> None:
        """Send GOAWAY, and close the connection after pending output has left."""
        self._say(self._wire.send_goaway)
        self._hang_up()

    def abort(self) -> None:
        """Close the connection at once."""
        self._transport.abort()

    def _say(self, what: Callable[[], None]) -> None:
        """Send a frame about the connection, unless the connection is broken."""
        if not self._is_broken:
            with contextlib.suppress(h2.WireError):
                what()
            self.flush()

    def _tell(self, what: Callable[..., None], *arguments: Any) -> bool:
        """Have the library send a frame in this turn, and return True. An error of the library ends the connection.

        An error because the other side has ended the call is only logged: an event will report the end.
        """
        if self._is_broken:
            return False
        try:
            what(*arguments)
        except h2.StreamError as error:
            _log.debug("%s ended a call: %s", self.peer, error)
            return False
        except h2.WireError as error:
            self._break(error)
            return False
        self._flush_soon()
        return True

    # Events

    def _worth_taking(self, arrived: list[Any]) -> list[Any]:
        """Return the events that need work. Subclasses override it."""
        return arrived

    def _take_some(self) -> None:
        """Handle the events that fit into a turn of the loop, and pause reading until all events are handled."""
        self._is_taking = False
        if self._is_broken:
            return
        try:
            self._take()
        except h2.WireError as error:
            self._break(error)
            return
        self._flush_soon()  # includes the answers of calls that begin now, if they are quick
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
            if kind is WholeCall:
                left -= event.head.work
            else:
                left -= 1 if kind is h2.DataReceived and not event.end_stream else WORK_OF_A_CALL
            receive = receivers.get(kind)
            if receive is not None:
                receive(event)

    def _break(self, error: Exception) -> None:
        """Send the last output and close, because the other side violated the protocol."""
        _log.debug("%s broke the rules of HTTP/2: %s", self.peer, error)
        self._is_broken = True
        with contextlib.suppress(h2.WireError):
            while parts := self._wire.parts_to_send(WRITE_BYTES):
                self._transport.writelines(parts)
        self._hang_up()

    def _close(self) -> None:
        """Close the connection after the other side has received all output."""
        self._transport.close()

    def _hang_up(self) -> None:
        """Close the connection after the other side has received all output, at the latest after `LEAVE_S`."""
        if not self._transport.is_closing():
            self._close()
            self._last_moment = self._last_moment or self.loop.call_later(LEAVE_S, self._transport.abort)

    # Bytes out

    def _flush_soon(self) -> None:
        if not self._is_flush_due:
            self._is_flush_due = True
            self.loop.call_soon(self.flush)

    def flush(self) -> None:
        """Write the output that is ready, and close the connection if it is ending."""
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
        if self._leaving:
            self._tell_leaving()
        if self._is_ending:
            self._close()

    def _write(self) -> bool:
        """Write as much output as the transport takes. Returns whether all output was written."""
        wire, transport = self._wire, self._transport
        while not self._is_paused:
            parts = wire.parts_to_send(WRITE_BYTES)
            if not parts:
                return True
            self.sent_bytes += sum(map(len, parts))
            if len(parts) == 1:
                transport.write(parts[0])
            else:
                transport.writelines(parts)
        return False

    def _wake_unsent(self) -> None:
        for stream_id, waiting in self._unsent.items():
            if not waiting.done() and self._wire.queued_body_size(stream_id) <= UNSENT_BYTES_MAX:
                waiting.set_result(None)
