# SPDX-License-Identifier: Apache-2.0
"""A request may want records: then an answer has the same messages, as the records that the log stores."""

import random
from collections.abc import AsyncIterator, Callable, Coroutine
from typing import Any

import pytest
from google.protobuf.timestamp_pb2 import Timestamp
from reput.common.v1.message_pb2 import StoredMessage
from reput.indexer.v1 import query_service_pb2 as query
from reput.indexer.v1 import queue_service_pb2 as queue

from libs.formats.records import record
from libs.requests.errors import RecordDamaged
from services.indexer.engine.indexer import Indexer
from services.indexer.rpc.query_servicer import QueryServicer
from services.indexer.rpc.queue_servicer import QueueServicer
from tests.support.fake_log import FakeLog, properties_text
from tests.support.indexer import feed, make_indexer
from tests.support.records import IPV6_BORN, IPV6_STORE, stored_message

Ask = Callable[[Any], Coroutine[None, None, Any]]

SHAPES: tuple[dict[str, Any], ...] = (
    {},
    {"body": b""},
    {"born_host": IPV6_BORN},
    {"store_host": IPV6_STORE, "version": 2},
    {"born_host": IPV6_BORN, "store_host": IPV6_STORE, "flag": -1, "reconsume_times": 3},
    {"sys_flag": 0x101, "body": bytes(range(256))},
    {"sys_flag": record.TRANSACTION_COMMIT, "prepared_transaction_offset": 77},
    {"properties": b"TAGS\x01A\x02KEYS\x01k\x02x\x01\xff\x02"},
    {"properties": b"KEYS\x01k\x02A\x01b\x01c\x02no value\x01\x02TAGS\x01A\x02TAGS\x01B"},
)


def filled(chance: random.Random, count: int) -> tuple[Indexer, FakeLog]:
    """An Indexer over a log of random records of two topics."""
    log = FakeLog()
    for number in range(count):
        shape = chance.choice(SHAPES)
        properties = properties_text(chance.choice(("A", "B", "")), "k", f"ID-{number}", price=str(number))
        topic, queue_id = chance.choice(("T", "T", "other")), chance.randrange(2)
        body = chance.randbytes(chance.randrange(300))
        log.append(topic, queue_id, **{"body": body, "properties": properties, **shape})
    indexer = make_indexer(log)
    feed(indexer, log)
    return indexer, log


def messages_in(answer: Any) -> list[StoredMessage]:
    """The messages of an answer in either form, of which it has only one."""
    found, at = list(answer.messages), 0
    assert not found or not answer.record_count
    while at < len(answer.records):
        found.append(stored_message(answer.records, at))
        at += found[-1].record_size_bytes
    assert at == len(answer.records)
    assert bool(answer.record_count) == bool(answer.records)
    assert answer.record_count in (0, len(found))
    return found


def without_messages(answer: Any) -> Any:
    """The other fields of an answer."""
    for name in ("messages", "records", "record_count"):
        answer.ClearField(name)
    return answer


async def same(ask: Ask, request: Any) -> list[StoredMessage]:
    """Ask in both forms, and return the messages, which must be the same as all other fields must."""
    request.wants_records = False
    plain = await ask(request)
    request.wants_records = True
    raw = await ask(request)
    assert not plain.records
    assert not raw.messages
    found = messages_in(plain)
    assert messages_in(raw) == found
    assert without_messages(plain) == without_messages(raw)
    return found


def asks(indexer: Indexer) -> dict[str, Ask]:
    """The four calls, each with its answer parsed. Of Subscribe it is the first answer."""
    queues, queries = QueueServicer(indexer.answers, stream_count_max=10), QueryServicer(indexer.answers)

    async def pull(request: queue.PullRequest) -> queue.PullResponse:
        return queue.PullResponse.FromString(await queues.Pull(request, None))

    async def subscribe(request: queue.SubscribeRequest) -> queue.SubscribeResponse:
        stream: AsyncIterator[bytes] = queues.Subscribe(request, None)
        async for answer in stream:
            return queue.SubscribeResponse.FromString(answer)
        raise AssertionError

    async def by_key(request: query.QueryByKeyRequest) -> query.QueryByKeyResponse:
        return query.QueryByKeyResponse.FromString(await queries.QueryByKey(request, None))

    async def by_time(request: query.QueryByTimeRequest) -> query.QueryByTimeResponse:
        return query.QueryByTimeResponse.FromString(await queries.QueryByTime(request, None))

    return {"pull": pull, "subscribe": subscribe, "by_key": by_key, "by_time": by_time}


