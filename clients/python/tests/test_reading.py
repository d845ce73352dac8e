# SPDX-License-Identifier: Apache-2.0
"""Every way to read messages, from servers that know records and from others, with the compiled part and without."""

import threading
from collections.abc import Iterator
from typing import Any

import grpc
import pytest
import reput_client
from reput.commitlog.v1 import topic_service_pb2
from reput.indexer.v1 import query_service_pb2 as queries
from reput.indexer.v1 import queue_service_pb2 as queues
from reput_client import Message, ServerError, aio
from reput_client.core import speedups

from clients.python.tests import compiled
from clients.python.tests.support import LIMIT_S, Unary, serving
from tests.support.records import IPV6_BORN, encoded, stored_message

RECORDS = [
    encoded(100 * offset, **{"queue_offset": offset, "topic": "t", "crc_property": True, **changes})
    for offset, changes in enumerate(
        [{}, {"born_host": IPV6_BORN}, {"properties": b""}, {"body": b""}, {"sys_flag": 0x301}, {"flag": -7}]
    )
]
EXPECTED = [Message(stored_message(record, 0)) for record in RECORDS]
SETTINGS: dict[str, Any] = {"timeout_s": LIMIT_S}


class Indexer:
    """The records of a queue, in answers of two. It `knows` records or does not; `harm` is added to each record."""

    def __init__(self) -> None:
        self.knows, self.harm = True, b""
        self.wishes: list[tuple[str, bool]] = []
        self.sizes: list[int] = []
        self.stopping = threading.Event()

    def answer(self, kind: Any, request: Any, records: list[bytes], **fields: Any) -> Any:
        """An answer with these records in the form that was asked for."""
        self.wishes.append((type(request).__name__, request.wants_records))
        if request.wants_records and self.knows:
            made = kind(records=b"".join(one + self.harm for one in records), record_count=len(records), **fields)
        else:
            made = kind(messages=[stored_message(one, 0) for one in records], **fields)
        self.sizes.append(made.ByteSize())
        return made

    def pull(self, request: Any, context: grpc.ServicerContext) -> Any:
        first = request.queue_offset
        fields = {"status": 1, "next_queue_offset": first + 2, "max_queue_offset": len(RECORDS)}
        return self.answer(queues.PullResponse, request, RECORDS[first : first + 2], **fields)

    def subscribe(self, request: Any, context: grpc.ServicerContext) -> Iterator[Any]:
        for first in range(request.queue_offset, len(RECORDS), 2):
            some, end = RECORDS[first : first + 2], min(first + 2, len(RECORDS))
            yield self.answer(queues.SubscribeResponse, request, some, status=1, next_queue_offset=end)
        while context.is_active() and not self.stopping.wait(0.05):
            pass

    def page(self, kind: Any, request: Any) -> Any:
        first = int(request.page_token or 0)
        token = str(first + 2) if first + 2 < len(RECORDS) else ""
        return self.answer(kind, request, RECORDS[first : first + 2], next_page_token=token)

    def many_keys(self, request: Any, context: grpc.ServicerContext) -> Any:
        found = self.answer(queries.KeyMatches, request, RECORDS[:2], next_page_token="2")
        return queries.QueryByKeysResponse(matches=[found, {}])

    def services(self) -> list[Unary]:
        topic = topic_service_pb2.GetTopicResponse(topic={"name": "t", "read_queue_count": 1})
        listed = queues.ListQueuesResponse(queues=[{"topic": "t", "max_queue_offset": len(RECORDS)}])
        return [
            Unary(
                "reput.indexer.v1.QueueService",
                streams={"Subscribe": (queues.SubscribeRequest, self.subscribe)},
                Pull=(queues.PullRequest, self.pull),
                ListQueues=(queues.ListQueuesRequest, lambda _, __: listed),
            ),
            Unary(
                "reput.indexer.v1.QueryService",
                QueryByKey=(
                    queries.QueryByKeyRequest,
                    lambda request, _: self.page(queries.QueryByKeyResponse, request),
                ),
                QueryByTime=(
                    queries.QueryByTimeRequest,
                    lambda request, _: self.page(queries.QueryByTimeResponse, request),
                ),
                QueryByKeys=(queries.QueryByKeysRequest, self.many_keys),
            ),
            Unary("reput.commitlog.v1.TopicService", GetTopic=(topic_service_pb2.GetTopicRequest, lambda _, __: topic)),
        ]


@pytest.fixture
def indexer() -> Iterator[Indexer]:
    made = Indexer()
    yield made
    made.stopping.set()


@pytest.fixture
def target(indexer: Indexer) -> Iterator[str]:
    with serving(*indexer.services()) as target:
        yield target


