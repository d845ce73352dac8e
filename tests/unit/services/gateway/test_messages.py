# SPDX-License-Identifier: Apache-2.0
"""A client's message as properties, and back; and the refused messages."""

import pytest
from msgspec.structs import replace

from services.gateway.engine.messages import Message, check_digest, digest_of, from_properties, is_forbidden, kind_of
from services.gateway.errors import Refused

ID = "01" + "A" * 32
FULL = Message(id=ID, tag="a", keys=["k1", "k2"], group="g", user={"color": "grün"}, born_host="host", trace="00-trace")


def refusal(**fields: object) -> str:
    """The code of the error in an otherwise valid message, or "" without an error."""
    try:
        Message(**{"id": ID, **fields}).check()  # type: ignore[arg-type]
    except Refused as error:
        return error.code
    return ""


def test_a_message_comes_back_as_it_was_sent() -> None:
    """All fields of the sender are in the properties, by RocketMQ's names."""
    FULL.check()
    properties = FULL.properties(1_700_000_000_123)
    assert properties == {
        "UNIQ_KEY": ID,
        "TAGS": "a",
        "KEYS": "k1 k2",
        "__SHARDINGKEY": "g",
        "color": "grün",
        "__BORNHOST": "host",
        "BORN_TIMESTAMP": "1700000000123",
        "TRACE_CONTEXT": "00-trace",
    }
    back = from_properties(properties, "F" * 32)
    assert replace(back, user={}) == replace(FULL, user={})
    assert back.user == {"color": "grün", "__SHARDINGKEY": "g", "TRACE_CONTEXT": "00-trace"}


def test_spaces_alone_separate_keys() -> None:
    """Keys are separated by spaces only, as in the index: other white space is part of a key."""
    back = from_properties({"UNIQ_KEY": ID, "KEYS": " 東京\u3000支店  tab\there new\nline "}, "")
    assert list(back.keys) == ["東京\u3000支店", "tab\there", "new\nline"]


def test_a_transaction_has_its_id_among_its_properties() -> None:
    """The id of a transaction is in the properties, as with RocketMQ's proxy; other messages have none."""
    assert from_properties({"UNIQ_KEY": ID, "TRAN_MSG": "true"}, "").user == {"__transactionId__": ID}
    assert from_properties({"UNIQ_KEY": ID}, "").user == {}


@pytest.mark.parametrize("name", ["__SHARDINGKEY", "__transactionId__", "TRACE_CONTEXT"])
def test_names_that_rocketmq_leaves_to_senders(name: str) -> None:
    """A program that copies the properties of a received message can send them."""
    message = Message(id=ID, user={name: "x"})
    message.check()
    assert from_properties(message.properties(0), "").user == {name: "x"}


@pytest.mark.parametrize(
    ("name", "is_shown"), [("PGROUP", False), ("REPUT_CANCELLED", False), ("INNER_NUM", True), ("DUP_INFO", True)]
)
def test_names_that_senders_can_not_use(name: str, is_shown: bool) -> None:
    """Names that senders may not use and names that are hidden from receivers are two lists."""
    assert refusal(user={name: "1"}) == "ILLEGAL_MESSAGE_PROPERTY_KEY"
    assert (name in from_properties({name: "1"}, "").user) == is_shown


def test_keys_and_tags_with_spaces_come_back_as_from_rocketmq() -> None:
    """Keys are joined and split by spaces, so that a key with a space becomes two; a tag is kept unchanged."""
    message = Message(id=ID, tag=" a ", keys=["order 17", "", "k"])
    message.check()
    assert message.properties(0) == {"UNIQ_KEY": ID, "TAGS": " a ", "KEYS": "order 17 k"}
    back = from_properties(message.properties(0), "")
    assert (back.tag, back.keys) == (" a ", ["order", "17", "k"])


def test_a_property_without_a_value_is_not_stored() -> None:
    """A property with an empty value is not stored, as with RocketMQ's proxy.

    RocketMQ's records can't hold such a property.
    """
    message = Message(id=ID, user={"baggage": "", "color": "red"})
    message.check()
    assert from_properties(message.properties(0), "").user == {"color": "red"}


def test_what_a_message_has_not_is_not_stored() -> None:
    """Fields that a message lacks are not stored, because the store refuses empty values."""
    assert Message(id=ID).properties(0) == {"UNIQ_KEY": ID}


