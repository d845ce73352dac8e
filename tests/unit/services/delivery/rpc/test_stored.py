# SPDX-License-Identifier: Apache-2.0
"""Messages of a pull: the same from records and from StoredMessages, and an answer that is not whole is refused."""

from array import array
from itertools import accumulate

import pytest
from reput.delivery.v1.delivery_service_pb2 import ReceiveResponse
from reput.indexer.v1.queue_service_pb2 import PullResponse

from libs.formats import fields
from libs.kernel.answer.encode_cy import encode_messages
from libs.requests.errors import DependencyUnavailable
from services.delivery.engine.receive.batch import Delivered
from services.delivery.rpc.log.stored import found_of
from services.delivery.rpc.settling import messages_of
from tests.support.records import IPV6_BORN, IPV6_STORE, encoded

RECORDS = [
    encoded(queue_offset=7, body=b"", properties=b""),
    encoded(queue_offset=8, body=b"b" * 300, properties=b"__SHARDINGKEY\x01k\x02TAGS\x01t\x02"),
    encoded(queue_offset=9, properties=b"DLQ_ORIGIN_TOPIC\x01origin\x02"),
    encoded(queue_offset=10, properties=b"__SHARDINGKEY\x01k\x02a\x01\xff\x02"),
    encoded(queue_offset=11, born_host=IPV6_BORN, store_host=IPV6_STORE, properties=b"__SHARDINGKEY\x01\x02"),
]


def as_messages(records: list[bytes]) -> PullResponse:
    sizes = list(map(len, records))
    positions = array("q", accumulate(sizes[:-1], initial=0))
    number = fields.PULL_RESPONSE_MESSAGES
    return PullResponse.FromString(encode_messages(b"".join(records), positions, array("i", sizes), len(sizes), number))


def as_records(records: list[bytes]) -> PullResponse:
    return PullResponse(records=b"".join(records), record_count=len(records))


def test_both_forms_are_the_same_messages() -> None:
    """Also with an ordering key, an origin, and properties that are no text, which have no key."""
    of_records, of_messages = found_of(as_records(RECORDS)), found_of(as_messages(RECORDS))
    assert [one.queue_offset for one in of_records] == [7, 8, 9, 10, 11]
    assert [bool(one.key) for one in of_records] == [False, True, False, False, False]
    assert [one.origin_topic for one in of_records] == ["", "", "origin", "", ""]
    for record, message in zip(of_records, of_messages, strict=True):
        for name in ("queue_offset", "key", "size_bytes", "origin_topic", "store_time_ms"):
            assert getattr(record, name) == getattr(message, name), name
        assert record.message.message == message.message.message
        assert record.store_time_ms == record.message.message.store_time_ms


def test_both_forms_are_delivered_alike() -> None:
    """A receiver gets the same answer, with the message as it is stored."""
    of_records, of_messages = (
        [Delivered(one.message, f"h{one.queue_offset}", 3, 1_700_000_000_123, one.size_bytes) for one in found]
        for found in (found_of(as_records(RECORDS)), found_of(as_messages(RECORDS)))
    )
    number = fields.RECEIVE_RESPONSE_MESSAGES
    answer = ReceiveResponse.FromString(messages_of(of_records, number))
    assert answer == ReceiveResponse.FromString(messages_of(of_messages, number))
    assert [one.message for one in answer.messages] == list(as_messages(RECORDS).messages)
    assert [one.handle for one in answer.messages] == ["h7", "h8", "h9", "h10", "h11"]
    assert {(one.attempt, one.invisible_until.ToMilliseconds()) for one in answer.messages} == {(3, 1_700_000_000_123)}


def test_no_messages_are_no_answer_field() -> None:
    """An answer without messages is an empty message."""
    assert found_of(PullResponse()) == []
    assert messages_of([], fields.RECEIVE_RESPONSE_MESSAGES) == b""


@pytest.mark.parametrize("cut", [1, 90, 91, 200])
def test_an_answer_that_is_not_whole_is_refused(cut: int) -> None:
    """No message of it is delivered: the pull is repeated."""
    whole = b"".join(RECORDS)
    with pytest.raises(DependencyUnavailable, match="whole records"):
        found_of(PullResponse(records=whole[:-cut], record_count=len(RECORDS)))


def test_harmed_records_are_refused() -> None:
    """Another number of records, a byte too many, and each wrong byte of a size."""
    whole = b"".join(RECORDS)
    answers = [(whole, len(RECORDS) - 1), (whole + b"\x00", len(RECORDS)), (whole + bytes(91), len(RECORDS) + 1)]
    answers += [(whole[:at] + bytes((whole[at] ^ 0x81,)) + whole[at + 1 :], len(RECORDS)) for at in range(8)]
    for records, count in answers:
        with pytest.raises(DependencyUnavailable, match="whole records"):
            found_of(PullResponse(records=records, record_count=count))
