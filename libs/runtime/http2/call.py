# SPDX-License-Identifier: Apache-2.0
"""Call: a call on a connection, from its head to its end, as a servicer's handler sees it.

For a handler it is the ServicerContext of grpc.aio, with the methods that `libs.runtime.rpc` uses.
Invariants: a handler runs at most once, in its own task; the bytes of the request are counted until the handler
has taken them; nothing is sent after the end.
"""

import asyncio
import logging
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from typing import Any, Final, Protocol

import grpc

from libs.runtime.http2.framing import CallRefused, MessageReader
from libs.runtime.http2.heads import OK, Fields, Head, Metadata, trailers

Handler = Callable[[Any, "Call"], Any]
QUEUE_BYTES_MAX: Final = 512 << 10
"""Bytes of requests of a stream that its handler has not taken yet. Further bytes stay with the caller."""

ACCOUNT_BYTES: Final = 64 << 10
"""Bytes of a request are accounted for when so many have arrived, or a message is complete."""

_log = logging.getLogger(__name__)


class CallTransport(Protocol):
    """The part of a connection that a call needs."""

    loop: asyncio.AbstractEventLoop
    peer: str
    when_lost: dict[object, Callable[[], None]]

    def auth_context(self) -> Mapping[str, Sequence[bytes]]:
        """Return the names of the caller's certificate, as gRPC has them."""
        ...

    def caller_of(self, head: Head) -> Any:
        """Return the caller of a call on it: itself, or a caller behind a door."""
        ...

    def begin(self, call: "Call") -> None:
        """Send the head, unless it was sent."""
        ...

    def send(self, call: "Call", message: bytes) -> None:
        """Send a message, after the head if it is the first."""
        ...

    def answer(self, call: "Call", message: bytes) -> None:
        """Send the only message of the answer, and end the call with the status OK."""
        ...

    async def sent(self, call: "Call") -> None:
        """Wait until the sent messages are not held here any more."""
        ...

    def finish(self, call: "Call", fields: Fields) -> None:
        """End a call."""
        ...

    def acknowledge(self, call: "Call", size_bytes: int) -> None:
        """Allow the caller to send `size_bytes` more bytes."""
        ...

    def admit(self, size_bytes: int) -> None:
        """Count bytes of requests. Raises CallRefused."""
        ...

    def give_back(self, size_bytes: int) -> None:
        """Stop counting bytes of requests."""
        ...

    @property
    def is_pressed(self) -> bool:
        """Whether so many bytes are held that callers should wait."""
        ...


