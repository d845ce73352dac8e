# SPDX-License-Identifier: Apache-2.0
"""Both producers over shards, against fake logs: a sealed queue, the window, failures, and the close."""

import asyncio
import inspect
import logging
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any

import grpc
import pytest
from reput.commitlog.v1 import topic_service_pb2 as pb
from reput_client import ProducerOptions, ReputError, RetryPolicy
from reput_client.aio.channels import AsyncChannels
from reput_client.aio.shards.producer import AsyncShardedProducer
from reput_client.core.options import Options
from reput_client.sync.channels import Channels
from reput_client.sync.shards.producer import ShardedProducer

from clients.python.tests.shards.bench import TOPIC, keys_of, parts
from clients.python.tests.support import LIMIT_S, Log, Unary, fail, serving, status

FIRST, SECOND = parts(2)
KEY = keys_of(FIRST, 1)[0]


@dataclass
class Shard:
    """A shard with a log and a share of the topic. Without queues it does not know the topic."""

    queues: list[pb.QueueShare]
    version: int = 1
    sealed: set[int] = field(default_factory=set)
    sealed_after: dict[int, int] = field(default_factory=dict)
    """For a queue the number of messages after which it is sealed."""
    is_silent: bool = False
    is_whole: bool = False
    """Whether it has the topic without a share."""
    answers: threading.Event = field(default_factory=threading.Event)
    """Answers about topics wait for it."""

    def __post_init__(self) -> None:
        self.answers.set()
        self.log = Log(self._plan)
        self.topics = Unary("reput.commitlog.v1.TopicService", GetTopic=(pb.GetTopicRequest, self._get))

    def _plan(self, _number: int, messages: list[Any]) -> Any:
        for message in messages:
            stored = sum(one.queue_id == message.queue_id for one in self.log.stored)
            if stored >= self.sealed_after.get(message.queue_id, 1 << 30):
                self.sealed.add(message.queue_id)
        bad = next((at for at, message in enumerate(messages) if message.queue_id in self.sealed), None)
        if bad is None:
            return None
        metadata = {"topic": TOPIC, "field": f"messages[{bad}].queue_id", "value": str(messages[bad].queue_id)}
        return status(grpc.StatusCode.FAILED_PRECONDITION, "QUEUE_NOT_HERE", metadata=metadata)

    def _get(self, _request: pb.GetTopicRequest, context: grpc.ServicerContext) -> pb.GetTopicResponse:
        if self.is_silent:
            fail(context, status(grpc.StatusCode.UNAVAILABLE, "STOPPING"))
        self.answers.wait(LIMIT_S)
        if self.is_whole:
            return pb.GetTopicResponse(topic=pb.Topic(name=TOPIC, write_queue_count=8, read_queue_count=8))
        if not self.queues:
            fail(context, status(grpc.StatusCode.NOT_FOUND, "TOPIC_NOT_FOUND"))
        for queue in self.queues:
            queue.is_sealed = queue.queue_id in self.sealed
        share = pb.TopicShare(version=self.version, queues=self.queues)
        return pb.GetTopicResponse(topic=pb.Topic(name=TOPIC, write_queue_count=8, read_queue_count=8, share=share))


def queue(queue_id: int, part: Any) -> pb.QueueShare:
    """A queue with the range of another."""
    return pb.QueueShare(queue_id=queue_id, first_hash=part.first_hash, last_hash=part.last_hash)


class Door:
    """A producer of either kind: `do` runs a method to its end."""

    def __init__(self, kind: str, targets: dict[str, str], options: ProducerOptions, timeout_s: float) -> None:
        self._loop = asyncio.new_event_loop() if kind == "aio" else None
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True) if self._loop else None
        if self._thread is not None:
            self._thread.start()
        wanted = {shard: Options(commitlog=target, timeout_s=timeout_s) for shard, target in targets.items()}
        self.producer: Any = self.do(lambda: self._make(wanted, options))

    def _make(self, wanted: dict[str, Options], options: ProducerOptions) -> Any:
        retry = RetryPolicy(delay_max_s=0.1)
        if self._loop is None:
            return ShardedProducer({name: Channels(one, retry) for name, one in wanted.items()}, options)
        return AsyncShardedProducer({name: AsyncChannels(one, retry) for name, one in wanted.items()}, options)

    def do(self, work: Any) -> Any:
        """Run a call where the producer lives."""
        if self._loop is None:
            return work()

        async def run() -> Any:
            found = work()
            return await found if inspect.isawaitable(found) else found

        return asyncio.run_coroutine_threadsafe(run(), self._loop).result(LIMIT_S)

    def send(self, body: str, key: str | None = None) -> Any:
        """Send a message. Returns its future."""
        return self.do(lambda: self.producer.send(TOPIC, body.encode(), sharding_key=key))

    def error_of(self, future: Any) -> Any:
        """The error of a message, None if it is stored."""
        if self._loop is None:
            return future.exception(LIMIT_S)

        async def wait() -> Any:
            await asyncio.wait([future])
            return future.exception()

        return asyncio.run_coroutine_threadsafe(wait(), self._loop).result(LIMIT_S)

    def end(self) -> None:
        """Close the producer, and end the loop."""
        self.do(self.producer.close)
        if self._loop is not None and self._thread is not None:
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join(LIMIT_S)
            self._loop.close()


