# SPDX-License-Identifier: Apache-2.0
"""Endpoint: one end of a connection: bytes in, events in pieces of a turn, and bytes out.

Of what has arrived together, a turn of the loop takes a part; all that a turn says leaves in one write.
Invariants: bytes leave the library only when the transport takes them; a connection whose rules were broken is asked
for nothing more.
"""

import asyncio
import contextlib
import logging
from collections import deque
from collections.abc import Callable, Mapping
from typing import Any, Final

from libs.runtime.http2 import wire as h2
from libs.runtime.http2.framing import framed

WRITE_BYTES: Final = 256 << 10
"""At most so much is handed to the transport at once."""

UNSENT_BYTES_MAX: Final = 64 << 10
"""Bytes of a stream that may wait here while whoever says them goes on."""

WORK_A_TURN: Final = 256
"""What one turn of the loop takes of one connection, in pieces of data."""

WORK_OF_A_CALL: Final = 10
"""The beginning of a call, the end of its request, which starts most handlers, or its own end, likewise."""

ARRIVING_BYTES_MAX: Final = 256 << 10
"""Bytes that are read at once: so many stay in a processor's cache on their way."""

LEAVE_S: Final = 1.0
"""So long the other side has to take what was said last."""

_log = logging.getLogger(__name__)


class Endpoint(asyncio.BufferedProtocol):
    """See the module.

    `arriving` is where the transports of all connections put what arrives; its connection has read it when the next one
    asks for it.
    """

    def __init__(self, arriving: memoryview, receivers: Mapping[type, Callable[[Any], None]]) -> None:
        self._arriving = arriving
        self._receivers: Mapping[type, Callable[[Any], None]] = receivers
        self.loop = asyncio.get_running_loop()
        self._unsent: dict[int, asyncio.Future[None]] = {}
        """Of those who wait until what they said has left, by their streams."""
        self._events: deque[Any] = deque()
        self._is_taking, self._may_read = False, True
        self._is_paused = self._is_flush_due = self._is_broken = self._is_ending = False
        self._last_moment: asyncio.TimerHandle | None = None
        self.received_at_s = self.loop.time()
        self.peer = "unknown:"

    def _greet(self, transport: Any, wire: h2.Wire) -> None:
        """Take note of what it stands on."""
        self._transport: asyncio.Transport = transport
        self._wire = wire

    # asyncio.BufferedProtocol

    def get_buffer(self, sizehint: int) -> memoryview:  # noqa: ARG002 - asyncio's signature
        """Say where the next bytes go."""
        return self._arriving

    def buffer_updated(self, nbytes: int) -> None:
        """Take what has arrived."""
        if self._is_broken:
            return
        self.received_at_s = self.loop.time()
        try:
            self._wire.receive_data(self._arriving[:nbytes])
            self._events.extend(self._worth_taking(self._wire.events()))
        except h2.WireError as error:
            self._break(error)
        else:
            if not self._is_taking:
                self._take_some()

    def pause_writing(self) -> None:
        """Hand over nothing more: the other side does not read."""
        self._is_paused = True

    def resume_writing(self) -> None:
        """Go on."""
        self._is_paused = False
        self.flush()

    def connection_lost(self, error: Exception | None) -> None:  # noqa: ARG002 - asyncio's signature
        """Let nobody wait for it any more."""
        self._is_broken = True
        for waiting in self._unsent.values():
            waiting.cancel()
        self._unsent.clear()
        if self._last_moment is not None:
            self._last_moment.cancel()
        self._receivers = {}  # they hold the connection: nothing of it shall wait for the cyclic collector

    # What is said.

    def _send(self, stream_id: int, message: bytes) -> None:
        for piece in framed(message):
            self._tell(h2.Wire.send_data, stream_id, piece)

    async def _sent(self, stream_id: int) -> None:
        """Return when few enough bytes of a stream are held here."""
        if self._is_broken or self._wire.queued_body_size(stream_id) <= UNSENT_BYTES_MAX:
            return
        waiting = self._unsent[stream_id] = self.loop.create_future()
        try:
            await waiting
        finally:
            self._unsent.pop(stream_id, None)

    def _acknowledge(self, stream_id: int, size_bytes: int) -> None:
        """Let the other side send so many bytes more."""
        if size_bytes:
            self._tell(h2.Wire.acknowledge_received_data, size_bytes, stream_id)

    def ping(self) -> None:
        """Ask for a sign of life."""
        self._say(h2.Wire.ping)

    def close(self) -> None:
        """Close it, once what was said has left."""
        self._say(h2.Wire.send_goaway)
        self._hang_up()

    def abort(self) -> None:
        """Close it at once."""
        self._transport.abort()

    def _say(self, what: Callable[[h2.Wire], None]) -> None:
        """Say something of the connection, unless it ends already."""
        if not self._is_broken:
            with contextlib.suppress(h2.WireError):
                what(self._wire)
            self.flush()

    def _tell(self, what: Callable[..., None], *arguments: Any) -> None:
        """Have the library send something in this turn. What it refuses ends the connection.

        A call that the other side has ended, of which an event will tell, ends nothing.
        """
        if self._is_broken:
            return
        try:
            what(self._wire, *arguments)
        except h2.StreamError as error:
            _log.debug("%s ended a call: %s", self.peer, error)
        except h2.WireError as error:
            self._break(error)
        else:
            self._flush_soon()

    # Events

    def _worth_taking(self, arrived: list[Any]) -> list[Any]:
        """Leave out what needs no work. For those who know better."""
        return arrived

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

    def _break(self, error: Exception) -> None:
        """Say good-bye to one that broke the rules."""
        _log.debug("%s broke the rules of HTTP/2: %s", self.peer, error)
        self._is_broken = True
        with contextlib.suppress(h2.WireError):
            self._transport.write(self._wire.data_to_send())
        self._hang_up()

    def _close(self) -> None:
        """Close it once the other side has taken what was said."""
        self._transport.close()

    def _hang_up(self) -> None:
        """Close it once the other side has taken what was said, or after a moment."""
        if not self._transport.is_closing():
            self._close()
            self._last_moment = self._last_moment or self.loop.call_later(LEAVE_S, self._transport.abort)

    # Bytes out

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
            self._close()

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
