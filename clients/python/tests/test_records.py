# SPDX-License-Identifier: Apache-2.0
"""Answers with records: the same messages as of answers with messages, and a clear error for all that is not sound."""

import copy
import gc
import json
import pickle
import random
import sys
from array import array
from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import pytest
from google.protobuf.json_format import ParseDict
from google.protobuf.message import DecodeError
from hypothesis import example, given, settings
from hypothesis import strategies as st
from reput.commitlog.v1.log_service_pb2 import StreamRecordsResponse
from reput.common.v1.message_pb2 import StoredMessage
from reput.indexer.v1.query_service_pb2 import QueryByKeyResponse, QueryByTimeResponse
from reput.indexer.v1.queue_service_pb2 import PullResponse, SubscribeResponse
from reput_client import Message, ReputError, ServerError
from reput_client.core import speedups
from reput_client.core.answers import pulled
from reput_client.core.records import RecordsAnswer, count_in, messages_in, parser_of

from clients.python.tests import compiled
from libs.kernel.answer.encode_cy import encode_messages
from tests.clients import records as cases
from tests.support.records import IPV6_BORN, IPV6_STORE, encoded, stored_message

ACCEPTED = json.loads(cases.FILE.read_text())["accepted"]
REFUSED = json.loads(cases.FILE.read_text())["refused"]
SHOWN = [name for name in dir(Message) if not name.startswith("_") and name not in ("inflate", "body")]
KINDS = (PullResponse, SubscribeResponse, QueryByKeyResponse, QueryByTimeResponse)


@pytest.fixture(autouse=True)
def reader(monkeypatch: pytest.MonkeyPatch) -> speedups.Records:
    """The compiled part, which this installation has for the time of a test."""
    module: speedups.Records = compiled.part("_records")
    monkeypatch.setattr(speedups, "RECORDS", module)
    return module


def read(records: bytes, count: int, kind: Any = PullResponse) -> list[Message]:
    """The messages of an answer, from the bytes that the server sends."""
    data = kind(records=records, record_count=count).SerializeToString()
    return messages_in(parser_of(kind)(data))


def shown(message: Message) -> dict[str, object]:
    """All that a program can read of a message, the body or its error included."""
    try:
        body: object = message.body
    except ReputError as error:
        body = type(error), str(error)
    return {**{name: getattr(message, name) for name in SHOWN}, "body": body, "repr": repr(message)}


def assert_same(found: list[Message], expected: list[StoredMessage]) -> None:
    """The messages of records are equal to these messages, each field, in both directions."""
    plain = [Message(raw) for raw in expected]
    assert [shown(message) for message in found] == [shown(message) for message in plain]
    assert found == plain
    assert plain == found
    assert [hash(message) for message in found] == [hash(message) for message in plain]
    for message, other in pairwise(found):
        assert (message == other) is (shown(message) == shown(other))


@pytest.mark.parametrize("case", ACCEPTED, ids=lambda case: case["name"])
@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_the_cases_of_all_clients(case: dict[str, Any], kind: Any) -> None:
    """Each accepted case of tests/clients/records.json gives its messages, in each kind of answer."""
    expected = [ParseDict(message, StoredMessage()) for message in case["messages"]]
    for message, one in zip(expected, case["messages"], strict=True):
        message.body, message.raw_properties = bytes.fromhex(one["body"]), bytes.fromhex(one["rawProperties"])
        for host, name in ((message.born_host, "bornHost"), (message.store_host, "storeHost")):
            host.address = bytes.fromhex(one[name]["address"])
    assert_same(read(bytes.fromhex(case["records"]), case["record_count"], kind), expected)


@pytest.mark.parametrize("case", REFUSED, ids=lambda case: case["name"])
def test_the_refused_cases_of_all_clients(case: dict[str, Any]) -> None:
    """Each refused case is an error, and no message."""
    with pytest.raises(ServerError, match="the server's answer makes no sense: "):
        read(bytes.fromhex(case["records"]), case["record_count"])


