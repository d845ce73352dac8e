# SPDX-License-Identifier: Apache-2.0
"""Producer: sends messages over a single AppendStream, in batches, without waiting for each answer.

Threads: any number of senders; gRPC's own thread pulls batches; a thread of the producer reads outcomes and opens the
stream again when it breaks. A condition guards the send queue; futures are settled without its lock.
"""

import atexit
import contextlib
import threading
import time
import weakref
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from functools import partial
from typing import Any

import grpc

from reput_client.core.errors import ReputError, UnavailableError, from_rpc_error, nonsense, stream_ended
from reput_client.core.options import ProducerOptions
from reput_client.core.process.birthplace import Birthplace
from reput_client.core.producing import OneSink, Sender, Settle, SpanEncoder, settle_all, tell_given_up
from reput_client.core.sending import Outcome, SendQueue, Sink, Stored
from reput_client.core.telemetry.metrics import ProducerMetrics
from reput_client.core.telemetry.unread import AskedFuture, Unread
from reput_client.core.types import NewMessage, SendResult
from reput_client.sync.channels import Channels
from reput_client.sync.closing import Closing

_left_open: "weakref.WeakSet[Producer]" = weakref.WeakSet()
"""Producers that the program has not closed."""


@atexit.register
def _close_left_open() -> None:
    """Send the messages that are left in open producers when the program ends, all producers at the same time."""
    producers = list(_left_open)
    for producer in producers:
        producer.begin_close()
    for producer in producers:
        producer.close()


