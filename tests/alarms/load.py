# SPDX-License-Identifier: Apache-2.0
"""Normal load: producers, a group that shares messages, a group that keeps offsets, queries and delayed messages."""

import itertools
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager

from reput_client import Client, Consumer, Durability, NewMessage, ProducerOptions, Received, ReputError, connect

from tests.alarms.site import Site

TOPIC, GROUP = "orders", "billing"
KEEPING_GROUP = "nightly"
"""A group that keeps offsets."""
LARGE = "large"
"""The key of large messages."""


@contextmanager
def repeated(load: Callable[[], object], interval_s: float) -> Iterator[None]:
    """Call a function again and again in a thread within the block. Its error is raised at the end."""
    is_over = threading.Event()
    errors: list[BaseException] = []

    def repeat() -> None:
        while not is_over.wait(interval_s):
            try:
                load()
            except Exception as error:  # noqa: BLE001 - raised below
                errors.append(error)

    thread = threading.Thread(target=repeat)
    thread.start()
    try:
        yield
    finally:
        is_over.set()
        thread.join()
    if errors:
        raise errors[0]


@contextmanager
def loaded(made: Site) -> Iterator[None]:
    """Send twenty messages a second to a topic, which a group consumes, within the block."""
    with _client(made) as client, client.producer() as producer:
        consumer = client.share_consumer(TOPIC, group=GROUP)
        thread = threading.Thread(target=consumer.run, args=(_take,))
        with repeated(lambda: producer.send(TOPIC, b"a message"), 1 / 20):
            thread.start()
            try:
                yield
            finally:
                consumer.close()
                thread.join()


@contextmanager
def loaded_as_usual(made: Site) -> Iterator[None]:
    """Add to `loaded` a group that keeps offsets, queries, delayed messages and messages of 64 KiB."""
    with ExitStack() as stack:
        client = stack.enter_context(_client(made))
        client.topics.create(TOPIC)
        stack.enter_context(loaded(made))
        producer = stack.enter_context(client.producer(ProducerOptions(durability=Durability.LOCAL_DISK)))
        consumer = stack.enter_context(client.consumer(TOPIC, group=KEEPING_GROUP))

        def send_large() -> None:
            producer.send(TOPIC, bytes(65_536), keys=[LARGE])
            producer.send_message(NewMessage(TOPIC, b"later", delay_s=20))

        def query() -> None:
            list(itertools.islice(client.query.by_key(TOPIC, LARGE), 5))

        stack.enter_context(repeated(send_large, 2))
        stack.enter_context(repeated(query, 5))
        stack.enter_context(repeated(lambda: read(consumer), 0.5))
        yield


@contextmanager
def leader_loaded(leader: str) -> Iterator[None]:
    """Send five messages a second to a log that leads, and wait for its followers, within the block."""
    with (
        connect(commitlog=leader) as client,
        client.producer(ProducerOptions(durability=Durability.REPLICATED)) as producer,
    ):

        def send() -> None:
            try:
                producer.send(TOPIC, b"a message").result(30)
            except (ReputError, TimeoutError) as error:
                print(f"        an append to the copies failed: {error!r}", flush=True)

        with repeated(send, 1 / 5):
            yield


def read(consumer: Consumer) -> None:
    """Read what there is for a group that keeps offsets, and keep its offset."""
    consumer.poll_many(500, 0.5)
    consumer.commit()


def _client(made: Site) -> Client:
    log, index, delivery = (made.services[name].target for name in ("commitlog", "indexer", "delivery"))
    return connect(commitlog=log, indexer=index, delivery=delivery)


def _take(_: Received) -> None:
    """Handle a message."""