@pytest.fixture(params=["sync", "aio"])
def kind(request: pytest.FixtureRequest) -> str:
    """The kind of the producer."""
    return str(request.param)


@contextmanager
def opened(kind: str, shards: dict[str, Shard], *, timeout_s: float = 20.0, **options: Any) -> Iterator[Door]:
    """A producer over shards."""
    with ExitStack() as stack:
        targets = {name: stack.enter_context(serving(shard.log, shard.topics)) for name, shard in shards.items()}
        door = Door(kind, targets, ProducerOptions(**options), timeout_s)
        try:
            yield door
        finally:
            door.end()


def test_a_queue_is_sealed_while_messages_are_in_flight(kind: str) -> None:
    """All messages of the key are stored once, in their order, first at the parent and then at the child."""
    shards = {"a": Shard([queue(0, FIRST)], sealed_after={0: 40}), "b": Shard([queue(1, SECOND)])}
    other = keys_of(SECOND, 1)[0]
    with opened(kind, shards, batch_size_bytes=400, linger_ms=0) as door:
        futures = [door.send(f"{number}", KEY if number % 2 else other) for number in range(300)]
        end_s = time.monotonic() + LIMIT_S
        while len(shards["a"].log.stored) < 40:  # the child opens after its parent is sealed
            assert time.monotonic() < end_s
            time.sleep(0.005)
        shards["b"].queues.append(queue(2, FIRST))
        shards["b"].version = 5
        door.do(door.producer.flush)
        assert [door.error_of(future) for future in futures] == [None] * 300
        metrics = door.do(door.producer.metrics)
        assert (metrics.message_count, metrics.acknowledged_message_count) == (300, 300)
        assert (metrics.failed_message_count, metrics.waiting_bytes) == (0, 0)
    parent = [int(message.body) for message in shards["a"].log.stored]
    child = [int(message.body) for message in shards["b"].log.stored if message.queue_id == 2]
    assert parent + child == list(range(1, 300, 2))
    assert len(parent) >= 40
    assert child, "some messages were refused"
    rest = [int(message.body) for message in shards["b"].log.stored if message.queue_id == 1]
    assert rest == list(range(0, 300, 2))


def test_batches_go_to_their_shards(kind: str) -> None:
    """A future has the outcomes of all shards, in the order of the messages."""
    from reput_client import NewMessage

    shards = {"a": Shard([queue(0, FIRST)]), "b": Shard([queue(1, SECOND)])}
    with opened(kind, shards) as door:
        messages = [NewMessage(TOPIC, b"x", sharding_key=f"key-{number}") for number in range(50)]
        future = door.do(lambda: door.producer.send_batch(messages))
        assert door.error_of(future) is None
        outcomes = future.result()
        assert {outcome.queue_id for outcome in outcomes} == {0, 1}
        assert door.error_of(door.do(lambda: door.producer.send_batch([]))) is None
    assert len(shards["a"].log.stored) + len(shards["b"].log.stored) == 50


def test_a_topic_that_no_shard_has(kind: str, caplog: pytest.LogCaptureFixture) -> None:
    """The message fails. A flush counts failures whose futures were not asked."""
    with opened(kind, {"a": Shard([]), "b": Shard([])}) as door:
        assert door.error_of(door.send("asked")).reason == "TOPIC_NOT_FOUND"
        door.send("not asked")
        with caplog.at_level(logging.WARNING, logger="reput_client"):
            door.do(door.producer.flush)
        assert "1 messages of a producer failed" in caplog.text


