# SPDX-License-Identifier: Apache-2.0
"""OutgoingCall: an outgoing call, from its beginning to its outcome, as its caller sees it.

It has the part of grpc.aio's call interface that the services use: a caller awaits it for a single answer, and reads
or iterates it for several answers.
Invariants: it ends once. A call with a single request that no handler has seen begins again. Its unread bytes are
bounded by its window. After its end it holds back nothing of its connection's window.
"""

import asyncio
from collections import deque
from collections.abc import AsyncIterable, AsyncIterator, Callable, Generator
from typing import Any, Final, NamedTuple, Protocol

import grpc

from libs.runtime.http2.calling.outcome import CANCELLED, EXPIRED, Outcome, encoding_of, is_last, outcome_of, refusal_of
from libs.runtime.http2.framing import CallRefused, MessageReader
from libs.runtime.http2.heads import Fields, Metadata, metadata_of

UNREAD_BYTES_MAX: Final = 512 << 10
"""Unread bytes of answers. While there are more, the other side may send only the rest of the window."""

ACCOUNT_BYTES: Final = 64 << 10
"""Bytes of an answer are accounted for when so many have arrived, or a message is complete."""

REPEAT_COUNT_MAX: Final = 3
"""Repetitions of a call that no handler has seen. A connection may end in the moment in which the call begins on it."""


class CallTransport(Protocol):
    """The part of a connection that a call needs."""

    def send(self, stream_id: int, message: bytes) -> None:
        """Send a message."""
        ...

    async def sent(self, stream_id: int) -> None:
        """Wait until sent messages are not held here any more."""
        ...

    def close_half(self, stream_id: int) -> None:
        """End the requests of a stream."""
        ...

    def acknowledge(self, stream_id: int, size_bytes: int) -> None:
        """Allow the other side to send `size_bytes` more bytes."""
        ...

    def give_up(self, stream_id: int) -> None:
        """Forget a call and notify the other side."""
        ...


class Method(NamedTuple):
    """A method: its path, and the conversion of its messages."""

    path: bytes
    serialize: Callable[[Any], bytes] | None
    deserialize: Callable[[bytes], Any] | None
    answer_size_bytes_max: int