async def test_both_forms_have_the_same_messages(chance: random.Random) -> None:
    """Random logs, places, limits and filters: the same messages, next offsets and tokens."""
    indexer, _ = filled(chance, 300)
    ask = asks(indexer)
    seen = 0
    for _ in range(60):
        narrowed = {"where": chance.choice(("", "", "price > 100 AND price < 250"))}
        tagged = {"tag_expression": chance.choice(("", "A", "B || A")), **narrowed}
        bounds = {"message_count_max": chance.randrange(60), "size_bytes_max": chance.choice((0, 1, 700, 9_000))}
        place = {"topic": chance.choice(("T", "other")), "queue_id": chance.randrange(2)}
        request = {**place, "queue_offset": chance.randrange(60), **bounds, **tagged}
        pulled = await same(ask["pull"], queue.PullRequest(**request))
        # The first answer of a subscription without messages comes only after a while.
        streamed = await same(ask["subscribe"], queue.SubscribeRequest(**request)) if pulled else []
        seen += len(pulled) + len(streamed)
        for found in (pulled, streamed):
            assert sum(one.record_size_bytes for one in found[1:]) <= (bounds["size_bytes_max"] or 1 << 20)
    for page_size in (1, 7, 200):
        request = query.QueryByKeyRequest(topic="T", key="k", page_size=page_size, where="price < 200")
        seen += len(await same(ask["by_key"], request))
        request = query.QueryByTimeRequest(topic="T", page_size=page_size, start_time=Timestamp(seconds=1))
        seen += len(await same(ask["by_time"], request))
    assert seen > 300


async def test_pages_of_both_forms_continue_each_other(chance: random.Random) -> None:
    """A page of one form continues a page of the other."""
    indexer, log = filled(chance, 40)
    ask = asks(indexer)["by_time"]
    found: list[StoredMessage] = []
    request = query.QueryByTimeRequest(topic="T", page_size=3)
    for number in range(40):
        request.wants_records = number % 2 == 0
        answer = await ask(request)
        found += messages_in(answer)
        request.page_token = answer.next_page_token
        if not request.page_token:
            break
    assert [one.physical_offset for one in sorted(found, key=lambda one: one.physical_offset)] == [
        one.physical_offset for one in log.records if one.topic == "T"
    ]


async def test_a_damaged_record_never_reaches_a_caller() -> None:
    """An answer ends before a record that can't be read, and one that would begin with it fails, in both forms."""
    log = FakeLog()
    for _ in range(4):
        log.append(keys="k")
    indexer = make_indexer(log)
    feed(indexer, log)
    log.damaged.add(log.records[2].physical_offset)
    pull = asks(indexer)["pull"]
    assert len(await same(pull, queue.PullRequest(topic="T"))) == 2
    for wants_records in (False, True):
        with pytest.raises(RecordDamaged):
            await pull(queue.PullRequest(topic="T", queue_offset=2, wants_records=wants_records))


async def test_a_topic_that_is_no_text_is_refused_in_both_forms() -> None:
    """A record whose lengths agree, but whose topic is not UTF-8, is no message."""
    log = FakeLog()
    made = log.append()
    indexer = make_indexer(log)
    feed(indexer, log)
    at = log.data.index(b"\x01T", made.physical_offset) + 1
    log.data[at] = 0xFF
    for wants_records in (False, True):
        with pytest.raises(RecordDamaged, match="no whole record"):
            await asks(indexer)["pull"](queue.PullRequest(topic="T", wants_records=wants_records))


async def test_messages_of_a_deleted_topic_are_in_neither_form() -> None:
    """Only messages from behind the deletion are there."""
    log = FakeLog()
    log.append(keys="k", body=b"old")
    log.delete("T")
    log.append(keys="k", body=b"new")
    indexer = make_indexer(log)
    feed(indexer, log)
    await indexer.indexes.begin_topics(log.topic_begins)
    ask = asks(indexer)
    for kind, request in (
        ("pull", queue.PullRequest(topic="T", queue_offset=1)),
        ("by_key", query.QueryByKeyRequest(topic="T", key="k")),
        ("by_time", query.QueryByTimeRequest(topic="T")),
    ):
        assert [one.body for one in await same(ask[kind], request)] == [b"new"]


async def test_an_answer_without_messages_has_no_records() -> None:
    """A status alone."""
    indexer = make_indexer(FakeLog())
    answer = await asks(indexer)["pull"](queue.PullRequest(topic="T", wants_records=True))
    assert answer == queue.PullResponse(status=queue.PULL_STATUS_NO_MATCHED_LOGIC_QUEUE)