class Producer(Closing, Sender[Future[SendResult]]):
    """Sends messages. Made by `Client.producer`. Close it, or use it in a `with` block.

    At least once: when the connection breaks, batches without an outcome are sent again and may then be stored twice.
    `RetryPolicy(retries=0)` fails them with OutcomeUnknownError instead. Messages of a producer are stored in the order
    of the calls, also when some are refused or sent again; a second copy of a message comes behind the first. A refused
    message does not fail the others of its batch.
    `settle` is for a producer over shards: it gets the outcomes, with whatever `add_encoded` was given as sinks.
    """

    def __init__(self, channels: Channels, options: ProducerOptions, settle: Settle = settle_all) -> None:
        self._channels, self._birthplace, self._settle = channels, Birthplace(), settle
        self._options, self._close_timeout_s = options, channels.options.timeout_s
        self._encoder = SpanEncoder(options, lambda: channels.target("commitlog"))
        self._queue, self._unread = SendQueue(options), Unread()
        self._changed = threading.Condition()
        self._hurry_last: Callable[[], None] | None = None
        self._settling_threads: list[int] = []
        self._is_closing, self._closing_since_s = False, 0.0
        self._is_given_up = False
        """Whether the log already says that messages have no outcome."""
        self._call: Any = None
        self._thread = threading.Thread(target=self._run, name="reput-producer", daemon=True)
        self._thread.start()
        _left_open.add(self)

    def __repr__(self) -> str:
        return f"Producer({self._channels.target('commitlog')}, {self._queue.unsettled_bytes} bytes without an outcome)"

    def send_message(self, message: NewMessage) -> "Future[SendResult]":
        """Send a message like `send`, given as a NewMessage."""
        self._birthplace.check("producer")
        future = SendFuture()
        future.set_running_or_notify_cancel()  # the caller can't cancel it: the message is being sent
        chunk, unique_id = self._encoder.one(message, future)
        with self._changed:
            self._add(chunk, unique_id, future)
            future.hurry = self._hurry_last
        return future

    def send_batch(self, messages: Sequence[NewMessage]) -> "Future[list[Outcome]]":
        """Send many messages with a single future: a list with an outcome per message, in order. This is the fast way.

        An outcome is a SendResult, or the ReputError of a message that was not stored. The future itself does not fail.
        Raises as `send` does; if a message can't be encoded, nothing was sent. Messages of a call may be sent in
        several batches.
        """
        self._birthplace.check("producer")
        future = BatchFuture()
        future.set_running_or_notify_cancel()
        if not messages:
            future.set_result([])
            return future
        encoded = self._encoder.many(messages, future)
        with self._changed:
            for chunk, unique_id, sink in encoded:
                self._add(chunk, unique_id, sink)
            future.hurry = self._hurry_last
        return future

    def add_encoded(self, encoded: Sequence[tuple[bytes, str, Any]]) -> Callable[[], None] | None:
        """Add messages by chunk, unique id and sink, for a producer over shards, which has seen to the room for them.

        Returns the function that ends the linger of the last message. Raises ReputError after `close`.
        """
        with self._changed:
            for chunk, unique_id, sink in encoded:
                self._add(chunk, unique_id, sink)
            return self._hurry_last

    def metrics(self) -> ProducerMetrics:
        """Return the counters of this producer."""
        with self._changed:
            return self._queue.metrics()

    def flush(self, timeout_s: float | None = None) -> None:
        """Send the collected messages and wait until the future of every message is done, and its callbacks have run.

        A warning in the log gives the number of failed messages whose futures the program has not asked; `close` logs
        it, too. Raises TimeoutError after `timeout_s`, and RuntimeError in a callback of a future, which would wait for
        itself.
        """
        self._birthplace.check("producer")
        with self._changed:
            if threading.get_ident() in self._settling_threads:
                raise RuntimeError("flush waits for callbacks, so that none may call it")
            self._queue.close_batch()
            self._changed.notify_all()
            if not self._changed.wait_for(lambda: self._queue.is_idle and not self._settling_threads, timeout_s):
                missing = f"{self._queue.unsettled_bytes} bytes of messages have no outcome yet"
                raise TimeoutError("callbacks of futures still run" if self._queue.is_idle else missing)
        self._unread.tell()

    def begin_close(self) -> None:
        """Accept no more messages and send the collected batch. `close` waits for outcomes. Its time begins here."""
        if not self._birthplace.is_here:
            return
        with self._changed:
            if not self._is_closing:
                self._is_closing, self._closing_since_s = True, time.monotonic()
            self._queue.close_batch()
            self._changed.notify_all()

    def close(self, timeout_s: float | None = None) -> None:
        """Flush, then end the stream. May be repeated.

        Messages without an outcome after `timeout_s` fail; None is the time-out that `connect` was given.
        """
        if not self._birthplace.is_here:  # its process closes it
            return
        self.begin_close()
        end_s = self._closing_since_s + (self._close_timeout_s if timeout_s is None else timeout_s)
        with self._settling():
            if not self._changed.wait_for(lambda: self._queue.is_idle, end_s - time.monotonic()):
                tell_given_up(self._queue.fail_all(UnavailableError("the producer was closed", code=_CANCELLED)))
                self._is_given_up = True
        self._unread.tell()
        _left_open.discard(self)
        self._thread.join(max(0.0, min(_END_TIMEOUT_S, end_s - time.monotonic())))
        while self._thread.is_alive():  # the server does not end the stream, or another attempt has just begun
            if self._call is not None:
                self._call.cancel()
            self._thread.join(_CANCEL_TIMEOUT_S)

    def _add(self, chunk: bytes, unique_id: str, sink: Sink) -> None:
        """Add a message to the send queue, under the lock. Waits for room."""
        if not self._queue.has_room(len(chunk)):
            self._queue.close_batch()  # no sender can add to the batch now
            self._changed.notify_all()
            self._changed.wait_for(lambda: self._is_closing or self._queue.has_room(len(chunk)))
        if self._is_closing:
            raise ReputError("the producer is closed", code=_CANCELLED)
        if self._queue.add(chunk, unique_id, sink, time.monotonic):
            self._hurry_last = partial(self._hurry, self._queue.batch_number)
            self._changed.notify_all()

    def _hurry(self, batch_number: int) -> None:
        """End the linger of a batch: a caller waits for its outcome."""
        if not self._birthplace.is_here:  # its process sends it
            return
        with self._changed:
            if self._queue.hurry(batch_number):
                self._changed.notify_all()

    def _run(self) -> None:
        """Keep a stream open while there are messages to send. This is the producer's thread."""
        while True:
            with self._changed:
                while (wait_s := self._queue.wait_s(time.monotonic())) != 0.0:
                    if self._is_closing and self._queue.is_idle:
                        return
                    self._changed.wait(wait_s)
            self._run_stream()

    def _run_stream(self) -> None:
        """Run a stream from its opening to its end."""
        is_over = threading.Event()
        target = self._channels.target("commitlog")
        call = self._call = self._channels.append_stream(self._requests(is_over))
        error: ReputError = stream_ended()
        try:
            for response in call:
                with self._settling():
                    self._queue.on_outcomes(response.outcomes, time.monotonic())
                    moved = self._queue.pop_moved()
                if moved is not None:
                    error = moved
                    call.cancel()
                    break
        except grpc.RpcError as failure:
            error = from_rpc_error(failure, "commitlog", target)
        except (ReputError, ValueError) as failure:
            error = nonsense(failure)
            call.cancel()
        self._channels.on_failure("commitlog", target, error)
        with self._settling():
            is_over.set()
            self._queue.on_broken(error, time.monotonic())

    @contextlib.contextmanager
    def _settling(self) -> Iterator[None]:
        """Hold the lock for a change of the queue. Then, without the lock, settle the futures that got an outcome."""
        with self._changed:
            yield
            settled = self._queue.pop_settled()
            self._settling_threads.append(threading.get_ident())
            self._changed.notify_all()
        try:
            self._settle(settled, None if self._is_given_up else self._unread)
        finally:
            with self._changed:
                self._settling_threads.remove(threading.get_ident())
                self._changed.notify_all()

    def _requests(self, is_over: threading.Event) -> Iterator[bytes]:
        """Yield the batches of a stream, as gRPC's thread pulls them. Ends with the stream or when all is done."""
        while True:
            with self._changed:
                while True:
                    if is_over.is_set() or (self._is_closing and self._queue.is_idle):
                        return
                    now_s = time.monotonic()
                    batch = self._queue.pop(now_s)
                    if batch is not None:
                        break
                    self._changed.wait(self._queue.wait_s(now_s))
            yield batch.to_request(self._options.durability)


