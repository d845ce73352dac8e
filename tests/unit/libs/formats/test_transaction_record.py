# SPDX-License-Identifier: Apache-2.0
"""Records of transactions, as RocketMQ and this store write them, and records that are refused."""

from collections.abc import Mapping
from typing import Any

import pytest

from libs.formats.errors import BadField
from libs.formats.records.transaction_record import (
    COMMIT,
    RENEWED,
    UNKNOWN,
    Half,
    ended_body,
    ended_of,
    ended_properties,
    half_of,
    renewed_properties,
)

ROCKETMQ = {
    "TRAN_MSG": "true",
    "PGROUP": "shop",
    "REAL_TOPIC": "orders",
    "REAL_QID": "3",
    "UNIQ_KEY": "0100",
    "CHECK_IMMUNITY_TIME_IN_SECONDS": "20",
    "TRANSACTION_CHECK_TIMES": "2",
    "TRAN_PREPARED_QUEUE_OFFSET": "8",
}
BARE = {"REAL_TOPIC": "orders", "REAL_QID": "3"}


def read(properties: Mapping[str, str], **fields: Any) -> Half:
    place = {"queue_offset": 9, "physical_offset": 700, "store_time_ms": 5_000, "size_bytes": 100, "offset_id": "0A"}
    return half_of(properties, **{**place, **fields})


def test_a_half_message_of_rocketmq() -> None:
    """All values of RocketMQ's half message are read."""
    assert read(ROCKETMQ) == Half(
        queue_offset=9,
        physical_offset=700,
        store_time_ms=5_000,
        size_bytes=100,
        id="0100",
        first_offset_id="0A",
        first_time_ms=5_000,
        producer_group="shop",
        topic="orders",
        queue_id=3,
        check_count=2,
        immunity_ms=20_000,
        former_offset=8,
    )


def test_a_half_message_that_was_appended_again_is_the_same() -> None:
    """A half message that is appended again, and once more, keeps the id and the time of the first half message."""
    first = read(BARE)
    again = read({**BARE, **renewed_properties(first, 1)}, queue_offset=10, store_time_ms=9_000, offset_id="0B")
    third = read({**BARE, **renewed_properties(again, 0)}, queue_offset=11, store_time_ms=12_000, offset_id="0C")
    assert {(one.id, one.first_offset_id, one.first_time_ms) for one in (first, again, third)} == {("0A", "0A", 5_000)}
    assert (again.check_count, third.check_count) == (1, 0)


@pytest.mark.parametrize("value", ["-1", "1.5", "x", "", "9" * 30, "\u0663", "3456001"])
def test_an_immunity_that_is_no_time_is_none(value: str) -> None:
    """An immunity that is no time is read as none; RocketMQ uses its own time then."""
    assert read({**BARE, "CHECK_IMMUNITY_TIME_IN_SECONDS": value}).immunity_ms is None


@pytest.mark.parametrize(
    "missing", [{"REAL_TOPIC": ""}, {"REAL_QID": ""}, {"REAL_QID": "-1"}, {"REAL_QID": "2147483648"}]
)
def test_what_does_not_say_where_it_goes_is_no_half_message(missing: Mapping[str, str]) -> None:
    """A half message without its real topic or queue is refused, because it could not be committed."""
    with pytest.raises(BadField, match="where it goes"):
        read({**BARE, **missing})


def test_what_this_store_says_of_an_end_is_read_again() -> None:
    """An end that this store writes is read with its ids and its outcome.

    Readers of RocketMQ 4 need a number alone.
    """
    properties = ended_properties(["0100", "0A", "0100"], COMMIT)
    assert (ended_body(12), properties["TAGS"], properties["KEYS"]) == (b"12", "d", "0100 0A")
    said = ended_of(ended_body(12), properties, queue_offset=4)
    assert (said.queue_offset, said.half_offsets, said.ids, said.how) == (4, (12,), ("0100", "0A"), COMMIT)
    odd = ended_of(b"12", ended_properties(["東京\u3000支店", "tab\there"], COMMIT), queue_offset=4)
    assert odd.ids == ("東京\u3000支店", "tab\there")
    assert ended_of(b"12", ended_properties(["a"], RENEWED), queue_offset=4).how == RENEWED
    assert "REPUT_ENDED_AS" not in ended_properties(["a"], UNKNOWN)  # no property has an empty value


@pytest.mark.parametrize(("body", "offsets"), [(b"12", (12,)), (b"12,", (12,)), (b"12,13,", (12, 13))])
def test_what_rocketmq_says_of_ends(body: bytes, offsets: tuple[int, ...]) -> None:
    """RocketMQ 4 writes a number and RocketMQ 5 a list of numbers; neither writes the outcome."""
    said = ended_of(body, {"TAGS": "d"}, queue_offset=0)
    assert (said.half_offsets, said.ids, said.how) == (offsets, (), UNKNOWN)
    assert ended_of(body, {"TAGS": "d", "KEYS": "k", "REPUT_ENDED_AS": "strange"}, queue_offset=0) == said


@pytest.mark.parametrize(
    ("body", "tag"), [(b"", "d"), (b",", "d"), (b"x", "d"), (b"1,-2", "d"), (b"\xff", "d"), (b"1", "")]
)
def test_what_says_nothing_of_an_end(body: bytes, tag: str) -> None:
    """A record that is no end raises BadField, and its reader skips it."""
    with pytest.raises(BadField, match="no list of queue offsets"):
        ended_of(body, {"TAGS": tag} if tag else {}, queue_offset=0)