class Call:
    """A call to this server. The handler of a stream of requests starts with the head, any other with its request."""

    __slots__ = (
        "_aborted", "_began_s", "_behaviour", "_callbacks", "_has_request_stream", "_has_response_stream",
        "_held_bytes", "_is_running", "_new_bytes", "_queue", "_queue_bytes", "_reader", "_taker", "_task",
        "_transport", "counted_bytes", "has_spoken", "head", "is_begun", "is_expired", "is_half_closed", "is_over",
        "stream_id", "tick", "timeout_s",
    )  # fmt: skip

    def __init__(
        self,
        transport: CallTransport,
        stream_id: int,
        head: Head,
        handler: "grpc.RpcMethodHandler[Any, Any]",
        size_bytes_max: int,
        timeout_s: float | None,
    ) -> None:
        self._transport = transport
        self._began_s = transport.loop.time()
        self.timeout_s: Final = timeout_s
        self.stream_id: Final = stream_id
        self.head: Final = head
        self._has_request_stream = handler.request_streaming
        self._has_response_stream = handler.response_streaming
        self._behaviour: Handler = _behaviour_of(handler)
        self._reader = MessageReader(head.encoding, size_bytes_max)
        self._queue: deque[bytes] = deque()
        self._queue_bytes = self._held_bytes = self._new_bytes = self.counted_bytes = 0
        self._taker: asyncio.Future[None] | None = None
        self._task: asyncio.Task[None] | None = None
        self._callbacks: list[Callable[[Any], None]] = []
        self._aborted: Fields = ()
        self._is_running = False
        self.has_spoken = False
        """Whether the caller has sent more than its head."""
        self.is_begun = False
        """Whether its head was sent."""
        self.is_expired = False
        """Whether its time has passed."""
        self.is_half_closed = False
        """Whether the caller has sent its whole request."""
        self.is_over = False
        """Whether its end was sent, or the connection to the caller was lost."""
        self.tick: int | None = None
        if self._has_request_stream:
            self._start(self._requests())

    # Methods for the connection

    def feed(self, data: bytes, *, is_last: bool) -> None:
        """Handle bytes of the request. Raises CallRefused."""
        self.has_spoken = True
        messages = self._reader.feed(data, self._admit)
        self._new_bytes += len(data)
        if messages or self._new_bytes >= ACCOUNT_BYTES:
            self._account()
        if messages:
            if self._has_request_stream:
                self._take_stream(messages)
            else:
                self._take_request(messages)
        if is_last:
            self.close_half()

    def take_whole(self, message: bytes) -> None:
        """Handle the whole request. It is the only message, and none of its bytes are counted."""
        self.is_half_closed = self.has_spoken = True
        if self._has_request_stream:
            self._take_stream([message])
        else:
            self._start(message)

    def close_half(self) -> None:
        """Record that the caller has sent its whole request. Raises CallRefused."""
        self.is_half_closed = self.has_spoken = True
        if not self._reader.is_between:
            raise CallRefused(grpc.StatusCode.INTERNAL, "the last message of the request is not whole")
        if self._has_request_stream:
            self._wake()
        elif not self._queue:
            raise CallRefused(grpc.StatusCode.UNIMPLEMENTED, "the method takes one message, and none was sent")
        elif self._task is None:
            self._start(self._queue.popleft())

    def expire(self) -> None:
        """End the call because its deadline has passed."""
        self.tick = None
        self.is_expired = True
        self.cancel()

    def cancel(self) -> None:
        """Cancel its handler."""
        if self._task is not None:
            self._task.cancel()
        if not self._is_running:
            self._end_cancelled()

    def halt(self) -> None:
        """Stop its handler: the caller has its end."""
        if self._task is not None:
            self._task.cancel()

    def drop(self) -> None:
        """Release all that is held for the call: the caller is gone, or has the whole answer."""
        was_over, self.is_over = self.is_over, True
        if not was_over and self._task is not None:
            self._task.cancel()
        self._transport.give_back(self.counted_bytes)
        self._transport.acknowledge(
            self, self._held_bytes + self._new_bytes
        )  # else the connection's window would shrink
        self.counted_bytes = self._held_bytes = self._new_bytes = 0
        for callback in self._callbacks:
            callback(self)
        self._callbacks.clear()

    @property
    def task(self) -> "asyncio.Task[None] | None":
        """The task that runs the handler. None before it starts."""
        return self._task

    # Methods for the handler, with the names of grpc.aio but for `connection`

    @property
    def connection(self) -> Any:
        """The caller's connection, or the caller behind a door."""
        return self._transport.caller_of(self.head)

    def peer(self) -> str:
        """Return the caller's address in gRPC's notation."""
        origin = self.head.origin
        return self._transport.peer if origin is None else origin.peer

    def invocation_metadata(self) -> Metadata:
        """Return the metadata that the caller sent."""
        return self.head.invocation_metadata

    def auth_context(self) -> Mapping[str, Sequence[bytes]]:
        """Return the names of the caller's certificate by gRPC's properties. Empty without a certificate."""
        origin = self.head.origin
        return self._transport.auth_context() if origin is None else origin.names

    def time_remaining(self) -> float | None:
        """Return the seconds until the deadline. None without a deadline."""
        timeout_s = self.timeout_s
        return None if timeout_s is None else max(0.0, self._began_s + timeout_s - self._transport.loop.time())

    def trailing_metadata(self) -> Metadata:
        """Return the trailing metadata, which is empty until the call ends."""
        return ()

    def add_done_callback(self, callback: Callable[[Any], None]) -> None:
        """Call `callback` when nothing of the call is held any more."""
        if self.is_over:
            callback(self)
        else:
            self._callbacks.append(callback)

    def release_request(self) -> None:
        """Stop counting the bytes of the request: its handler has dropped it."""
        self._transport.give_back(self.counted_bytes)
        self.counted_bytes = 0

    async def send_initial_metadata(self, metadata: Iterable[tuple[str, str | bytes]]) -> None:
        """Send the head at once, for callers that wait for it. It can't contain metadata of a servicer."""
        assert not tuple(metadata)
        if not self.is_over:
            self._transport.begin(self)

    async def write(self, message: bytes) -> None:
        """Send a message of a stream. Waits until the message is not held here any more."""
        if self.is_over:
            raise asyncio.CancelledError
        self._transport.send(self, message)
        await self._transport.sent(self)

    async def abort(self, code: grpc.StatusCode, text: str, metadata: Iterable[tuple[str, str | bytes]] = ()) -> None:
        """End the call with a status. Always raises AbortError."""
        self._aborted = trailers(code, text, metadata)
        raise grpc.aio.AbortError

    # Execution

    def _start(self, argument: Any) -> None:
        self._task = self._transport.loop.create_task(self._run(argument))

    async def _run(self, argument: Any) -> None:
        self._is_running = True
        answering = self._behaviour(argument, self)
        del argument  # the handler may drop the request before it answers
        try:
            reply = await answering
        except grpc.aio.AbortError:
            self._finish(self._aborted)
        except asyncio.CancelledError:
            self._end_cancelled()
        except Exception:  # noqa: BLE001 - the boundary: the caller learns that, the log gets all of it
            _log.exception("the handler of %s failed", self.head.method)
            self._finish(trailers(grpc.StatusCode.UNKNOWN, "the handler failed"))
        else:
            if self._has_response_stream:
                self._finish(OK)
            elif not self.is_over:
                self._transport.answer(self, reply)

    def _end_cancelled(self) -> None:
        if self.is_expired:
            self._finish(trailers(grpc.StatusCode.DEADLINE_EXCEEDED, "the deadline has passed"))
        else:
            self._finish(trailers(grpc.StatusCode.CANCELLED, "the call was cancelled"))

    def _finish(self, fields: Fields) -> None:
        if not self.is_over:
            self._transport.finish(self, fields)

    # Request

    def _admit(self, size_bytes: int) -> None:
        if not self._has_request_stream:
            self._transport.admit(size_bytes)
            self.counted_bytes += size_bytes

    def _take_request(self, messages: list[bytes]) -> None:
        if len(messages) + len(self._queue) > 1 or self._task is not None:
            raise CallRefused(grpc.StatusCode.UNIMPLEMENTED, "the method takes one message, and more were sent")
        self._queue.extend(messages)

    def _take_stream(self, messages: list[bytes]) -> None:
        for message in messages:
            self._queue_bytes += len(message)
        self._queue.extend(messages)
        self._wake()

    def _account(self) -> None:
        """Count the new bytes of the request, and allow the caller to send more."""
        size_bytes, self._new_bytes = self._new_bytes, 0
        self._held_bytes += size_bytes
        if self._has_request_stream:
            self._transport.admit(size_bytes)
            self.counted_bytes += size_bytes
        self._let_more_come()

    def _let_more_come(self) -> None:
        """Allow the caller to send more, unless enough requests wait for the handler."""
        if self._held_bytes and self._queue_bytes <= (0 if self._transport.is_pressed else QUEUE_BYTES_MAX):
            self._transport.acknowledge(self, self._held_bytes)
            self._held_bytes = 0

    def _wake(self) -> None:
        if self._taker is not None and not self._taker.done():
            self._taker.set_result(None)

    async def _requests(self) -> AsyncIterator[bytes]:
        while True:
            while self._queue:
                message = self._queue.popleft()
                self._queue_bytes -= len(message)
                if not self._queue:
                    self._transport.give_back(self.counted_bytes)
                    self.counted_bytes = 0
                self._let_more_come()
                yield message
            if self.is_half_closed:
                return
            self._taker = self._transport.loop.create_future()
            await self._taker


def _behaviour_of(handler: "grpc.RpcMethodHandler[Any, Any]") -> Handler:
    requests = "stream" if handler.request_streaming else "unary"
    responses = "stream" if handler.response_streaming else "unary"
    behaviour: Handler = getattr(handler, f"{requests}_{responses}")
    return behaviour
