# SPDX-License-Identifier: Apache-2.0
"""AsyncProducer: the asyncio twin of Producer, over the same send queue.

A task keeps a stream open and reads its outcomes. A second task writes batches while the stream is open.
"""

import asyncio
from collections.abc import Callable, Coroutine, Generator, Sequence
from functools import partial
from typing import Any

import grpc

from reput_client.aio.channels import AsyncChannels
from reput_client.aio.closing import AsyncClosing
from reput_client.core.errors import ReputError, UnavailableError, from_rpc_error, nonsense, stream_ended
from reput_client.core.options import ProducerOptions
from reput_client.core.process.birthplace import Birthplace
from reput_client.core.producing import OneSink, Sender, Settle, SpanEncoder, settle_all, tell_given_up
from reput_client.core.sending import Outcome, SendQueue, Sink
from reput_client.core.telemetry.metrics import ProducerMetrics
from reput_client.core.telemetry.unread import AskedFuture, Unread
from reput_client.core.types import NewMessage, SendResult


class AsyncProducer(AsyncClosing, Sender[Coroutine[Any, Any, asyncio.Future[SendResult]]]):
    """Sends messages. Made by `AsyncClient.producer`. Close it, or use it in an `async with` block.

    It has the same guarantees as Producer. Use it on the event loop where it was made.
    """

    def __init__(self, channels: AsyncChannels, options: ProducerOptions, settle: Settle = settle_all) -> None:
        self._channels, self._birthplace, self._settle = channels, Birthplace(), settle
        self._options, self._close_timeout_s = options, channels.options.timeout_s
        self._encoder = SpanEncoder(options, lambda: channels.target("commitlog"))
        self._queue, self._unread = SendQueue(options), Unread()
        self._loop = asyncio.get_running_loop()
        self._changed: asyncio.Future[None] = self._loop.create_future()
        self._hurry_last: Callable[[], None] | None = None
        self._is_closing, self._closing_since_s = False, 0.0
        self._task = self._loop.create_task(self._run(), name="reput-producer")

    def __repr__(self) -> str:
        target = self._channels.target("commitlog")
        return f"AsyncProducer({target}, {self._queue.unsettled_bytes} bytes without an outcome)"

    async def send_message(self, message: NewMessage) -> "asyncio.Future[SendResult]":
        """Send a message like `send`, given as a NewMessage."""
        self._birthplace.check("producer")
        future = SendFuture(loop=self._loop)
        future.stored = None
        chunk, unique_id = self._encoder.one(message, future)
        if self._is_closing or not self._queue.has_room(len(chunk)):
            await self._wait_for_room(len(chunk))
        self._add(chunk, unique_id, future)
        future.hurry = self._hurry_last
        return future

    async def send_batch(self, messages: Sequence[NewMessage]) -> "asyncio.Future[list[Outcome]]":
        """Send many messages with a single future, as Producer.send_batch does. This is the fast way."""
        self._birthplace.check("producer")
        future = BatchFuture(loop=self._loop)
        if not messages:
            future.set_result([])
            return future
        for chunk, unique_id, sink in self._encoder.many(messages, future):
            if self._is_closing or not self._queue.has_room(len(chunk)):
                await self._wait_for_room(len(chunk))
            self._add(chunk, unique_id, sink)
        future.hurry = self._hurry_last
        return future

    def add_encoded(self, encoded: Sequence[tuple[bytes, str, Any]]) -> Callable[[], None] | None:
        """Add messages by chunk, unique id and sink, as Producer.add_encoded does."""
        if self._is_closing:
            raise ReputError("the producer is closed", code=grpc.StatusCode.CANCELLED)
        for chunk, unique_id, sink in encoded:
            self._add(chunk, unique_id, sink)
        return self._hurry_last

    def metrics(self) -> ProducerMetrics:
        """Return the counters of this producer."""
        return self._queue.metrics()

    async def flush(self) -> None:
        """Send the collected messages and wait until every message has its outcome, as Producer.flush does."""
        self._queue.close_batch()
        self._notify()
        await self._wait_for(lambda: self._queue.is_idle)
        self._unread.tell()

    def begin_close(self) -> None:
        """Accept no more messages and send the collected batch. `close` waits for outcomes. Its time begins here."""
        if not self._is_closing:
            self._is_closing, self._closing_since_s = True, self._loop.time()
        self._queue.close_batch()
        self._notify()

    async def close(self, timeout_s: float | None = None) -> None:
        """Flush, then end the stream, as Producer.close does."""
        self.begin_close()
        end_s = self._closing_since_s + (self._close_timeout_s if timeout_s is None else timeout_s)
        try:
            async with asyncio.timeout_at(end_s):
                await self.flush()
        except TimeoutError:
            given_up = UnavailableError("the producer was closed", code=grpc.StatusCode.CANCELLED)
            tell_given_up(self._queue.fail_all(given_up))
            self._settle(self._queue.pop_settled(), None)
            self._unread.tell()
            self._notify()
        self._task.cancel()
        await asyncio.wait([self._task])

    async def _wait_for_room(self, size_bytes: int) -> None:
        """Wait until an entry of this size may be added. Raises ReputError if the producer is closed."""
        if not self._is_closing:
            self._queue.close_batch()  # no sender can add to the batch now
            self._notify()
            await self._wait_for(lambda: self._is_closing or self._queue.has_room(size_bytes))
        if self._is_closing:
            raise ReputError("the producer is closed", code=grpc.StatusCode.CANCELLED)

    def _add(self, chunk: bytes, unique_id: str, sink: Sink) -> None:
        """Add a message to the send queue, which has room."""
        if self._queue.add(chunk, unique_id, sink, self._loop.time):
            self._hurry_last = partial(self._hurry, self._queue.batch_number)
            self._notify()

    def _hurry(self, batch_number: int) -> None:
        """End the linger of a batch: a caller waits for its outcome."""
        if self._queue.hurry(batch_number):
            self._notify()

    def _notify(self) -> None:
        """Wake all tasks that wait for a change of the queue."""
        changed, self._changed = self._changed, self._loop.create_future()
        if not changed.done():
            changed.set_result(None)

    async def _wait_for(self, predicate: Callable[[], bool]) -> None:
        while not predicate():
            await asyncio.shield(self._changed)

    async def _wait_change(self, timeout_s: float | None) -> None:
        """Return after a change of the queue, or after `timeout_s`."""
        await asyncio.wait([self._changed], timeout=timeout_s)

    async def _run(self) -> None:
        """Keep a stream open while there are messages to send."""
        while True:
            while (wait_s := self._queue.wait_s(self._loop.time())) != 0.0:
                await self._wait_change(wait_s)
            target = self._channels.target("commitlog")
            call = self._channels.append_stream()
            writer = self._loop.create_task(self._write(call))
            try:
                error = await self._read(call, target)
            finally:
                writer.cancel()
                call.cancel()
                await asyncio.wait([writer])
            self._channels.on_failure("commitlog", target, error)
            self._queue.on_broken(error, self._loop.time())
            self._settle(self._queue.pop_settled(), self._unread)
            self._notify()

    async def _read(self, call: Any, target: str) -> ReputError:
        """Apply outcomes until the stream ends, and return the error that ended it."""
        try:
            async for response in call:
                self._queue.on_outcomes(response.outcomes, self._loop.time())
                self._settle(self._queue.pop_settled(), self._unread)
                self._notify()
                if (moved := self._queue.pop_moved()) is not None:
                    return moved
        except grpc.RpcError as failure:
            return from_rpc_error(failure, "commitlog", target)
        except (ReputError, ValueError) as failure:
            return nonsense(failure)
        return stream_ended()

    async def _write(self, call: Any) -> None:
        """Write batches until the stream breaks. The reader gets the error."""
        try:
            while True:
                now_s = self._loop.time()
                batch = self._queue.pop(now_s)
                if batch is None:
                    await self._wait_change(self._queue.wait_s(now_s))
                else:
                    await call.write(batch.to_request(self._options.durability))
        except (grpc.RpcError, asyncio.InvalidStateError):
            return


