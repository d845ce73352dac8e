# SPDX-License-Identifier: Apache-2.0
"""Both consumers against a server: order, resume, groups, seek, close."""

import contextlib
import threading
import time
from collections.abc import Iterator
from typing import Any

import grpc
import pytest
import reput_client
from reput.commitlog.v1 import topic_service_pb2
from reput.indexer.v1 import consumer_offset_service_pb2 as offsets
from reput.indexer.v1 import queue_service_pb2 as queues
from reput_client import RetryPolicy, aio

from clients.python.tests.support import LIMIT_S, Unary, fail, serving, status
from tests.support.surroundings import free_port

QUICK = RetryPolicy(retries=3, delay_min_s=0.01, delay_max_s=0.02)
LENGTHS = {0: 10, 1: 7}
"""Queue id to number of messages; queue 2 exists only in the topic's settings."""


class Store:
    """A topic of three queues. Each stream sends pairs of messages and is cut after `pairs_per_stream` of them."""

    def __init__(self) -> None:
        self.pairs_per_stream = 1000
        self.unmatched_count = 0
        self.heartbeat_s = 1000.0
        self.streams: list[tuple[int, int]] = []
        self.committed: dict[int, int] = {}
        self.error: Any = None
        self.opened = threading.Semaphore(0)
        self.stopping = threading.Event()

    def subscribe(self, request: Any, context: grpc.ServicerContext) -> Iterator[Any]:
        self.streams.append((request.queue_id, request.queue_offset))
        self.opened.release()
        if self.error is not None:
            fail(context, self.error)
        end = LENGTHS.get(request.queue_id, 0)
        for number, first in enumerate(range(request.queue_offset, end, 2)):
            if number == self.pairs_per_stream:
                context.abort(grpc.StatusCode.UNAVAILABLE, "cut")
            following = min(first + 2, end)
            messages = [
                {"topic": "t", "queue_id": request.queue_id, "queue_offset": offset}
                for offset in range(first, following)
            ]
            yield queues.SubscribeResponse(status=1, messages=messages, next_queue_offset=following)
        yield queues.SubscribeResponse(status=2, next_queue_offset=end + self.unmatched_count)
        beat_s = time.monotonic() + self.heartbeat_s
        while context.is_active() and not self.stopping.wait(0.05):
            if time.monotonic() >= beat_s:
                yield queues.SubscribeResponse(status=7, next_queue_offset=end + self.unmatched_count)
                beat_s += self.heartbeat_s

    def get_offset(self, request: Any, context: grpc.ServicerContext) -> Any:
        if request.queue_id not in self.committed:
            fail(context, status(grpc.StatusCode.NOT_FOUND, "CONSUMER_OFFSET_NOT_FOUND"))
        offset = offsets.ConsumerOffset(queue_id=request.queue_id, queue_offset=self.committed[request.queue_id])
        return offsets.GetConsumerOffsetResponse(offset=offset)

    def commit(self, request: Any, context: grpc.ServicerContext) -> Any:
        self.committed.update({offset.queue_id: offset.queue_offset for offset in request.offsets})
        return offsets.CommitConsumerOffsetResponse()

    def services(self) -> list[Unary]:
        listed = [
            {"topic": "t", "queue_id": queue_id, "min_queue_offset": 2, "max_queue_offset": length}
            for queue_id, length in LENGTHS.items()
        ]
        topic = topic_service_pb2.Topic(name="t", read_queue_count=3)
        return [
            Unary(
                "reput.indexer.v1.QueueService",
                streams={"Subscribe": (queues.SubscribeRequest, self.subscribe)},
                ListQueues=(queues.ListQueuesRequest, lambda _, __: queues.ListQueuesResponse(queues=listed)),
                GetOffsetByTime=(
                    queues.GetOffsetByTimeRequest, lambda _, __: queues.GetOffsetByTimeResponse(queue_offset=6),
                ),
            ),
            Unary(
                "reput.indexer.v1.ConsumerOffsetService",
                GetConsumerOffset=(offsets.GetConsumerOffsetRequest, self.get_offset),
                CommitConsumerOffset=(offsets.CommitConsumerOffsetRequest, self.commit),
            ),
            Unary(
                "reput.commitlog.v1.TopicService",
                GetTopic=(
                    topic_service_pb2.GetTopicRequest, lambda _, __: topic_service_pb2.GetTopicResponse(topic=topic),
                ),
            ),
        ]  # fmt: skip