_CANCELLED = grpc.StatusCode.CANCELLED
_END_TIMEOUT_S = 2.0
"""How long a server may take to end a stream without further answers."""
_CANCEL_TIMEOUT_S = 0.1
"""A stream that opens while the stream before it is cancelled is cancelled after this time."""


class _Asked(AskedFuture):
    """Records that the program asks a future of threads. It comes before Future among the base classes.

    A thread that waits in `result` or `exception` also ends the linger of the batch.
    """

    def result(self: Any, timeout: float | None = None) -> Any:
        self._ask(timeout)  # before the flush of another thread looks at it; repeated below, to be certain
        try:
            return super().result(timeout)  # type: ignore[misc]
        finally:
            self.ask()

    def exception(self: Any, timeout: float | None = None) -> Any:
        self._ask(timeout)
        try:
            return super().exception(timeout)  # type: ignore[misc]
        finally:
            self.ask()

    def _ask(self, timeout: float | None) -> None:
        if timeout is None or timeout > 0:
            self.ask_now()
        else:
            self.ask()

    def add_done_callback(self: Any, fn: Any) -> None:
        self.ask()
        super().add_done_callback(fn)  # type: ignore[misc]


class SendFuture(_Asked, OneSink, Future[Any]):
    """The outcome of a message."""

    stored: Stored | SendResult | None = None
    _row = Future.result

    def result(self, timeout: float | None = None) -> SendResult:
        """See Future."""
        if self.stored is None:
            super().result(timeout)
        return self.read()

    def exception(self, timeout: float | None = None) -> BaseException | None:
        """See Future."""
        return super().exception(timeout) if self.stored is None else None


class BatchFuture(_Asked, Future[list[Outcome]]):
    """The outcomes of many messages."""