TEXT = st.text(max_size=12)
PROPERTIES = st.one_of(
    st.binary(max_size=60),
    st.lists(st.tuples(st.sampled_from(["TAGS", "KEYS", "UNIQ_KEY", "__CRC32#", "名", ""]), TEXT), max_size=6).map(
        lambda pairs: "".join(f"{name}\x01{value}\x02" for name, value in pairs).encode()
    ),
    st.text(alphabet="aé\x01\x02😀", max_size=40).map(str.encode),
)
INT32, INT64 = st.integers(-(2**31), 2**31 - 1), st.integers(-(2**63), 2**63 - 1)
RECORD = st.builds(
    lambda place, changes: encoded(place, **changes),
    st.integers(0, 2**62),
    st.fixed_dictionaries(
        {
            "topic": st.one_of(
                st.sampled_from(["orders", "orders", "t" * 127, "订单"]), st.text(min_size=1, max_size=9)
            ),
            "body": st.one_of(st.binary(max_size=200), st.sampled_from([b"", bytes(20_000)])),
            "properties": PROPERTIES,
            "version": st.sampled_from([1, 1, 1, 2]),
        },
        optional={
            "born_host": st.just(IPV6_BORN),
            "store_host": st.just(IPV6_STORE),
            "queue_id": INT32,
            "flag": INT32,
            "sys_flag": INT32.map(lambda flag: flag & ~0x30),
            "reconsume_times": INT32,
            "queue_offset": INT64,
            "born_time_ms": INT64,
            "store_time_ms": INT64,
            "prepared_transaction_offset": INT64,
            "crc_property": st.booleans(),
        },
    ),
)


@settings(max_examples=400)
@given(made=st.lists(RECORD, max_size=5))
def test_any_records(made: list[bytes]) -> None:
    """Records with any fields give the messages that the server would have sent in their place."""
    data = b"".join(made)
    starts = [sum(map(len, made[:index])) for index in range(len(made))]
    assert_same(read(data, len(made)), [stored_message(data, start) for start in starts])


def harmed(chance: random.Random, good: bytes) -> bytes:
    """A copy with some wrong bytes, most of them in the numbers of a record, or cut, or with more behind it."""
    data = bytearray(good)
    for _ in range(chance.choice((0, 1, 1, 2, 4))):
        number_at = chance.choice((0, 0, 4, 36, 84, len(data) - 40)) + chance.randrange(8)
        at = number_at if chance.random() < 0.7 and number_at < len(data) else chance.randrange(len(data))
        data[at] = chance.randrange(256)
    end = chance.choice((len(data), len(data), chance.randrange(len(data) + 1)))
    return bytes(data[:end] + good[: chance.choice((0, 0, 91))])


def of_kernel(data: bytes, count: int) -> list[StoredMessage] | None:
    """What the server's kernel makes of the same bytes, None unless it takes them as `count` records."""
    starts, sizes, at = array("q"), array("i"), 0
    while at + 4 <= len(data):
        size = int.from_bytes(data[at : at + 4], signed=True)
        starts.append(at)
        sizes.append(size)
        at += max(size, 1)
    if at != len(data) or len(sizes) != count:
        return None
    try:
        return list(PullResponse.FromString(encode_messages(data, starts, sizes, count, 2)).messages)
    except ValueError:
        return None


def test_harmed_records() -> None:
    """Whatever bytes change, records are read exactly if the server's kernel takes them, and to the same messages."""
    chance = random.Random(7)
    accepted_count = 0
    for _ in range(6_000):
        case = chance.choice(ACCEPTED)
        count = case["record_count"]
        data = harmed(chance, bytes.fromhex(case["records"]))
        expected = of_kernel(data, count)
        if expected is None:
            with pytest.raises(ServerError, match="makes no sense"):
                read(data, count)
        else:
            accepted_count += 1
            assert_same(read(data, count), expected)
    assert 500 < accepted_count < 5_500


PIECES = [
    *(b"\x08\x01", b"\x18\x80\x01", b"\x38\x01", b"\x80\x01\x05", b"\x2a\x02ab", b"\x12\x00", b"\x12\x02\x0a\x00"),
    *(b"\x32\x03abc", b"\x32\x00", b"\x32\x83\x00abc", b"\xb2\x80\x00\x03abc", b"\xb2\x80\x80\x80\x80\x00\x01a"),
    *(b"\x32\x05abc", b"\x32\xff\xff\xff\xff\x0f", b"\x32\x83\x80\x80\x80\x80\x00abc", b"\x32", b"\x08", b"\xff"),
    *(
        b"\x79" + bytes(8),
        b"\x7d" + bytes(4),
        b"\x7b\x7c",
        b"\x7b",
        b"\x07",
        b"\x00\x00",
        b"\x08" + b"\xff" * 9 + b"\x01",
    ),
]
"""Fields of an answer and of others, several of them in more bytes than they need, or not whole."""
FIELDS = st.lists(st.sampled_from(PIECES), max_size=6).map(b"".join)