class _Asked(AskedFuture):
    """Records that the program asks an asyncio future. It comes before asyncio.Future among the base classes.

    `await`, and the callbacks of gather, wait and wait_for, also end the linger of the batch.
    """

    def result(self: Any) -> Any:
        self.ask()
        return super().result()  # type: ignore[misc]

    def exception(self: Any) -> Any:
        self.ask()
        return super().exception()  # type: ignore[misc]

    def add_done_callback(self: Any, *arguments: Any, **options: Any) -> None:
        self.ask_now()
        super().add_done_callback(*arguments, **options)  # type: ignore[misc]

    def __await__(self: Any) -> Any:
        self.ask_now()
        return super().__await__()  # type: ignore[misc]


class SendFuture(_Asked, OneSink, asyncio.Future[Any]):
    """The outcome of a message. With slots it needs no dictionary."""

    __slots__ = ("hurry", "stored")
    _row = asyncio.Future.result

    def result(self) -> SendResult:
        """See asyncio.Future."""
        stored = self.stored
        if isinstance(stored, SendResult):
            return stored
        if stored is None:
            super().result()
        return self.read()

    def exception(self) -> BaseException | None:
        """See asyncio.Future."""
        return super().exception() if self.stored is None else None

    def __await__(self) -> Generator[Any, None, SendResult]:
        if not self.done():
            self._asyncio_future_blocking = True
            yield self
        return self.result()

    __iter__ = __await__


class BatchFuture(_Asked, asyncio.Future[list[Outcome]]):
    """The outcomes of many messages."""
