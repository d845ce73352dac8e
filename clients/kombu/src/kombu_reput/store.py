# SPDX-License-Identifier: Apache-2.0
"""Store: the calls of a transport to Reput. Callers: any thread, also after a fork."""

import contextlib
import logging
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from typing import Literal, TypeVar

import grpc
from reput_client import (
    AlreadyExistsError,
    Client,
    Durability,
    InvalidArgumentError,
    Message,
    NewMessage,
    NotFoundError,
    PullResult,
    Received,
    ReputError,
    RetryPolicy,
    SendResult,
    ShareConsumer,
    SharePolicy,
    connect,
)

from kombu_reput.errors import NotDurableError
from kombu_reput.forks import GATE
from kombu_reput.settings import Settings

T = TypeVar("T")
Verb = Literal["ack", "nack", "release", "bury", "terminate"]

log = logging.getLogger("kombu_reput")

OUTDATED = "HANDLE_OUTDATED"
PURGE_COUNT = 500
"""Messages that a purge takes in a call."""
PURGE_WAIT_S = 0.2
DURABILITY_PAUSE_S = 0.2


class Interrupted(Exception):
    """A call was cancelled, because the process forked or the store was closed."""


class Store:
    """The calls of a transport. The connections are made at the first call, and again after a fork."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self._lock = threading.Lock()
        self._client: Client | None = None
        self._consumers: dict[str, ShareConsumer] = {}
        self._known_topics: set[str] = set()
        self._known_groups: set[str] = set()
        self._is_closed = False
        GATE.add(self)

    def check(self, timeout_s: float) -> None:
        """Raise ReputError unless CommitLog, Indexer and Delivery answer within the time."""
        arguments = {**self.settings.connect_arguments(), "timeout_s": timeout_s}
        with GATE.call(), connect(**arguments, retry=RetryPolicy(retries=2)) as client:
            next(client.topics.list(), None)
            next(client.queues.list("TBW102"), None)
            next(client.share_groups.list(), None)

    def send(self, message: NewMessage, durability: Durability) -> SendResult:
        """Store a message once, and return when it is as durable as asked for. Raises ReputError or NotDurableError."""
        once_id, end_s = uuid.uuid4().hex, time.monotonic() + self.settings.timeout_s
        while True:
            sent = self._run(lambda client: client.send_once(once_id, message, durability=durability))
            if sent.durability >= durability:
                return sent
            if time.monotonic() > end_s:
                raise NotDurableError(f"a message of {message.topic} is {sent.durability.name}, not {durability.name}")
            time.sleep(DURABILITY_PAUSE_S)

    def ensure_topic(self, topic: str, queue_count: int = 1) -> None:
        """Create a topic unless it exists."""
        if topic in self._known_topics:
            return
        if not self.has_topic(topic):
            with contextlib.suppress(AlreadyExistsError):
                self._run(
                    lambda client: client.topics.create(
                        topic, read_queue_count=queue_count, write_queue_count=queue_count
                    )
                )
        self._known_topics.add(topic)

    def has_topic(self, topic: str) -> bool:
        """Return whether a topic exists."""
        if topic not in self._known_topics:
            try:
                self._run(lambda client: client.topics.get(topic))
            except NotFoundError:
                return False
            self._known_topics.add(topic)
        return True

    def receive(self, topic: str, count: int, wait_s: float) -> list[Received]:
        """Return messages of a topic's group, after at most `wait_s` seconds. Raises ReputError or Interrupted."""

        def call(client: Client) -> list[Received]:
            return self._consumer(client, topic).receive(count, wait_s)

        self._ensure_group(topic)
        try:
            return self._run(call, is_long=True)
        except NotFoundError:  # deleted meanwhile
            self._known_topics.discard(topic)
            self._known_groups.discard(topic)
            raise

    def settle(self, verb: Verb, topic: str, *received: Received) -> None:
        """Settle messages of a topic. `nack` gives back at once. A lease that was over is logged. Raises ReputError."""

        def call(client: Client) -> None:
            consumer = self._consumer(client, topic)
            if verb == "nack":
                consumer.nack(*received, delay_s=0.0)
            else:
                getattr(consumer, verb)(*received)

        try:
            self._run(call)
        except ReputError as error:
            if error.reason != OUTDATED:
                raise
            log.warning("a message of %s comes again, or was settled by another worker: %s", topic, error)

    def extend(self, topic: str, received: Sequence[Received]) -> None:
        """Extend leases. Raises the ReputError of the first message whose lease is over."""
        lease_s = self.settings.lease_s
        self._run(lambda client: self._consumer(client, topic).extend(*received, invisible_s=lease_s))

    def size(self, topic: str) -> int:
        """Return the number of messages that wait for a receiver."""
        try:
            group = self._run(lambda client: client.share_groups.get(topic))
        except NotFoundError:
            group = None
        queues = [queue for queue in group.queues if queue.topic == topic] if group else []
        if queues:
            return sum(max(queue.lag - queue.in_flight_count, 0) for queue in queues)
        return sum(
            queue.max_queue_offset - queue.min_queue_offset
            for queue in self._run(lambda client: list(client.queues.list(topic)))
        )

    def purge(self, topic: str) -> int:
        """Give up the messages that wait for a receiver or for their time, and return their number."""
        count = 0
        while received := self.receive(topic, PURGE_COUNT, PURGE_WAIT_S):
            self.settle("terminate", topic, *received)
            count += len(received)
        for waiting in self._run(lambda client: list(client.delayed.list(topic))):
            with contextlib.suppress(ReputError):  # it is delivered in this moment
                self._run(lambda client, one=waiting: client.delayed.cancel(topic, one.message.offset_message_id))  # type: ignore[misc]
                count += 1
        return count

    def end_of(self, topic: str) -> int:
        """Return the end of the first queue of a topic."""
        try:
            return self._run(lambda client: client.queues.range(topic, 0)).max_queue_offset
        except NotFoundError:
            return 0

    def pull(self, topic: str, queue_offset: int, tags: Sequence[str], wait_s: float) -> PullResult:
        """Read messages with these tags from the first queue of a topic. Raises ReputError or Interrupted."""
        return self._run(
            lambda client: client.queues.pull(topic, 0, queue_offset, tags="||".join(tags), wait_s=wait_s), is_long=True
        )

    def records(self, topic: str, key: str, count_max: int) -> Iterator[Message]:
        """Yield the messages of a topic with a key, the newest first."""

        def call(client: Client) -> list[Message]:
            found = client.query.by_key(topic, key)
            return [message for message, _ in zip(found, range(count_max), strict=False)]

        with contextlib.suppress(NotFoundError):
            yield from self._run(call)

    def wait_indexed(self, sent: SendResult) -> None:
        """Return when queries find a message."""
        self._run(lambda client: client.query.wait_indexed(sent))

    def drop(self) -> bool:
        """Close the connections until the next call. Returns whether there were any."""
        with self._lock:
            client, self._client = self._client, None
            self._consumers.clear()
        if client is None:
            return False
        client.close()
        return True

    def close(self) -> None:
        """Close the connections for ever. Calls that wait for messages end."""
        self._is_closed = True
        self.drop()

    def _ensure_group(self, topic: str) -> None:
        """Create the group of a topic unless it exists. Its policy stays as operators changed it."""
        if topic in self._known_groups:
            return
        try:
            self._run(lambda client: client.share_groups.get(topic))
        except NotFoundError:
            settings = self.settings
            policy = SharePolicy(
                attempts_max=settings.attempts_max,
                backoffs_s=(settings.retry_delay_s,),
                invisible_s=settings.lease_s,
            )
            self._run(lambda client: client.share_groups.set(topic, policy))
        self._known_groups.add(topic)

    def _run(self, call: Callable[[Client], T], *, is_long: bool = False) -> T:
        """Run a call, again if a fork cut it off. Raises Interrupted for a long call, or at a close."""
        while True:
            with GATE.call(is_long=is_long):
                client = self._open()
                try:
                    return call(client)
                except InvalidArgumentError:
                    raise
                except (ReputError, ValueError, RuntimeError, grpc.RpcError) as error:
                    if self._client is client:
                        raise
                    if is_long or self._is_closed:
                        raise Interrupted(str(error)) from error

    def _open(self) -> Client:
        with self._lock:
            if self._is_closed:
                raise Interrupted("the connection is closed")
            if self._client is None:
                self._client = connect(**self.settings.connect_arguments())
            return self._client

    def _consumer(self, client: Client, topic: str) -> ShareConsumer:
        """Return the consumer of a topic. Leases are extended by Leases, which survive a fork."""
        with self._lock:
            consumer = self._consumers.get(topic)
            if consumer is None:
                consumer = client.share_consumer(topic, group=topic, invisible_s=self.settings.lease_s, hold_s_max=0.0)
                self._consumers[topic] = consumer
            return consumer