@pytest.fixture(params=["compiled", "plain"])
def has_part(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> bool:
    """Whether this installation has the compiled part for the time of a test."""
    is_compiled: bool = request.param == "compiled"
    monkeypatch.setattr(speedups, "RECORDS", compiled.part("_records") if is_compiled else None)
    return is_compiled


def poll_all(consumer: reput_client.Consumer) -> list[Message]:
    """All messages of the queue, in polls of a few."""
    found: list[Message] = []
    for count in (1, 2, 500, 500, 500):
        if len(found) < len(RECORDS):
            found += consumer.poll_many(count, timeout_s=LIMIT_S)
            assert consumer.positions() == {("t", 0): len(found)}
    return found


async def poll_all_async(consumer: aio.AsyncConsumer) -> list[Message]:
    """The same by the other door."""
    found: list[Message] = []
    while len(found) < len(RECORDS):
        found += await consumer.poll_many(3, timeout_s=LIMIT_S)
        assert await consumer.positions() == {("t", 0): len(found)}
    return found


@pytest.mark.parametrize("knows", [True, False])
def test_every_way(indexer: Indexer, target: str, has_part: bool, knows: bool) -> None:
    """Each way to read gives the same messages; requests ask for records exactly with the compiled part."""
    indexer.knows = knows
    with reput_client.connect(commitlog=target, indexer=target, **SETTINGS) as client:
        pulls = [client.queues.pull("t", 0, offset) for offset in range(0, len(RECORDS), 2)]
        assert [message for pull in pulls for message in pull.messages] == EXPECTED
        assert pulls[-1][2:] == (6, 0, 6)
        assert list(client.query.by_key("t", "order-1001")) == EXPECTED
        assert list(client.query.by_time("t")) == EXPECTED
        keys = list(client.query.by_keys("t", ["order-1001", "none"]))
        assert [one.messages for one in keys] == [EXPECTED, []]
        indexer.sizes.clear()
        with client.consumer("t") as consumer:
            assert poll_all(consumer) == EXPECTED
            metrics = consumer.metrics()
        assert metrics[:4] == (len(RECORDS), 3, sum(indexer.sizes), 0)
    assert {name for name, _ in indexer.wishes} == {
        *("PullRequest", "SubscribeRequest", "QueryByKeyRequest", "QueryByKeysRequest", "QueryByTimeRequest")
    }
    assert {wish for _, wish in indexer.wishes} == {has_part}


@pytest.mark.parametrize("knows", [True, False])
async def test_every_way_of_asyncio(indexer: Indexer, target: str, has_part: bool, knows: bool) -> None:
    """The same by the client of asyncio."""
    indexer.knows = knows
    async with aio.connect(commitlog=target, indexer=target, **SETTINGS) as client:
        assert (await client.queues.pull("t", 0, 2)).messages == EXPECTED[2:4]
        assert [message async for message in client.query.by_key("t", "order-1001")] == EXPECTED
        assert [message async for message in client.query.by_time("t")] == EXPECTED
        keys = [one async for one in client.query.by_keys("t", ["order-1001", "none"])]
        assert [one.messages for one in keys] == [EXPECTED, []]
        async with client.consumer("t") as consumer:
            assert await poll_all_async(consumer) == EXPECTED
    assert {wish for _, wish in indexer.wishes} == {has_part}


def test_records_that_are_not_sound(indexer: Indexer, target: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each way to read has the same clear error, and no message of such an answer; a later read works."""
    monkeypatch.setattr(speedups, "RECORDS", compiled.part("_records"))
    indexer.harm = b"\0"
    with reput_client.connect(commitlog=target, indexer=target, **SETTINGS) as client:
        reads = [
            lambda: client.queues.pull("t", 0, 0).messages,
            lambda: list(client.query.by_key("t", "k")),
            lambda: list(client.query.by_time("t")),
            lambda: list(client.query.by_keys("t", ["k", "none"])),
        ]
        for read in reads:
            with pytest.raises(ServerError, match=r"the server's answer makes no sense: .*record") as raised:
                read()
            assert raised.value.code is grpc.StatusCode.INTERNAL
        with client.consumer("t") as consumer:
            with pytest.raises(ServerError, match="makes no sense"):
                consumer.poll(LIMIT_S)
            assert consumer.positions() == {("t", 0): 0}
            indexer.harm = b""
            found: list[Message] = []
            while len(found) < len(RECORDS):
                try:
                    found += consumer.poll_many(timeout_s=LIMIT_S)
                except ServerError:  # of an answer that was on the way
                    assert found == []
            assert found == EXPECTED
        assert client.queues.pull("t", 0, 0).messages == EXPECTED[:2]


async def test_an_asyncio_consumer_of_records_that_are_not_sound(
    indexer: Indexer, target: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The error comes behind the messages before it, and the position is in front of the answer."""
    monkeypatch.setattr(speedups, "RECORDS", compiled.part("_records"))
    harmed = [*RECORDS[:2], RECORDS[2][:4] + bytes(4) + RECORDS[2][8:], *RECORDS[3:]]
    monkeypatch.setattr(f"{__name__}.RECORDS", harmed)
    async with aio.connect(commitlog=target, indexer=target, **SETTINGS) as client, client.consumer("t") as consumer:
        assert await consumer.poll_many(2, LIMIT_S) == EXPECTED[:2]
        with pytest.raises(ServerError, match="record 0 of 2 is not sound"):
            await consumer.poll(LIMIT_S)
        assert await consumer.positions() == {("t", 0): 2}
        with pytest.raises(ServerError, match="record 0 of 2 is not sound"):
            await consumer.poll(LIMIT_S)
