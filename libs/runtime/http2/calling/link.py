# SPDX-License-Identifier: Apache-2.0
"""Link: a connection to a server. It begins calls, passes arriving bytes to them, and reports their end to them.

Invariants: the invariants of an endpoint; a call that has a stream here ends at the latest with the connection. A
call that no handler has seen (REFUSED_STREAM of RFC 9113, section 8.7) may begin again on another connection. A server
that sends nothing while calls wait is pinged. Without a sign of life after that, the connection is closed.
"""

import asyncio
from collections import OrderedDict
from collections.abc import Callable
from typing import Any, Final, Protocol

import grpc

from libs.runtime.http2 import wire as h2
from libs.runtime.http2.calling.call import OutgoingCall
from libs.runtime.http2.calling.outcome import CANCEL, REFUSED_STREAM, Outcome, reset_outcome
from libs.runtime.http2.endpoint import Endpoint
from libs.runtime.http2.heads import Fields
from libs.runtime.http2.relay.call import RelayedCall

SILENCE_S: Final = 20.0
"""A server that has sent nothing for this time, although calls wait, is pinged."""

ANSWER_S: Final = 20.0
"""Time for the server to answer the ping."""


RESETS_AT_ONCE, RESETS_PER_S = 1_500, 180
"""Resets that a server takes from a connection. With more, by default 2,000 and 200, it ends the connection."""
RESET_STEP_S: Final = 0.1
WAITING_RESETS_MAX: Final = 500
"""Resets that wait here. With more, later calls begin on another connection, which the server knows nothing against."""


class Owner(Protocol):
    """The owner of a link."""

    def made(self, link: "Link") -> None:
        """Record an open link."""
        ...

    def left(self, link: "Link") -> None:
        """Begin no more calls on a link."""
        ...

    def lost(self, link: "Link") -> None:
        """Forget a closed link."""
        ...

    @property
    def may_open_another(self) -> bool:
        """Whether there may be a further link."""
        ...


class _Resets:
    """The resets that the server takes at this moment."""

    def __init__(self, now_s: Callable[[], float]) -> None:
        self._now_s, self._seen_s, self._room = now_s, now_s(), float(RESETS_AT_ONCE)

    def take(self) -> bool:
        """Return whether there is room for a reset, and use it."""
        now_s = self._now_s()
        self._room = min(RESETS_AT_ONCE, self._room + (now_s - self._seen_s) * RESETS_PER_S)
        self._seen_s = now_s
        if self._room < 1:
            return False
        self._room -= 1
        return True


