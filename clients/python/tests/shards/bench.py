# SPDX-License-Identifier: Apache-2.0
"""Bench: the routing of a producer over shards, with logs that have shares of a topic, and no network and no clock."""

import random
from collections import deque
from dataclasses import dataclass, field

import grpc
from reput.commitlog.v1.append_service_pb2 import AppendMessage, AppendStreamRequest
from reput_client import (
    FailedPreconditionError,
    NewMessage,
    NotFoundError,
    QueueRange,
    ReputError,
    Topic,
    TopicShare,
    UnavailableError,
)
from reput_client.core.encode import Encoder
from reput_client.core.shards.chunks import key_hash, key_of
from reput_client.core.shards.entries import Entry
from reput_client.core.shards.routing import Placed, Routing
from reput_client.core.telemetry.unread import Round

TOPIC = "orders"
HASHES = 2**32
PATIENCE_S = 30.0
AWAY = UnavailableError("failed to connect to all addresses; last error: x", code=grpc.StatusCode.UNAVAILABLE)
UNKNOWN = NotFoundError("no such topic", code=grpc.StatusCode.NOT_FOUND, reason="TOPIC_NOT_FOUND")
ENCODER = Encoder(makes_unique_ids=True)


def topic_of(share: TopicShare | None, name: str = TOPIC) -> Topic:
    """A topic as a shard tells it."""
    return Topic(name, 8, 8, is_readable=True, is_writable=True, is_system=False, share=share)


def share_of(version: int, *queues: QueueRange) -> TopicShare:
    """A share with these queues."""
    return TopicShare(version, queues)


def parts(count: int) -> list[QueueRange]:
    """Queues with equal ranges."""
    size = HASHES // count
    return [QueueRange(at, at * size, (at + 1) * size - 1 if at < count - 1 else HASHES - 1) for at in range(count)]


def message_in(placed: Placed) -> AppendMessage:
    """The message that the producer of a shard gets."""
    (message,) = AppendStreamRequest.FromString(placed[0]).messages
    return message


def refusal(queue_id: int, kind: type[ReputError] = FailedPreconditionError) -> ReputError:
    """The refusal of a message whose queue is not here."""
    return kind("sealed", reason="QUEUE_NOT_HERE", metadata={"topic": TOPIC, "value": str(queue_id)})


class BodySink:
    """The sink of a message that puts its outcome under its body into a dictionary, a single time."""

    stored: object = None

    def __init__(self, outcomes: dict[str, str], body: str) -> None:
        self._outcomes, self._body = outcomes, body

    def done(self) -> bool:
        """See Sink."""
        return False

    def set_result(self, _row: int, /) -> None:
        """See Sink."""
        self._note("stored")

    def set_exception(self, error: ReputError, /) -> None:
        """See Sink."""
        self._note(error.reason or type(error).__name__)

    def note_failure(self, round_: Round, error: ReputError) -> None:
        """See Sink."""
        round_.add(error)

    def _note(self, outcome: str) -> None:
        assert self._body not in self._outcomes, "settled twice"
        self._outcomes[self._body] = outcome


@dataclass
class Bench:
    """A routing, and the outcomes by the bodies of the messages."""

    shards: tuple[str, ...] = ("a", "b")
    window_bytes: int = 1 << 20
    chance: random.Random = field(default_factory=lambda: random.Random(7))
    now_s: float = 100.0
    outcomes: dict[str, str] = field(default_factory=dict)
    sent: dict[str, deque[Placed]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.sent = {shard: deque() for shard in self.shards}
        self.routing = Routing(
            self.shards,
            window_bytes=self.window_bytes,
            patience_s=PATIENCE_S,
            clock=lambda: self.now_s,
            chance=self.chance.random,
        )

    def stored(self, entry: Entry) -> None:
        """Bring the outcome of a message that a shard has stored."""
        self.routing.on_stored([entry])
        entry.sink.set_result(0)
        self.go_on()

    def failed(self, entry: Entry, error: ReputError) -> None:
        """Bring the error of a message at a shard."""
        self.routing.on_failed([entry], error)
        self.go_on()

    def go_on(self) -> None:
        """Take the messages to send, and the messages that failed."""
        for shard, placed in self.routing.pop_sends():
            self.sent[shard] += placed
        for sink, error in self.routing.pop_failed():
            sink.set_exception(error)

    def add(self, body: str, *, key: str | None = None, queue_id: int | None = None, topic: str = TOPIC) -> None:
        """Send a message."""
        message = NewMessage(topic, body.encode(), sharding_key=key, queue_id=queue_id)
        encoded = (*ENCODER.encode(message), BodySink(self.outcomes, body))
        self.routing.add(topic, encoded, key=key_of(message), queue_id=queue_id)
        self.go_on()

    def answer(self, shard: str, share: TopicShare | ReputError | None, topic: str = TOPIC) -> None:
        """Ask a shard, which has to be due, and answer the question."""
        assert self.routing.question(shard) == topic
        self.routing.answer(shard, topic, share if isinstance(share, ReputError) else topic_of(share, topic))
        self.go_on()

    def store(self, shard: str, count: int = 1 << 30) -> list[tuple[int, str]]:
        """Let a shard store messages: the queues and bodies."""
        stored = []
        while self.sent[shard] and len(stored) < count:
            placed = self.sent[shard].popleft()
            message = message_in(placed)
            stored.append((message.queue_id if message.HasField("queue_id") else -1, message.body.decode()))
            self.stored(placed[2])
        return stored

    def fail(self, shard: str, error: ReputError, count: int = 1 << 30) -> list[str]:
        """Let a shard refuse messages: the bodies."""
        failed = []
        while self.sent[shard] and len(failed) < count:
            placed = self.sent[shard].popleft()
            failed.append(message_in(placed).body.decode())
            self.failed(placed[2], error)
        return failed

    def bodies(self, shard: str) -> list[str]:
        """The messages at the producer of a shard."""
        return [message_in(placed).body.decode() for placed in self.sent[shard]]


def keys_of(queue: QueueRange, count: int, seed: int = 0) -> list[str]:
    """Keys of a queue's range."""
    found, number = list[str](), seed
    while len(found) < count:
        if queue.first_hash <= key_hash(f"key-{number}") <= queue.last_hash:
            found.append(f"key-{number}")
        number += 1
    return found