def test_a_message_of_another_producer_has_the_id_of_its_place() -> None:
    """A message without a UNIQ_KEY gets the id of its place, because libraries need an id."""
    assert from_properties({}, "F" * 32).id == "F" * 32


def test_a_dead_letter_says_where_it_came_from() -> None:
    """A dead letter names its origin in a field of its own, not in its sender's properties."""
    found = from_properties({"DLQ_ORIGIN_TOPIC": "t", "DLQ_ORIGIN_MESSAGE_ID": "i", "x": "1"}, "")
    assert (found.origin_topic, found.origin_id, found.user) == ("t", "i", {"x": "1"})


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({}, ""),
        ({"id": ""}, "ILLEGAL_MESSAGE_ID"),
        ({"id": "x" * 256}, "ILLEGAL_MESSAGE_ID"),
        ({"tag": "a|b"}, "ILLEGAL_MESSAGE_TAG"),
        ({"tag": " a "}, ""),
        ({"tag": " "}, "ILLEGAL_MESSAGE_TAG"),
        ({"tag": "a" * 16_384}, ""),
        ({"tag": "a" * 16_385}, "MESSAGE_PROPERTIES_TOO_LARGE"),
        ({"tag": "a\nb"}, "ILLEGAL_MESSAGE_TAG"),
        ({"keys": ["a b"]}, ""),
        ({"keys": [""]}, ""),
        ({"keys": ["\u3000"]}, "ILLEGAL_MESSAGE_KEY"),
        ({"keys": ["k" * 16_384]}, ""),
        ({"keys": ["k" * 50] * 328}, "MESSAGE_PROPERTIES_TOO_LARGE"),
        ({"tag": "ä", "keys": ["k" * 16_000], "user": {"a": "x" * 381}}, ""),
        ({"tag": "ä", "keys": ["k" * 16_000], "user": {"a": "x" * 382}}, "MESSAGE_PROPERTIES_TOO_LARGE"),
        ({"keys": ["a\x01"]}, "ILLEGAL_MESSAGE_KEY"),
        ({"group": "g" * 64}, ""),
        ({"group": "g" * 65}, "ILLEGAL_MESSAGE_GROUP"),
        ({"group": " "}, "ILLEGAL_MESSAGE_GROUP"),
        ({"user": {"KEYS": "x"}}, "ILLEGAL_MESSAGE_PROPERTY_KEY"),
        ({"user": {"TIMER_DELIVER_MS": "1"}}, "ILLEGAL_MESSAGE_PROPERTY_KEY"),
        ({"user": {"DELAY": "3"}}, "ILLEGAL_MESSAGE_PROPERTY_KEY"),
        ({"user": {"a": ""}}, ""),
        ({"user": {"": "x"}}, "ILLEGAL_MESSAGE_PROPERTY_KEY"),
        ({"user": {"a": "x\ty"}}, "ILLEGAL_MESSAGE_PROPERTY_KEY"),
        ({"user": {"a": "\x02"}}, "ILLEGAL_MESSAGE_PROPERTY_KEY"),
        ({"user": {str(index): "x" for index in range(128)}}, ""),
        ({"user": {str(index): "x" for index in range(129)}}, "MESSAGE_PROPERTIES_TOO_LARGE"),
        ({"user": {"a": "x" * (16 << 10)}}, "MESSAGE_PROPERTIES_TOO_LARGE"),
    ],
)
def test_what_is_refused(fields: dict[str, object], code: str) -> None:
    """Messages that RocketMQ's proxy refuses are refused with its codes.

    Tag, keys and user properties share a limit.
    """
    assert refusal(**fields) == code


def test_kinds() -> None:
    """The stored properties give the kind of a message."""
    assert [kind_of(one) for one in ({}, {"__SHARDINGKEY": "g"}, {"DELAY": "3"}, {"TRAN_MSG": "true"})] == [
        "NORMAL",
        "FIFO",
        "DELAY",
        "TRANSACTION",
    ]
    assert is_forbidden("TIMER_ANYTHING")
    assert not is_forbidden("color")


def test_a_body_that_is_not_what_its_digest_says_is_refused() -> None:
    """A body that differs from its digest is refused, with digits in either case.

    A CRC-32 is not checked, because each library writes it differently.
    """
    check_digest(b"x", "MD5", digest_of(b"x").lower())
    check_digest(b"x", "CRC32", "whatever")
    with pytest.raises(Refused) as refused:
        check_digest(b"y", "SHA1", digest_of(b"x", "SHA1"))
    assert refused.value.code == "MESSAGE_CORRUPTED"