@settings(max_examples=1_500)
@given(data=st.one_of(FIELDS, st.binary(max_size=40)), kind=st.sampled_from(KINDS))
@example(data=b"\x32\x03abc\x32\x00", kind=PullResponse)
def test_any_bytes_as_an_answer(data: bytes, kind: Any) -> None:
    """Any bytes give the fields, or the error, that protobuf's own parser gives."""
    try:
        expected: Any = kind.FromString(data)
    except DecodeError:
        with pytest.raises(DecodeError):
            parser_of(kind)(data)
        return
    found = parser_of(kind)(data)
    if isinstance(found, RecordsAnswer):
        assert found.data[found.start : found.end] == found.records == expected.records
        assert found.ByteSize() == len(data)
        expected.ClearField("records")
        found = found.rest
    assert found == expected


def test_records_stay_where_they_are() -> None:
    """The records of an answer of the server are no copy, and its other fields are as without them."""
    records = encoded(7) * 2
    fields = {"status": 1, "next_queue_offset": 9, "min_queue_offset": 1, "max_queue_offset": 12}
    data = PullResponse(**fields, records=records, record_count=2).SerializeToString()
    answer = parser_of(PullResponse)(data)
    assert isinstance(answer, RecordsAnswer)
    assert answer.data is data
    assert count_in(answer) == 2
    whole = PullResponse(**fields, messages=[stored_message(records, 0)] * 2)
    assert pulled(answer) == pulled(whole)
    assert count_in(whole) == 2


def test_the_bytes_of_the_log() -> None:
    """An answer with a part of the log (`raw_records`) has the bytes that the server sent."""
    sent = StreamRecordsResponse(end_physical_offset=9, record_count=1, records=encoded(7))
    answer = parser_of(StreamRecordsResponse)(sent.SerializeToString())
    assert (answer.records, answer.record_count, answer.end_physical_offset) == (encoded(7), 1, 9)


def test_topics_that_are_not_text() -> None:
    """A topic that is not UTF-8 is refused with the whole answer; no server sends it."""
    good = encoded(7)
    with pytest.raises(ServerError, match=r"record 1 of 2 is not sound: its topic is not UTF-8"):
        read(good + good.replace(b"TopicTest", b"TopicTes\xff"), 2)


def test_an_old_server(reader: speedups.Records) -> None:
    """An answer with messages is read as before, also if it has both forms."""
    stored = stored_message(encoded(7), 0)
    for answer in (PullResponse(messages=[stored]), PullResponse(messages=[stored], records=b"x", record_count=3)):
        assert messages_in(parser_of(PullResponse)(answer.SerializeToString())) == [Message(stored)]
    assert messages_in(parser_of(PullResponse)(b"")) == []
    assert count_in(PullResponse()) == 0


def test_without_the_compiled_part(monkeypatch: pytest.MonkeyPatch) -> None:
    """Records that were not asked for are an error."""
    monkeypatch.setattr(speedups, "RECORDS", None)
    with pytest.raises(ServerError, match="not asked for"):
        read(encoded(7), 1)


def test_copies_and_pickles() -> None:
    """A message can be copied and pickled, also for an installation without the compiled part."""
    for name in cases.SHAPES:
        (message,) = read(cases.records_of(name), 1)
        for made in (copy.copy(message), copy.deepcopy(message), pickle.loads(pickle.dumps(message))):
            assert made == message
            assert shown(made) == shown(message)
        assert b"speedups" not in pickle.dumps(message)


def test_other_values_are_not_equal() -> None:
    """A message equals only messages, and only with all fields equal."""
    first, second = read(encoded(7) + encoded(7, queue_offset=8), 2)
    assert first != second
    assert first != "message"
    assert len({first, second, *read(encoded(7), 1)}) == 2


@pytest.fixture
def gone() -> Iterator[None]:
    """Collects garbage before and behind."""
    gc.collect()
    yield
    gc.collect()


def test_memory(gone: None, reader: speedups.Records) -> None:
    """A kept message keeps its answer; after the last message nothing is left of it, also behind an error."""
    data = encoded(7) * 50 + b"\0"
    start = sys.getrefcount(data), sys.getrefcount(Message)
    messages = reader.messages_of(data, 0, len(data) - 1, 50, Message)
    for message in messages:
        assert message.properties == {"TAGS": "TagA", "KEYS": "order-1001"}
    kept = messages[30]
    del messages, message
    assert kept.body == b"a body of some thirty-odd ASCII bytes"
    assert sys.getrefcount(data) == start[0] + 1
    del kept
    with pytest.raises(ValueError, match="1 bytes lie behind the last of 50"):
        reader.messages_of(data, 0, len(data), 50, Message)
    with pytest.raises(ValueError, match=r"record 50 of 51 is not sound"):
        reader.messages_of(data, 0, len(data), 51, Message)
    assert (sys.getrefcount(data), sys.getrefcount(Message)) == start
