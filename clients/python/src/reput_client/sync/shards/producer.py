# SPDX-License-Identifier: Apache-2.0
"""ShardedProducer: sends messages to the shards of their queues, over a producer for each shard.

Threads: any number of senders; the threads of the shards' producers bring outcomes; a thread for each shard asks it
about topics. A lock guards the routing, and is taken before the locks of the shards' producers, never after. Futures
are settled without it.
"""

import atexit
import contextlib
import random
import threading
import time
import weakref
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future
from functools import partial

import grpc
from reput.commitlog.v1 import topic_service_pb2

from reput_client.core.answers import topic_in
from reput_client.core.call import Call
from reput_client.core.errors import ReputError, UnavailableError
from reput_client.core.options import ProducerOptions
from reput_client.core.process.birthplace import Birthplace
from reput_client.core.producing import Sender, SpanEncoder, fail, store, tell_given_up
from reput_client.core.sending import Outcome, Settlement, Stored
from reput_client.core.shards.chunks import key_of
from reput_client.core.shards.counting import Hurry, all_of, is_away, metrics_of
from reput_client.core.shards.entries import Encoded
from reput_client.core.shards.routing import Routing
from reput_client.core.shards.targets import ASK_S
from reput_client.core.sharing.outage import AT_ONCE
from reput_client.core.telemetry.metrics import ProducerMetrics
from reput_client.core.telemetry.unread import Unread
from reput_client.core.types import NewMessage, SendResult, Topic
from reput_client.sync.channels import Channels
from reput_client.sync.closing import Closing
from reput_client.sync.producer import BatchFuture, Producer, SendFuture

_left_open: "weakref.WeakSet[ShardedProducer]" = weakref.WeakSet()
"""Producers that the program has not closed."""


@atexit.register
def _close_left_open() -> None:
    """Send the messages that are left in open producers when the program ends. Runs before the shards' producers do."""
    for producer in list(_left_open):
        producer.close()


