# SPDX-License-Identifier: Apache-2.0
"""Consumers of a real store: several topics, places, pauses, lag, commits, many messages at once."""

import asyncio
import inspect
import time
from collections.abc import Iterator
from typing import Any

import pytest
import reput_client
from reput_client import NewMessage, TopicQueue, aio

from clients.python.tests.support import LIMIT_S
from tests.support.reput_up import Store

pytestmark = pytest.mark.e2e
COUNT = 20
"""Messages in each of two queues of a topic."""


class Both:
    """A consumer of either kind, with its calls awaited, so that the same test drives both."""

    def __init__(self, consumer: Any, loop: asyncio.AbstractEventLoop) -> None:
        self._consumer, self._loop = consumer, loop

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._consumer, name)

        def call(*arguments: Any, **options: Any) -> Any:
            async def run() -> Any:
                found = method(*arguments, **options)
                return await found if inspect.isawaitable(found) else found

            return self._loop.run_until_complete(run())

        return call


@pytest.fixture(params=["sync", "aio"])
def consume(request: pytest.FixtureRequest, running: Store, client: reput_client.Client) -> Iterator[Any]:
    """Creates a consumer, synchronous or of asyncio."""
    loop = asyncio.new_event_loop()

    async def connect() -> Any:
        return aio.connect(**running.targets)

    other = loop.run_until_complete(connect())

    def make(*topics: Any, **options: Any) -> Both:
        async def consumer() -> Any:
            return other.consumer(*topics, **options)

        made = client.consumer(*topics, **options) if request.param == "sync" else loop.run_until_complete(consumer())
        return Both(made, loop)

    yield make
    loop.run_until_complete(other.close())
    loop.close()


@pytest.fixture
def topic(request: pytest.FixtureRequest, client: reput_client.Client) -> str:
    """A topic with messages `0`, `1` … in its queues 0 and 1, all of which are indexed."""
    name = "".join(letter if letter.isalnum() else "_" for letter in request.node.name)
    fill(client, name)
    return name


def fill(client: reput_client.Client, topic: str) -> None:
    """Put messages into two queues of a topic, and wait until they can be read."""
    messages = [
        NewMessage(topic, str(number).encode(), queue_id=queue_id) for number in range(COUNT) for queue_id in (0, 1)
    ]
    with client.producer() as producer:
        producer.send_batch(messages).result(LIMIT_S)
    for queue_id in (0, 1):
        wait_readable(client, topic, queue_id, COUNT - 1)


def wait_readable(client: reput_client.Client, topic: str, queue_id: int, queue_offset: int) -> None:
    """Wait until a message can be read."""
    end_s = time.monotonic() + LIMIT_S
    while not client.queues.pull(topic, queue_id, queue_offset).messages:
        assert time.monotonic() < end_s
        time.sleep(0.02)


def bodies(consumer: Both, count: int) -> dict[tuple[str, int], list[int]]:
    """The numbers in the next messages, by queue."""
    found: dict[tuple[str, int], list[int]] = {}
    while count > 0:
        messages = consumer.poll_many(count, LIMIT_S)
        assert messages
        count -= len(messages)
        for message in messages:
            found.setdefault((message.topic, message.queue_id), []).append(int(message.body))
    return found


def test_several_topics(client: reput_client.Client, consume: Any, topic: str) -> None:
    """All queues of all topics are consumed, each in order, and committed together."""
    fill(client, f"{topic}_too")
    topics = [topic, f"{topic}_too"]
    consumer = consume(topics, group=f"g_{topic}")
    wanted = {TopicQueue(name, queue_id): COUNT for name in topics for queue_id in (0, 1)}
    assert bodies(consumer, 4 * COUNT) == {queue: list(range(COUNT)) for queue in wanted}
    consumer.commit()
    assert {queue: at for queue, at in consumer.committed().items() if at} == wanted
    assert {queue for queue, at in consumer.committed(topic).items() if at} == {(topic, 0), (topic, 1)}
    consumer.close()
    again = consume(topics, group=f"g_{topic}", start="earliest")
    assert again.poll(0.2) is None
    assert {queue: at for queue, at in again.positions().items() if at} == wanted


def test_topics_that_cannot_be_meant(client: reput_client.Client) -> None:
    """An empty list of topics, or a value that is not a name, is refused at once.

    A topic that does not exist is refused when the consumer looks it up.
    """
    with pytest.raises(ValueError, match="at least one topic"):
        client.consumer([])
    with pytest.raises(TypeError, match="topic is 7"):
        client.consumer(["a", 7])
    with pytest.raises(reput_client.NotFoundError):
        client.consumer(["nobody-made-it"])
    with pytest.raises(ValueError, match="auto_commit_s needs a group"):
        client.consumer("a", auto_commit_s=1)
    with pytest.raises(ValueError, match="auto_commit_s is -1"):
        client.consumer("a", group="g", auto_commit_s=-1)


