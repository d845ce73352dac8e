# SPDX-License-Identifier: Apache-2.0
"""QueryByKeys: for each key the answer of QueryByKey, in as many calls as the answers need."""

import dataclasses
import random

import numpy as np
import pytest
from numpy.typing import NDArray
from reput.common.v1.message_pb2 import StoredMessage
from reput.indexer.v1.query_service_pb2 import (
    KeyMatches,
    QueryByKeyRequest,
    QueryByKeyResponse,
    QueryByKeysRequest,
    QueryByKeysResponse,
)

from libs.machine.testing.memory_fs import MemoryFs
from libs.requests.errors import BadArgument, RecordDamaged, TopicNotFound
from services.indexer.engine.answer import many_keys
from services.indexer.engine.indexer import Indexer
from services.indexer.engine.log.source import RecordBlock
from services.indexer.errors import NotARecord
from services.indexer.rpc.query_servicer import KEY_COUNT_MAX, QueryServicer
from tests.support.fake_log import START_TIME_MS, FakeLog
from tests.support.indexer import SMALL, feed, make_indexer


def random_log(seed: int) -> FakeLog:
    """Messages of two topics with up to three of a few keys, of which some have the same hash."""
    log, chance = FakeLog(), random.Random(seed)
    names = ["Aa", "BB", "k1", "k2", "k3", "имя"]
    for number in range(150):
        keys = " ".join(chance.choice(names) for _ in range(chance.randrange(4)))
        log.append(chance.choice("TU"), chance.randrange(3), keys=keys, unique_id=f"U{number}", body=b"x" * 50)
    return log


def served(log: FakeLog, **changes: int) -> tuple[QueryServicer, Indexer]:
    indexer = make_indexer(log, MemoryFs(), dataclasses.replace(SMALL, **changes))  # type: ignore[arg-type]
    feed(indexer, log)
    return QueryServicer(indexer.answers), indexer


async def ask(servicer: QueryServicer, keys: list[str], **fields: object) -> tuple[list[KeyMatches], int]:
    """What is known of each key, over as many calls as are needed, and the number of calls."""
    found: list[KeyMatches] = []
    count = 0
    while len(found) < len(keys):
        request = QueryByKeysRequest(topic="T", keys=keys[len(found) :], **fields)  # type: ignore[arg-type]
        answer = QueryByKeysResponse.FromString(await servicer.QueryByKeys(request, None))
        assert 0 < len(answer.matches) <= len(request.keys)
        assert answer.indexed_physical_offset > 0
        found += answer.matches
        count += 1
    return found, count


async def alone(servicer: QueryServicer, key: str, **fields: object) -> QueryByKeyResponse:
    """The first page of QueryByKey."""
    request = QueryByKeyRequest(topic="T", key=key, **fields)  # type: ignore[arg-type]
    return QueryByKeyResponse.FromString(await servicer.QueryByKey(request, None))