@pytest.fixture
def store() -> Iterator[Store]:
    store = Store()
    yield store
    store.stopping.set()


@pytest.fixture
def target(store: Store) -> Iterator[str]:
    with serving(*store.services()) as target:
        yield target


@pytest.fixture
def client(target: str) -> Iterator[reput_client.Client]:
    with reput_client.connect(commitlog=target, indexer=target, retry=QUICK) as client:
        yield client


def take(consumer: reput_client.Consumer, count: int) -> dict[int, list[int]]:
    """Queue offsets of the next messages, by queue."""
    taken: dict[int, list[int]] = {}
    for _ in range(count):
        message = consumer.poll(LIMIT_S)
        assert message is not None
        taken.setdefault(message.queue_id, []).append(message.queue_offset)
    return taken


@pytest.mark.parametrize("pairs_per_stream", [1, 2, 1000])
def test_each_queue_in_order_through_cuts(store: Store, client: reput_client.Client, pairs_per_stream: int) -> None:
    """Every message comes once and in order, over any number of broken streams. Idle steps move the position."""
    store.pairs_per_stream, store.unmatched_count = pairs_per_stream, 5
    with client.consumer("t") as consumer:
        assert take(consumer, 13) == {0: list(range(2, 10)), 1: list(range(2, 7))}
        while consumer.positions() != {("t", 0): 15, ("t", 1): 12, ("t", 2): 5}:
            assert consumer.poll(0.2) is None


@pytest.mark.parametrize(
    ("start", "queue_ids", "expected"),
    [
        ("earliest", None, {(0, 2), (1, 2), (2, 0)}),
        ("latest", None, {(0, 10), (1, 7), (2, 0)}),
        (1_700_000_000_000, [1], {(1, 6)}),
        ("earliest", [0], {(0, 2)}),
    ],
)
def test_where_it_begins(store: Store, client: reput_client.Client, start: Any, queue_ids: Any, expected: Any) -> None:
    """Without a group the start decides."""
    with client.consumer("t", start=start, queue_ids=queue_ids):
        assert all(store.opened.acquire(timeout=LIMIT_S) for _ in expected)
    assert set(store.streams) == expected


def test_a_bad_start(client: reput_client.Client) -> None:
    """A start that is no place is refused."""
    with pytest.raises(ValueError, match="place"):
        client.consumer("t", start="middle")  # type: ignore[arg-type]


def test_group(store: Store, client: reput_client.Client) -> None:
    """A group begins at its committed offsets, and a commit covers exactly the messages that were returned."""
    store.committed = {0: 8}
    with client.consumer("t", group="g", queue_ids=[0, 1]) as consumer:
        taken = take(consumer, 3)
        consumer.commit()
        expected = {0: 8, 1: 2}
        expected.update({queue_id: queue_offsets[-1] + 1 for queue_id, queue_offsets in taken.items()})
        assert store.committed == expected
        store.committed.clear()
        consumer.commit()
        assert store.committed == {}
    with client.consumer("t") as consumer, pytest.raises(ValueError, match="group"):
        consumer.commit()


def test_seek(client: reput_client.Client) -> None:
    """After a seek the queue continues at the new offset. No message of the old place comes any more."""
    with client.consumer("t", queue_ids=[0]) as consumer:
        take(consumer, 3)
        consumer.seek(("t", 0), 7)
        assert take(consumer, 3) == {0: [7, 8, 9]}
        consumer.seek(("t", 0), 3)
        assert take(consumer, 2) == {0: [3, 4]}
        for queue in (("t", 9), ("u", 0), "t", 0):
            with pytest.raises(KeyError):
                consumer.seek(queue, 0)