class ShardedProducer(Closing, Sender["Future[SendResult]"]):
    """Sends messages to the shards of their queues. Made by `ShardedClient.producer`. Close it, or use it in a `with`.

    A message with a sharding key goes to the open queue whose range has the hash of the key, and messages of a key are
    stored in the order of the calls, also while queues are split, moved or merged. A message without a key goes to a
    queue with few messages under way, and to no shard that is away. At least once, as with Producer.
    """

    def __init__(self, channels: Mapping[str, Channels], options: ProducerOptions) -> None:
        self._channels, self._birthplace = dict(channels), Birthplace()
        first = next(iter(self._channels.values()))
        self._timeout_s = first.options.timeout_s
        self._encoder = SpanEncoder(options, lambda: first.target("commitlog"))
        self._routing = Routing(
            list(channels),
            window_bytes=options.window_bytes,
            patience_s=self._timeout_s,
            clock=time.monotonic,
            chance=random.random,
        )
        self._unread = Unread()
        self._lock = threading.Lock()
        self._changed, self._asking = threading.Condition(self._lock), threading.Condition(self._lock)
        self._settling_threads: list[int] = []
        self._is_closing, self._is_over, self._closing_since_s = False, False, 0.0
        self._listeners = {shard: partial(self._on_failure, shard) for shard in channels}
        for shard, listener in self._listeners.items():
            channels[shard].listeners.append(listener)
        self._producers = {shard: Producer(one, options, self._on_outcomes) for shard, one in channels.items()}
        for shard in channels:
            threading.Thread(target=self._ask, args=(shard,), name=f"reput-shard-{shard}", daemon=True).start()
        _left_open.add(self)

    def __repr__(self) -> str:
        return f"ShardedProducer({', '.join(self._channels)}, {self._routing.unsettled_bytes} bytes without an outcome)"

    def send_message(self, message: NewMessage) -> "Future[SendResult]":
        """Send a message like `send`, given as a NewMessage."""
        self._birthplace.check("producer")
        future = SendFuture()
        future.set_running_or_notify_cancel()  # the caller can't cancel it: the message is being sent
        encoded = (*self._encoder.one(message, future), future)
        with self._lock:
            self._add(message, encoded)
            future.hurry = all_of(self._push())
        return future

    def send_batch(self, messages: Sequence[NewMessage]) -> "Future[list[Outcome]]":
        """Send many messages with a single future, as Producer.send_batch does. This is the fast way."""
        self._birthplace.check("producer")
        future = BatchFuture()
        future.set_running_or_notify_cancel()
        if not messages:
            future.set_result([])
            return future
        encoded = self._encoder.many(messages, future)
        with self._lock:
            for message, one in zip(messages, encoded, strict=True):
                self._add(message, one)
            future.hurry = all_of(self._push())
        return future

    def metrics(self) -> ProducerMetrics:
        """Return the counters of this producer, over all shards."""
        parts = [producer.metrics() for producer in self._producers.values()]
        with self._lock:
            return metrics_of(self._routing, parts)

    def flush(self, timeout_s: float | None = None) -> None:
        """Send the collected messages and wait until the future of every message is done, as Producer.flush does."""
        self._birthplace.check("producer")
        end_s = None if timeout_s is None else time.monotonic() + timeout_s
        self._flush_parts(end_s)
        with self._lock:
            if threading.get_ident() in self._settling_threads:
                raise RuntimeError("flush waits for callbacks, so that none may call it")
            if not self._changed.wait_for(lambda: self._routing.is_idle and not self._settling_threads, _left(end_s)):
                raise TimeoutError(f"{self._routing.unsettled_bytes} bytes of messages have no outcome yet")
        self._flush_parts(end_s)
        self._unread.tell()

    def begin_close(self) -> None:
        """Accept no more messages. `close` waits for outcomes. Its time begins here."""
        if not self._birthplace.is_here:
            return
        with self._lock:
            if not self._is_closing:
                self._is_closing, self._closing_since_s = True, time.monotonic()
            self._changed.notify_all()

    def close(self, timeout_s: float | None = None) -> None:
        """Flush, then end the streams, as Producer.close does. May be repeated."""
        if not self._birthplace.is_here:  # its process closes it
            return
        self.begin_close()
        end_s = self._closing_since_s + (self._timeout_s if timeout_s is None else timeout_s)
        with contextlib.suppress(TimeoutError):
            self.flush(max(0.0, end_s - time.monotonic()))
        self._give_up()
        for producer in self._producers.values():
            producer.begin_close()
        for producer in self._producers.values():
            producer.close(max(0.0, end_s - time.monotonic()))
        self._give_up()  # messages that a shard refused meanwhile
        with self._lock:
            self._is_over = True
            self._asking.notify_all()
        for shard, listener in self._listeners.items():
            with contextlib.suppress(ValueError):
                self._channels[shard].listeners.remove(listener)
        self._unread.tell()
        _left_open.discard(self)

    def _on_outcomes(self, settlements: Sequence[Settlement], _unread: Unread | None) -> None:
        """Accept outcomes from the producer of a shard, whose sinks are entries."""
        with self._settling():
            for entries, outcome in settlements:
                if isinstance(outcome, Stored):
                    self._routing.on_stored(entries)
                else:
                    self._routing.on_failed(entries, outcome)
        for entries, outcome in settlements:
            if isinstance(outcome, Stored):
                store([entry.sink for entry in entries], outcome)

    def _add(self, message: NewMessage, encoded: Encoded) -> None:
        """Add a message to the routing, under the lock. Waits for room."""
        topic, key, queue_id = message.topic, key_of(message), message.queue_id

        def has_room() -> bool:
            return self._is_closing or self._routing.has_room(len(encoded[0]), topic, key=key, queue_id=queue_id)

        if not has_room():
            self._push()
            self._changed.wait_for(has_room)
        if self._is_closing:
            raise ReputError("the producer is closed", code=grpc.StatusCode.CANCELLED)
        self._routing.add(topic, encoded, key=key, queue_id=queue_id)

    def _push(self) -> list[Hurry]:
        """Give messages to the producers of their shards, under the lock. Returns the functions that hurry them."""
        hurries: list[Hurry | None] = []
        while sends := self._routing.pop_sends():
            for shard, placed in sends:
                try:
                    hurries.append(self._producers[shard].add_encoded(placed))
                except ReputError as error:
                    self._routing.on_unsent(placed, error)
        if self._routing.pop_questions():
            self._asking.notify_all()
        return [hurry for hurry in hurries if hurry is not None]

    def _go_on(self) -> None:
        """Send the messages that need not wait any more, at once, and wake the callers that wait. Under the lock."""
        for hurry in self._push():
            hurry()
        self._changed.notify_all()

    @contextlib.contextmanager
    def _settling(self) -> Iterator[None]:
        """Hold the lock for a change of the routing. Then, without the lock, fail the messages that it failed."""
        with self._lock:
            yield
            self._go_on()
            failed = self._routing.pop_failed()
            self._settling_threads.append(threading.get_ident())
        try:
            for sink, error in failed:
                fail([sink], error, self._unread)
        finally:
            with self._lock:
                self._settling_threads.remove(threading.get_ident())
                self._changed.notify_all()

    def _give_up(self) -> None:
        """Fail the messages that wait for a queue: the producer closes."""
        with self._settling():
            closed = UnavailableError("the producer was closed", code=grpc.StatusCode.CANCELLED)
            count = self._routing.fail_all(closed)
        tell_given_up(count)

    def _flush_parts(self, end_s: float | None) -> None:
        for producer in self._producers.values():
            producer.flush(_left(end_s))

    def _on_failure(self, shard: str, service: str, error: ReputError) -> None:
        if service == "commitlog" and is_away(error):
            with self._lock:
                self._routing.on_away(shard)

    def _ask(self, shard: str) -> None:
        """Ask a shard about topics, as the routing needs it, until the producer is closed. This is a thread."""
        while (name := self._question(shard)) is not None:
            try:
                call = Call(topic_service_pb2.GetTopicRequest(name=name), topic_in, timeout_s=ASK_S)
                answer: Topic | ReputError = self._channels[shard].run(call, AT_ONCE)
            except ReputError as error:
                answer = error
            with self._settling():
                self._routing.answer(shard, name, answer)

    def _question(self, shard: str) -> str | None:
        """Return the topic to ask for, as soon as there is one. None after a close."""
        while True:
            with self._settling():
                self._routing.expire()
            with self._lock:
                if self._is_over:
                    return None
                if (name := self._routing.question(shard)) is not None:
                    return name
                self._asking.wait(self._routing.question_wait_s(shard))


def _left(end_s: float | None) -> float | None:
    return None if end_s is None else max(0.0, end_s - time.monotonic())