class OutgoingCall:
    """An outgoing call. Callers: a single event loop."""

    def __init__(self, method: Method) -> None:
        self._method = method
        self._transport: CallTransport | None = None
        self._stream_id = 0
        self._reader: MessageReader | None = None
        self._initial: Metadata = ()
        self._messages: deque[bytes] = deque()
        self._unread_bytes = self._held_bytes = self._new_bytes = 0
        self._outcome: Outcome | None = None
        self._news: asyncio.Future[None] | None = None
        """The future of the callers that wait for the beginning, an answer or the end."""
        self._timer: asyncio.TimerHandle | None = None
        self._feeding: asyncio.Task[None] | None = None
        self._connecting: asyncio.Task[None] | None = None
        self._repeat: Callable[[], None] | None = None
        self._repeat_count = 0

    # Methods for its channel and its connection

    def limit(self, timeout_s: float | None) -> None:
        """Set the deadline of the call."""
        if timeout_s is not None:
            self._timer = asyncio.get_running_loop().call_later(max(timeout_s, 0.0), self._expire)

    def wait_for(self, connecting: "asyncio.Task[None]") -> None:
        """Set the task that begins the call. The task is cancelled when the call ends."""
        self._connecting = connecting

    def allow_repeat(self, repeat: Callable[[], None]) -> None:
        """Set the function that begins the call again if no handler has seen it."""
        self._repeat = repeat

    def feed_from(self, requests: AsyncIterable[Any]) -> None:
        """Send the requests of an iterator."""
        self._feeding = asyncio.create_task(self._feed_from(requests))

    def begin(self, transport: CallTransport, stream_id: int) -> None:
        """Set the connection and the stream of the call."""
        self._transport, self._stream_id = transport, stream_id
        self._wake()

    def head_of_answer(self, fields: Fields) -> None:
        """Handle the first header fields of the answer."""
        refusal = refusal_of(fields)
        if refusal is not None:
            self._end_here(refusal)
        elif is_last(fields):
            self.end(outcome_of(fields))
        else:
            try:
                self._initial = metadata_of([field for field in fields if field[0] != b":status"])
                self._reader = MessageReader(encoding_of(fields), self._method.answer_size_bytes_max)
            except CallRefused as error:
                self._end_here(Outcome(error.code, str(error)))

    def take(self, data: bytes) -> None:
        """Handle bytes of the answer."""
        if self._reader is None or self._transport is None or self._outcome is not None:
            return
        try:
            messages = self._reader.feed(data, _admit)
        except CallRefused as error:
            self._held_bytes += len(data)
            self._end_here(Outcome(error.code, str(error)))
            return
        self._new_bytes += len(data)
        if messages or self._new_bytes >= ACCOUNT_BYTES:
            self._held_bytes += self._new_bytes
            self._new_bytes = 0
            self._unread_bytes += sum(map(len, messages))
            self._let_more_come()
        if messages:
            self._messages.extend(messages)
            self._wake()

    def finish(self, fields: Fields) -> None:
        """Handle the last fields of the answer."""
        self.end(outcome_of(fields))

    def refused(self, outcome: Outcome) -> None:
        """Begin the call again, because no handler has seen it. After the last repetition it ends with `outcome`."""
        if self._repeat is None or self._outcome is not None or self._repeat_count == REPEAT_COUNT_MAX:
            self.end(outcome)
            return
        self._repeat_count += 1
        self._transport = None
        self._repeat()

    def end(self, outcome: Outcome) -> None:
        """Record the outcome, unless the call has ended already."""
        if self._outcome is not None:
            return
        if outcome.code is grpc.StatusCode.OK and self._reader is not None and not self._reader.is_between:
            outcome = Outcome(grpc.StatusCode.INTERNAL, "the last message of the answer is not whole")
        self._outcome = outcome
        if self._timer is not None:
            self._timer.cancel()
        for task in (self._feeding, self._connecting):
            if task is not None and task is not asyncio.current_task():
                task.cancel()
        if self._transport is not None:
            self._transport.acknowledge(self._stream_id, self._held_bytes + self._new_bytes)
        self._held_bytes = self._new_bytes = 0
        self._transport = self._timer = self._connecting = self._repeat = None
        self._wake()

    # Methods for its caller, with the names of grpc.aio

    def done(self) -> bool:
        """Return whether it has ended."""
        return self._outcome is not None

    def cancel(self) -> bool:
        """End it, unless it has ended."""
        if self._outcome is not None:
            return False
        self._messages.clear()
        self._end_here(CANCELLED)
        return True

    async def code(self) -> grpc.StatusCode:
        """Wait for the end of the call, and return its status code."""
        while self._outcome is None:
            await self._change()
        return self._outcome.code

    def __await__(self) -> Generator[Any, None, Any]:
        """Return the single answer. Raises AioRpcError."""
        return self._one().__await__()

    async def __aiter__(self) -> AsyncIterator[Any]:
        """Iterate over the answers. Raises AioRpcError."""
        while (answer := await self.read()) is not grpc.aio.EOF:
            yield answer

    async def read(self) -> Any:
        """Return the next answer, or EOF. Raises AioRpcError. A caller that is cancelled meanwhile ends the call."""
        while not self._messages and self._outcome is None:
            await self._change()
        if not self._messages:
            self._raise_unless_ok()
            return grpc.aio.EOF
        message = self._messages.popleft()
        self._unread_bytes -= len(message)
        self._let_more_come()
        return self._deserialized(message)

    async def write(self, request: Any) -> None:
        """Send a request of several. Returns when it is not held here any more.

        Raises AioRpcError, and InvalidStateError for a call that has ended well.
        """
        while self._transport is None and self._outcome is None:
            await self._change()
        if self._outcome is not None or self._transport is None:
            self._raise_unless_ok()
            raise asyncio.InvalidStateError("the call has ended")
        transport = self._transport
        transport.send(self._stream_id, self.serialized(request))
        await transport.sent(self._stream_id)
        if self._outcome is not None:
            self._raise_unless_ok()

    async def done_writing(self) -> None:
        """End the requests of the call."""
        while self._transport is None and self._outcome is None:
            await self._change()
        if self._outcome is None and self._transport is not None:
            self._transport.close_half(self._stream_id)

    def serialized(self, request: Any) -> bytes:
        """Return a request as bytes."""
        serialize = self._method.serialize
        return request if serialize is None else serialize(request)

    # Own parts

    def _expire(self) -> None:
        self._messages.clear()
        self._end_here(EXPIRED)

    def _end_here(self, outcome: Outcome) -> None:
        """End the call, and notify the other side."""
        if self._transport is not None and self._outcome is None:
            self._transport.give_up(self._stream_id)
        self.end(outcome)

    async def _one(self) -> Any:
        while self._outcome is None:
            await self._change()
        self._raise_unless_ok()
        if len(self._messages) != 1:
            text = f"the answer has {len(self._messages)} messages, and one is expected"
            raise Outcome(grpc.StatusCode.INTERNAL, text).error(self._initial)
        return self._deserialized(self._messages.popleft())

    async def _feed_from(self, requests: AsyncIterable[Any]) -> None:
        try:
            async for request in requests:
                await self.write(request)
            await self.done_writing()
        except (grpc.aio.AioRpcError, asyncio.InvalidStateError):
            pass  # the caller that waits for the answer gets the error
        except Exception:
            self.cancel()
            raise

    def _deserialized(self, message: bytes) -> Any:
        deserialize = self._method.deserialize
        return message if deserialize is None else deserialize(message)

    def _raise_unless_ok(self) -> None:
        assert self._outcome is not None
        if self._outcome is CANCELLED:
            raise asyncio.CancelledError
        if self._outcome.code is not grpc.StatusCode.OK:
            raise self._outcome.error(self._initial)

    def _let_more_come(self) -> None:
        if self._held_bytes and self._unread_bytes <= UNREAD_BYTES_MAX and self._transport is not None:
            self._transport.acknowledge(self._stream_id, self._held_bytes)
            self._held_bytes = 0

    async def _change(self) -> None:
        """Wait for a change of the call. A cancellation of the waiting caller cancels the call."""
        if self._news is None:
            self._news = asyncio.get_running_loop().create_future()
        try:
            await asyncio.shield(self._news)
        except asyncio.CancelledError:
            self.cancel()
            raise

    def _wake(self) -> None:
        if self._news is not None:
            self._news.set_result(None)
            self._news = None


def _admit(size_bytes: int) -> None:
    """Let a message come: its size is bounded already."""
