# SPDX-License-Identifier: Apache-2.0
"""Encoded messages: chunks that are a request together, RocketMQ's property string, unique ids."""

import re
import time

import pytest
from reput.commitlog.v1.append_service_pb2 import AppendRequest
from reput_client import NewMessage
from reput_client.core.encode import Encoder, UniqueIds, request_end


@pytest.mark.parametrize("body_size", [0, 1, 20, 127, 128, 16_000, 20_000, 3_000_000])
def test_chunks_are_a_request(body_size: int) -> None:
    """Chunks of any size, in sequence and with the durability, are the bytes that protobuf would have written."""
    encoder = Encoder(makes_unique_ids=False)
    messages = [NewMessage("topic", bytes(body_size), queue_id=number, born_time_ms=5, flag=-7) for number in range(3)]
    data = b"".join(encoder.encode(message)[0] for message in messages) + request_end(2)
    request = AppendRequest.FromString(data)
    assert [len(message.body) for message in request.messages] == [body_size] * 3
    assert [message.queue_id for message in request.messages] == [0, 1, 2]
    assert (request.messages[0].topic, request.messages[0].flag, request.durability) == ("topic", -7, 2)


def test_absent_is_absent() -> None:
    """Without a queue id the store chooses: the field is not sent. The born time is now."""
    before_ms = time.time_ns() // 1_000_000
    chunk, unique_id = Encoder(makes_unique_ids=False).encode(NewMessage("t", b""))
    (message,) = AppendRequest.FromString(chunk).messages
    assert not message.HasField("queue_id")
    assert before_ms <= message.born_time_ms <= time.time_ns() // 1_000_000
    assert (message.property_string, unique_id) == (b"", "")


PROPERTIES = [
    (NewMessage("t", b"", tag="A"), b"TAGS\x01A\x02"),
    (NewMessage("t", b"", keys="k"), b"KEYS\x01k\x02"),
    (NewMessage("t", b"", keys=("k", "l")), b"KEYS\x01k l\x02"),
    (NewMessage("t", b"", sharding_key="s"), b"__SHARDINGKEY\x01s\x02"),
    (NewMessage("t", b"", properties={"a": "b\x01c"}), b"a\x01b\x01c\x02"),
    (NewMessage("t", b"", properties={"größe": "ü"}), "größe\x01ü\x02".encode()),
    (NewMessage("t", b"", delay_level=3), b"DELAY\x013\x02"),
    (NewMessage("t", b"", deliver_at=1_700_000_000_123), b"TIMER_DELIVER_MS\x011700000000123\x02"),
    (NewMessage("t", b"", delay_s=1.5), b"TIMER_DELAY_MS\x011500\x02"),
    (NewMessage("t", b"", delay_s=0), b"TIMER_DELAY_MS\x010\x02"),
    (NewMessage("t", b"", properties={"DELAY": "1"}), b"DELAY\x011\x02"),
    (NewMessage("t", b"", unique_id="U"), b"UNIQ_KEY\x01U\x02"),
    (NewMessage("t", b"", unique_id="U", properties={"UNIQ_KEY": "U"}), b"UNIQ_KEY\x01U\x02"),
    (NewMessage("t", b"", property_string=b"x\x01y", tag="ignored"), b"x\x01y"),
]


@pytest.mark.parametrize(("message", "expected"), PROPERTIES)
def test_property_string(message: NewMessage, expected: bytes) -> None:
    """Properties are sent as RocketMQ's own string."""
    chunk, _ = Encoder(makes_unique_ids=False).encode(message)
    assert AppendRequest.FromString(chunk).messages[0].property_string == expected


NAMED = [
    (NewMessage(None, b""), TypeError, "topic is None"),
    (NewMessage("t", None), TypeError, "body is of type NoneType: expected bytes$"),
    (NewMessage("t", "text"), TypeError, r"body is of type str.*text\.encode"),
    (NewMessage("t", b"", queue_id="1"), TypeError, "queue_id is '1'"),
    (NewMessage("t", b"", queue_id=1 << 40), ValueError, "queue_id is 1099511627776"),
    (NewMessage("t", b"", flag=1 << 40), ValueError, "flag is 1099511627776"),
    (NewMessage("t", b"", born_time_ms=0.5), TypeError, "born_time_ms is 0.5"),
    (NewMessage("t", b"", keys=b"k"), TypeError, "keys is b'k'"),
    (NewMessage("t", b"", keys=["k", 1]), TypeError, r"keys is \['k', 1\]"),
    (NewMessage("t", b"", properties={"a": 1}), TypeError, "property 'a' is 1"),
    (NewMessage("t", b"", properties={"TAGS": "a"}, tag="b"), ValueError, "tag and the property TAGS"),
    (NewMessage("t", b"", properties={"KEYS": "a"}, keys="b"), ValueError, "keys and the property KEYS"),
    (NewMessage("t", b"", properties={"DELAY": "1"}, delay_level=2), ValueError, "delay_level and the property DELAY"),
    (NewMessage("t", b"", properties={"UNIQ_KEY": "a"}, unique_id="b"), ValueError, "unique_id and the property"),
]