class Link(Endpoint):
    """A connection to a server."""

    _wire: h2.Wire

    def __init__(self, arriving: memoryview, owner: Owner, open_wire: Callable[[], h2.Wire] = h2.open_calling) -> None:
        super().__init__(
            arriving,
            {
                h2.DataReceived: self._data,
                h2.ResponseReceived: self._head,
                h2.TrailersReceived: self._end,
                h2.StreamReset: self._reset,
                h2.StreamClosed: self._reset,
                h2.GoAwayReceived: self._leave,
                h2.ConnectionClosed: self._closed,
            },
        )
        self._owner, self._open_wire = owner, open_wire
        self._calls: dict[int, OutgoingCall | RelayedCall] = {}
        self._is_leaving = False
        self._resets = _Resets(self.loop.time)
        self._waiting_resets: OrderedDict[int, None] = OrderedDict()
        """Streams that were given up and whose reset waits for its turn."""
        self._resetting: asyncio.TimerHandle | None = None
        self._watching: asyncio.TimerHandle | None = None

    def connection_made(self, transport: Any) -> None:
        """Begin HTTP/2 with the server."""
        self._greet(transport, self._open_wire())
        self._owner.made(self)
        self.flush()
        self._watch()

    def connection_lost(self, error: Exception | None) -> None:
        """End all calls."""
        for waiting in self._unsent.values():
            # the writer gets the end of its call; a cancelled future would look like its own cancellation
            _wake(waiting)
        super().connection_lost(error)
        for timer in (self._watching, self._resetting):
            if timer is not None:
                timer.cancel()
        self._watching = self._resetting = None
        self._leave(None)
        text = "the connection is lost" if error is None else f"the connection is lost: {error}"
        for call in list(self._calls.values()):
            call.end(Outcome(grpc.StatusCode.UNAVAILABLE, text))
        self._calls.clear()
        self._owner.lost(self)

    @property
    def is_leaving(self) -> bool:
        """Whether no more calls begin here."""
        return self._is_leaving

    def begin(self, call: OutgoingCall | RelayedCall, head: Fields, request: bytes | None) -> None:
        """Begin a call, with its single request or without a request. An error becomes the end of the call."""
        if self._is_broken or self._is_leaving:
            self._owner.left(self)
            call.refused(Outcome(grpc.StatusCode.UNAVAILABLE, "the connection takes no more calls"))
            return
        try:
            stream_id = self._wire.send_request(head)
        except h2.WireError as error:
            self._leave(None)
            call.refused(Outcome(grpc.StatusCode.UNAVAILABLE, f"the connection takes no more calls: {error}"))
            return
        self._calls[stream_id] = call
        call.begin(self, stream_id)
        if request is not None:
            self.send(stream_id, request)
            self.close_half(stream_id)
        self._flush_soon()

    def end_calls(self, outcome: Outcome) -> None:
        """End all calls with an outcome, and close the connection."""
        for call in list(self._calls.values()):
            call.end(outcome)
        self._calls.clear()
        if not self._is_broken:
            self.close()

    # Methods for its calls: it is their CallTransport

    def send(self, stream_id: int, message: bytes) -> None:
        """Send a message."""
        self._send(stream_id, message)

    async def sent(self, stream_id: int) -> None:
        """Wait until few enough bytes of the call are held here."""
        await self._sent(stream_id)

    def close_half(self, stream_id: int) -> None:
        """End the requests of a stream."""
        self._tell(self._wire.end_stream, stream_id)

    def pass_on_last(self, stream_id: int, data: bytes) -> None:
        """Send the last bytes of a request as they are."""
        self._tell(self._send_last, stream_id, data)

    def _send_last(self, stream_id: int, data: bytes) -> None:
        self._wire.send_data(stream_id, data, end_stream=True)

    def acknowledge(self, stream_id: int, size_bytes: int) -> None:
        """Allow the server to send `size_bytes` more bytes."""
        self._acknowledge(stream_id, size_bytes)

    def give_up(self, stream_id: int) -> None:
        """Forget a call and notify the server."""
        if self._calls.pop(stream_id, None) is None:
            return
        if not self._waiting_resets and self._resets.take():
            self._tell(self._wire.reset_stream, stream_id, CANCEL)
            return
        self._waiting_resets[stream_id] = None
        if self._resetting is None:
            self._resetting = self.loop.call_later(RESET_STEP_S, self._reset_some)
        if len(self._waiting_resets) > WAITING_RESETS_MAX and self._owner.may_open_another:
            self._leave(None)

    def forget(self, stream_id: int) -> None:
        """Forget a call that the server has ended."""
        self._calls.pop(stream_id, None)

    def _reset_some(self) -> None:
        self._resetting = None
        while self._waiting_resets and self._resets.take():
            stream_id, _ = self._waiting_resets.popitem(last=False)
            self._tell(self._wire.reset_stream, stream_id, CANCEL)
        if self._waiting_resets and not self._is_broken:
            self._resetting = self.loop.call_later(RESET_STEP_S, self._reset_some)

    # Events

    def _head(self, event: h2.ResponseReceived) -> None:
        call = self._calls.get(event.stream_id)
        if call is not None:
            call.head_of_answer(event.headers)

    def _data(self, event: h2.DataReceived) -> None:
        call = self._calls.get(event.stream_id)
        if call is None or call.done():
            self._acknowledge(event.stream_id, len(event.data))
        elif event.data:
            call.take(event.data)

    def _end(self, event: h2.TrailersReceived) -> None:
        call = self._calls.get(event.stream_id)
        if call is not None:
            call.finish(event.headers)

    def _reset(self, event: h2.StreamReset | h2.StreamClosed) -> None:
        self._waiting_resets.pop(event.stream_id, None)
        call = self._calls.pop(event.stream_id, None)
        if call is not None:
            end = call.refused if event.error_code == REFUSED_STREAM else call.end
            end(reset_outcome(event.error_code))
        if (waiting := self._unsent.get(event.stream_id)) is not None:
            _wake(waiting)
        if self._is_leaving and not self._calls:
            self.close()

    def _leave(self, _: h2.GoAwayReceived | None) -> None:
        """Begin no more calls: the server accepts no more of them here, or is gone."""
        if not self._is_leaving:
            self._is_leaving = True
            self._owner.left(self)
        if not self._calls and not self._is_broken:
            self.close()

    def _closed(self, _: h2.ConnectionClosed) -> None:
        self._is_ending = True

    def _watch(self) -> None:
        """Check whether the server responds while calls wait for it."""
        silent_s = self.loop.time() - self.received_at_s
        if not self._calls:
            self.received_at_s = self.loop.time()
        elif silent_s > SILENCE_S + ANSWER_S:
            self.abort()
            return
        elif silent_s > SILENCE_S:
            self.ping()
        self._watching = self.loop.call_later(ANSWER_S / 2, self._watch)


def _wake(waiting: "asyncio.Future[None]") -> None:
    if not waiting.done():
        waiting.set_result(None)