def test_pause(client: reput_client.Client, consume: Any, topic: str) -> None:
    """A paused queue hands no messages out and keeps its position, also after seeks, until it is resumed."""
    consumer = consume(topic)
    assert consumer.poll(LIMIT_S) is not None
    consumer.pause((topic, 0))
    assert consumer.paused() == {TopicQueue(topic, 0)}
    before = consumer.positions()[topic, 0]
    rest = COUNT - consumer.positions()[topic, 1]
    assert set(bodies(consumer, rest)) == {(topic, 1)}
    assert consumer.poll(0.2) is None
    assert consumer.positions()[topic, 0] == before
    consumer.seek((topic, 0), 5)
    assert consumer.poll(0.2) is None
    consumer.resume()
    assert consumer.paused() == set()
    assert bodies(consumer, COUNT - 5) == {(topic, 0): list(range(5, COUNT))}
    consumer.pause(topic)
    assert len(consumer.paused()) == len(consumer.positions())
    with pytest.raises(KeyError):
        consumer.pause("other")
    with pytest.raises(KeyError):
        consumer.resume((topic, 99))


def test_seek_to(client: reput_client.Client, consume: Any, topic: str) -> None:
    """A consumer seeks to the end, to the beginning and to a time, for all queues or for some."""
    consumer = consume(topic)
    consumer.seek_to("latest")
    assert consumer.poll(0.2) is None
    assert consumer.lag() == dict.fromkeys(consumer.positions(), 0)
    time.sleep(0.01)
    with client.producer() as producer:
        result = producer.send(topic, b"100", queue_id=1).result(LIMIT_S)
    assert bodies(consumer, 1) == {(topic, 1): [100]}
    consumer.seek_to("earliest", (topic, 0))
    assert bodies(consumer, COUNT) == {(topic, 0): list(range(COUNT))}
    consumer.seek_to(result.store_time_ms, topic)
    assert bodies(consumer, 1) == {(topic, 1): [100]}
    assert consumer.poll(0.2) is None
    with pytest.raises(ValueError, match="place"):
        consumer.seek_to("middle")


def test_lag_and_bounds(client: reput_client.Client, consume: Any, topic: str) -> None:
    """Lag and bounds are current: a message that another client appends changes them at once."""
    consumer = consume(topic, queue_ids=[0, 1, 2])
    assert consumer.lag((topic, 0), (topic, 2)) == {(topic, 0): COUNT, (topic, 2): 0}
    assert bodies(consumer, 2 * COUNT)
    assert sum(consumer.lag().values()) == 0
    consumer.pause()
    with client.producer() as producer:
        producer.send(topic, b"100", queue_id=1).result(LIMIT_S)
    wait_readable(client, topic, 1, COUNT)
    assert consumer.lag() == {(topic, 0): 0, (topic, 1): 1, (topic, 2): 0}
    bounds = consumer.bounds(topic)[topic, 1]
    assert (bounds.min_queue_offset, bounds.max_queue_offset) == (0, COUNT + 1)


def test_poll_many(consume: Any, topic: str) -> None:
    """`poll_many` returns at most the requested number of messages, all that are there, and none twice."""
    consumer = consume(topic)
    assert len(consumer.poll_many(3, LIMIT_S)) == 3
    assert sum(map(len, bodies(consumer, 2 * COUNT - 3).values())) == 2 * COUNT - 3
    assert consumer.poll_many(10, 0.2) == []
    with pytest.raises(ValueError, match="count is 0"):
        consumer.poll_many(0)
    consumer.close()
    assert consumer.poll_many(10) == []


def test_auto_commit(client: reput_client.Client, consume: Any, topic: str) -> None:
    """A poll commits the messages that earlier polls handed out, and not its own messages."""
    consumer = consume(topic, group=f"g_{topic}", queue_ids=[0], auto_commit_s=0)
    assert [int(consumer.poll(LIMIT_S).body) for _ in range(3)] == [0, 1, 2]
    assert consumer.committed() == {(topic, 0): 2}
    assert client.groups.get(f"g_{topic}", topic, 0).queue_offset == 2


def test_auto_commit_at_the_end(client: reput_client.Client, running: Store, topic: str) -> None:
    """The end of a block commits the messages that were handed out.

    If an exception ends the block, they are not committed, and come again.
    """
    options = {"group": f"g_{topic}", "queue_ids": [0], "auto_commit_s": 60}
    with client.consumer(topic, **options) as consumer:
        assert [int(consumer.poll(LIMIT_S).body) for _ in range(3)] == [0, 1, 2]
    assert client.groups.get(f"g_{topic}", topic, 0).queue_offset == 3

    def fail() -> None:
        with client.consumer(topic, **options) as consumer:
            assert int(consumer.poll(LIMIT_S).body) == 3
            raise RuntimeError

    with pytest.raises(RuntimeError):
        fail()
    client.close()
    with reput_client.connect(**running.targets) as other:
        assert other.groups.get(f"g_{topic}", topic, 0).queue_offset == 3


def test_metrics(consume: Any, topic: str) -> None:
    """The metrics count the messages that were handed out, and the messages and answers that have arrived."""
    consumer = consume(topic)
    assert consumer.metrics().message_count == 0
    bodies(consumer, 2 * COUNT)
    metrics = consumer.metrics()
    assert (metrics.message_count, metrics.waiting_message_count, metrics.broken_stream_count) == (2 * COUNT, 0, 0)
    assert 2 <= metrics.answer_count <= 2 * COUNT
    assert metrics.answer_bytes > 2 * COUNT * len(topic)
    consumer.seek_to("earliest", (topic, 0))
    assert consumer.poll(LIMIT_S) is not None
    assert consumer.metrics().message_count == 2 * COUNT + 1
    assert consumer.metrics().waiting_message_count == COUNT - 1
    consumer.seek_to("latest")
    assert (consumer.metrics().message_count, consumer.metrics().waiting_message_count) == (2 * COUNT + 1, 0)