@pytest.mark.parametrize(("message", "kind", "words"), NAMED)
def test_a_refusal_names_the_field(message: NewMessage, kind: type, words: str) -> None:
    """The caller sees the error in the message."""
    with pytest.raises(kind, match=words):
        Encoder(makes_unique_ids=True).encode(message)


@pytest.mark.parametrize("body", [bytearray(b"body"), memoryview(b"body")])
def test_bodies_that_are_no_bytes_object(body: bytearray | memoryview) -> None:
    """They are sent as they are now."""
    chunk, _ = Encoder(makes_unique_ids=False).encode(NewMessage("t", body))
    assert AppendRequest.FromString(chunk).messages[0].body == b"body"


def test_an_id_among_the_properties() -> None:
    """It is the message's id, and no other is made."""
    assert Encoder(makes_unique_ids=True).encode(NewMessage("t", b"", properties={"UNIQ_KEY": "MINE"}))[1] == "MINE"


BAD = [
    (NewMessage("t", b"", tag="a\x02b\x01c"), ValueError),
    (NewMessage("t", b"", tag=""), ValueError),
    (NewMessage("t", b"", keys="two keys"), ValueError),
    (NewMessage("t", b"", keys=("a", "b c")), ValueError),
    (NewMessage("t", b"", keys=("a", "")), ValueError),
    (NewMessage("t", b"", properties={"a\x01b": "c"}), ValueError),
    (NewMessage("t", b"", properties={"a\x02": "c"}), ValueError),
    (NewMessage("t", b"", properties={"": "c"}), ValueError),
    (NewMessage("t", b"", properties={"a": ""}), ValueError),
    (NewMessage("t", b"", properties={"a": "\ud800"}), ValueError),
    (NewMessage("t", b"", delay_level=-1), ValueError),
    (NewMessage("t", b"", delay_s=-1), ValueError),
    (NewMessage("t", b"", delay_s=40 * 86_400 + 1), ValueError),
    (NewMessage("t", b"", delay_s=1, deliver_at=5), ValueError),
    (NewMessage("t", b"", delay_s=1, delay_level=1), ValueError),
    (NewMessage("t", b"", deliver_at="noon"), TypeError),  # type: ignore[arg-type]
    (NewMessage("t", b"", delay_s=1, properties={"TIMER_DELAY_MS": "5"}), ValueError),
]


@pytest.mark.parametrize(("message", "kind"), BAD)
def test_what_cannot_be_encoded(message: NewMessage, kind: type) -> None:
    """A message whose meaning would change on the way is refused before it is sent."""
    with pytest.raises(kind):
        Encoder(makes_unique_ids=False).encode(message)


def test_unique_ids() -> None:
    """Ids have RocketMQ's form and differ. The time in them is the time in the month."""
    ids = UniqueIds()
    made = [ids.next(time.time_ns()) for _ in range(70_000)]
    assert len(set(made)) == len(made)
    assert all(re.fullmatch("[0-9A-F]{32}", unique_id) for unique_id in made)
    start = time.localtime()
    in_month_s = (start.tm_mday - 1) * 86_400 + start.tm_hour * 3600 + start.tm_min * 60 + start.tm_sec
    assert abs(int(made[-1][20:28], 16) / 1000 - in_month_s) < 3700  # an hour for summer time


def test_given_ids_stay() -> None:
    """A message that has an id keeps it. Each other message gets a new id."""
    encoder = Encoder(makes_unique_ids=True)
    assert encoder.encode(NewMessage("t", b"", unique_id="MINE"))[1] == "MINE"
    chunk, unique_id = encoder.encode(NewMessage("t", b""))
    assert AppendRequest.FromString(chunk).messages[0].property_string == f"UNIQ_KEY\x01{unique_id}\x02".encode()