@pytest.mark.parametrize("seed", range(12))
async def test_each_key_has_the_answer_of_a_query_for_it_alone(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Messages, order and token of each key are QueryByKey's, with any number of matches, times, pages and filters."""
    chance = random.Random(seed)
    monkeypatch.setattr(many_keys, "ROOM", chance.choice((1, 8, 64)))
    monkeypatch.setattr(many_keys, "KEY_COUNT_OF_A_STEP", chance.choice((1, 3, 256)))
    monkeypatch.setattr(many_keys, "SINGLE_KEY_COUNT_MAX", chance.choice((1, 64)))
    servicer, _ = served(random_log(seed), query_size_bytes_max=chance.choice((1 << 10, 1 << 20)))
    keys = ["Aa", "none", "k1", "BB", "k1", "имя", *(f"U{chance.randrange(160)}" for _ in range(20)), "k2", "k3"]
    chance.shuffle(keys)
    begin_s = START_TIME_MS // 1000 + chance.randrange(100)
    fields: dict[str, object] = {"page_size": chance.choice((0, 1, 3))}
    if seed % 2:
        fields |= {"start_time": {"seconds": begin_s}, "end_time": {"seconds": begin_s + 40}}
    if seed % 3 == 0:
        fields["where"] = "KEYS IS NOT NULL AND KEYS <> 'k1'"
    found, _ = await ask(servicer, keys, **fields)
    for key, matches in zip(keys, found, strict=True):
        expected = await alone(servicer, key, **fields)
        assert list(matches.messages) == list(expected.messages)
        assert matches.next_page_token == expected.next_page_token
        assert not matches.error_reason


async def test_the_records_as_the_log_stores_them() -> None:
    """With `wants_records` each key has the records of QueryByKey."""
    servicer, _ = served(random_log(1))
    (found, *others), _ = await ask(servicer, ["k1", "none", "U3"], wants_records=True)
    expected = await alone(servicer, "k1", wants_records=True)
    assert (found.records, found.record_count) == (expected.records, expected.record_count)
    assert found.record_count > 0
    assert [other.record_count for other in others] == [0, (await alone(servicer, "U3")).ByteSize() > 9]
    assert not found.messages


async def test_answers_are_bounded() -> None:
    """An answer ends before the key whose records do not fit; a single key always has its page."""
    log = FakeLog()
    for number in range(10):
        log.append("T", keys=f"k{number}", body=b"x" * 400)
    servicer, _ = served(log, query_size_bytes_max=1024)
    found, count = await ask(servicer, [f"k{number}" for number in range(10)])
    assert [len(matches.messages) for matches in found] == [1] * 10
    assert count == 5


@pytest.mark.parametrize("record_count", [1, 6])
async def test_what_is_read_for_an_answer_is_bounded(record_count: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of keys with large records a call reads little more than an answer holds, however many keys are asked for."""
    log = FakeLog()
    for number in range(60):
        for _ in range(record_count):
            log.append("T", keys=f"k{number}", body=bytes(10_000))
    servicer, indexer = served(log, query_size_bytes_max=30_000)
    records, read_bytes = indexer.answers.damage, [0]
    read = records.read

    async def counted(offsets: NDArray[np.int64], sizes: NDArray[np.int32] | None = None) -> RecordBlock:
        block = await read(offsets[:2], sizes)  # as an answer of the log is bounded
        read_bytes[0] += len(block.records)
        return block

    monkeypatch.setattr(records, "read", counted)
    keys, found = [f"k{number}" for number in range(60)], list[KeyMatches]()
    while len(found) < len(keys):
        request, read_bytes[0] = QueryByKeysRequest(topic="T", keys=keys[len(found) :]), 0
        answer = QueryByKeysResponse.FromString(await servicer.QueryByKeys(request, None))
        assert read_bytes[0] <= 200_000
        found += answer.matches
    for key, matches in zip(keys, found, strict=True):
        expected = await alone(servicer, key)
        assert list(matches.messages) == list(expected.messages)
        assert matches.next_page_token == expected.next_page_token


async def test_not_found_and_not_readable_differ(monkeypatch: pytest.MonkeyPatch) -> None:
    """A key whose record is damaged has an error, a key without messages has nothing, and the others their messages."""
    log = random_log(2)
    servicer, indexer = served(log)
    (bad, gone, *_) = [made for made in log.records if made.topic == "T"]
    names = [next(f"U{number}" for number, one in enumerate(log.records) if one is made) for made in (bad, gone)]
    records = indexer.answers.damage
    read = records.read

    async def failing(offsets: object, sizes: object = None) -> RecordBlock:
        if bad.physical_offset in offsets.tolist():  # type: ignore[attr-defined]
            raise RecordDamaged(segment="0", position=7, reason="bad bytes " + "é" * 600)
        if gone.physical_offset in offsets.tolist():  # type: ignore[attr-defined]
            raise NotARecord(gone.physical_offset)
        return await read(offsets, sizes)  # type: ignore[arg-type]

    monkeypatch.setattr(records, "read", failing)
    healthy = next(f"U{n}" for n, one in enumerate(log.records) if one.topic == "T" and one not in (bad, gone))
    found, _ = await ask(servicer, ["none", names[0], healthy, names[1]])
    assert [matches.error_reason for matches in found] == ["", "RECORD_DAMAGED", "", "NOT_A_RECORD"]
    assert [len(matches.messages) for matches in found] == [0, 0, 1, 0]
    assert "bad bytes" in found[1].error_text
    assert len(found[1].error_text.encode()) <= 600


async def test_a_topic_that_does_not_exist() -> None:
    """Keys of a topic that was never made are refused; a key of no message in a topic is not found."""
    servicer, _ = served(random_log(3))
    assert (await ask(servicer, ["none"]))[0] == [KeyMatches()]
    with pytest.raises(TopicNotFound):
        await servicer.QueryByKeys(QueryByKeysRequest(topic="nowhere", keys=["a", "b"]), None)


@pytest.mark.parametrize(
    ("keys", "field"),
    [([], "keys"), (["k"] * (KEY_COUNT_MAX + 1), "keys"), (["a", ""], "keys[1]"), (["a b"], "keys[0]"),
     (["k" * 32_768], "keys[0]")],
)  # fmt: skip
async def test_keys_that_are_none(keys: list[str], field: str) -> None:
    """Too many keys, none, and texts that are no key are refused, with the field that is at fault."""
    servicer, _ = served(random_log(3))
    with pytest.raises(BadArgument) as caught:
        await servicer.QueryByKeys(QueryByKeysRequest(topic="T", keys=keys), None)
    assert caught.value.field == field


async def test_as_many_keys_as_a_request_may_have() -> None:
    """The largest request is answered in full, and each of its messages once."""
    log = FakeLog()
    for number in range(KEY_COUNT_MAX):
        log.append("T", number % 4, keys=f"order-{number}")
    servicer, _ = served(log, index_entry_capacity=300)
    found, _ = await ask(servicer, [f"order-{number}" for number in range(KEY_COUNT_MAX)])
    stored: list[StoredMessage] = [message for matches in found for message in matches.messages]
    assert [message.physical_offset for message in stored] == [made.physical_offset for made in log.records]