def test_close_ends_the_iteration(client: reput_client.Client) -> None:
    """Closing from another thread ends a loop that waits."""
    consumer = client.consumer("t", queue_ids=[2])
    threading.Timer(0.2, consumer.close).start()
    assert list(consumer) == []
    assert consumer.poll() is None


def test_heartbeats_do_not_prolong_a_poll(store: Store, client: reput_client.Client) -> None:
    """A time-out is counted from the call, and answers without messages do not extend it."""
    store.heartbeat_s = 0.1
    with client.consumer("t", queue_ids=[2]) as consumer:
        assert consumer.poll(0.4) is None


def test_a_lasting_failure_is_raised(store: Store, client: reput_client.Client) -> None:
    """A stream that the server refuses for good raises its error where messages are awaited."""
    store.error = status(grpc.StatusCode.INVALID_ARGUMENT, "BAD_TOPIC_NAME", field="topic")
    with client.consumer("t", queue_ids=[0]) as consumer:
        with pytest.raises(reput_client.InvalidArgumentError):
            consumer.poll(LIMIT_S)
        store.error = None
        assert take_through_errors(consumer, 2) == [2, 3]


def take_through_errors(consumer: reput_client.Consumer, count: int) -> list[int]:
    """Queue offsets of the next messages, from a consumer that continues after an error."""
    taken: list[int] = []
    while len(taken) < count:
        with contextlib.suppress(reput_client.InvalidArgumentError):
            message = consumer.poll(LIMIT_S)
            assert message is not None
            taken.append(message.queue_offset)
    return taken


@pytest.mark.parametrize("is_async", [False, True])
async def test_the_next_indexer(store: Store, target: str, is_async: bool) -> None:
    """A stream that finds no server at the first address is opened at the next address, as calls are."""
    names = {"commitlog": target, "indexer": f"127.0.0.1:{free_port()},{target}", "retry": QUICK}
    if is_async:
        async with aio.connect(**names) as other, other.consumer("t", queue_ids=[0]) as consumer:
            other._channels._routes["indexer"].target = names["indexer"].partition(",")[0]  # as after a restart there
            assert (await consumer.poll(LIMIT_S)).queue_offset == 2
    else:
        with reput_client.connect(**names) as client:
            client.topics.get("t")
            with client.consumer("t", queue_ids=[0], start=1_700_000_000_007) as consumer:
                assert consumer.poll(LIMIT_S).queue_offset == 6


async def test_async_consumer(store: Store, target: str) -> None:
    """The asyncio consumer reads, resumes, seeks and commits in the same way."""
    store.pairs_per_stream = 2
    store.committed = {1: 7}
    async with aio.connect(commitlog=target, indexer=target, retry=QUICK) as client:
        consumer = client.consumer("t", group="g", queue_ids=[0, 1])
        taken = [await consumer.poll(LIMIT_S) for _ in range(8)]
        assert [message.queue_offset for message in taken] == list(range(2, 10))
        await consumer.commit()
        assert store.committed == {0: 10, 1: 7}
        await consumer.seek(("t", 0), 9)
        message = await consumer.poll(LIMIT_S)
        assert message.queue_offset == 9
        assert await consumer.poll(0.2) is None
        assert await consumer.positions() == {("t", 0): 10, ("t", 1): 7}
        store.error = status(grpc.StatusCode.INVALID_ARGUMENT, "BAD_TOPIC_NAME", field="topic")
        await consumer.seek(("t", 0), 1)
        with pytest.raises(reput_client.InvalidArgumentError):
            await consumer.poll(LIMIT_S)
        store.error = None
        while True:
            with contextlib.suppress(reput_client.InvalidArgumentError):
                message = await consumer.poll(LIMIT_S)
                break
        assert message.queue_offset == 1
        await consumer.close()
        assert [message.queue_offset async for message in consumer] in ([2], [])  # in the answer of message 1