def test_a_queue_that_does_not_open(kind: str) -> None:
    """Its messages fail when the time-out of the client is over."""
    shards = {"a": Shard([queue(0, FIRST)], sealed={0}), "b": Shard([queue(1, SECOND)], is_silent=True)}
    with opened(kind, shards, timeout_s=0.5) as door:
        error = door.error_of(door.send("x", KEY))
        assert error.reason == "DEPENDENCY_UNAVAILABLE"
        assert "shard b: because of STOPPING" in str(error)


def test_a_close_gives_up_messages_that_wait(kind: str, caplog: pytest.LogCaptureFixture) -> None:
    """They fail, a warning has their number, and nothing is taken afterwards."""
    with opened(kind, {"a": Shard([], is_silent=True)}) as door:
        future = door.send("x")
        with caplog.at_level(logging.WARNING, logger="reput_client"):
            door.do(lambda: door.producer.close(0.2))
        assert "closed before 1 of its messages" in caplog.text
        assert "the producer was closed" in str(door.error_of(future))
        with pytest.raises(ReputError, match="the producer is closed"):
            door.send("y")
        door.do(door.producer.close)


def test_a_full_window_holds_up_the_sender(kind: str) -> None:
    """Until a message of any shard has its outcome."""
    shards = {"a": Shard([queue(0, FIRST)]), "b": Shard([queue(1, SECOND)])}
    for shard in shards.values():
        shard.log.gate.clear()
    with opened(kind, shards, window_bytes=1000, batch_size_bytes=500) as door:
        first = door.send("x" * 800, KEY)
        done = threading.Event()
        thread = threading.Thread(target=lambda: (door.send("y" * 800, KEY), done.set()), daemon=True)
        thread.start()
        assert not done.wait(0.2)
        for shard in shards.values():
            shard.log.gate.set()
        assert done.wait(LIMIT_S)
        thread.join(LIMIT_S)
        assert door.error_of(first) is None
    assert len(shards["a"].log.stored) == 2


def test_a_shard_that_hangs_stops_no_other(kind: str) -> None:
    """Its keys wait when its messages have half of the window. Other keys, and messages without a key, go on."""
    shards = {"a": Shard([queue(0, FIRST)]), "b": Shard([queue(1, SECOND)])}
    shards["a"].log.gate.clear()
    other = keys_of(SECOND, 1)[0]
    with opened(kind, shards, window_bytes=20_000, batch_size_bytes=500) as door:
        futures: list[Any] = []
        thread = threading.Thread(target=lambda: futures.extend(door.send("x" * 800, KEY) for _ in range(40)))
        thread.start()
        for number in range(40):
            assert door.error_of(door.send(f"{number}".ljust(800), other)) is None
        while door.do(lambda: door.producer.metrics()).waiting_message_count < 10:
            time.sleep(0.01)
        time.sleep(1.2)
        for number in range(40):
            assert door.error_of(door.send(f"{number}".ljust(800))) is None
        assert thread.is_alive()
        assert not shards["a"].log.stored
        shards["a"].log.gate.set()
        thread.join(LIMIT_S)
        assert [door.error_of(future) for future in futures] == [None] * 40


def test_a_shard_that_hangs_delays_a_new_topic_by_a_second(kind: str) -> None:
    """A topic that is whole at a shard is known when all have answered, or have taken too long."""
    shards = {"a": Shard([]), "b": Shard([], is_whole=True)}
    shards["a"].answers.clear()
    with opened(kind, shards) as door:
        begin_s = time.monotonic()
        assert door.error_of(door.send("x")) is None
        assert time.monotonic() - begin_s < 10
        shards["a"].answers.set()


def test_a_flush_has_a_limit_and_is_not_for_callbacks() -> None:
    """A thread that waits for a flush gives up, and a callback would wait for itself."""
    shard = Shard([queue(0, parts(1)[0])])
    shard.log.gate.clear()
    with opened("sync", {"a": shard}) as door:
        future, errors = door.send("x"), list[BaseException]()

        def flush(_: Any) -> None:
            try:
                door.producer.flush()
            except RuntimeError as error:
                errors.append(error)

        with pytest.raises(TimeoutError):
            door.producer.flush(0.1)
        future.add_done_callback(flush)
        shard.log.gate.set()
        door.producer.flush(LIMIT_S)
        assert [str(error) for error in errors] == ["flush waits for callbacks, so that none may call it"]
        assert "ShardedProducer(a, 0 bytes" in repr(door.producer)
