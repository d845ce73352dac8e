# SPDX-License-Identifier: Apache-2.0
"""DeliveryRecord: golden bytes, and bytes that are refused."""

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from libs.formats.errors import BadField, NewerVersion
from libs.formats.records.delivery_record import (
    BACKOFFS_MS,
    ORDERED_BACKOFFS_MS,
    Began,
    Copied,
    CopyEdge,
    DeliveryRecord,
    Flight,
    Moved,
    Place,
    Policy,
    PolicySet,
    Postponed,
    Settled,
    Took,
)

PLACE = Place("billing", "orders", 0)
GOLDEN = (
    b'{"format":1,"owner":"o","events":[["took",["billing","orders",0],12,[[11,1,5,60005,0]],[[9,7]]],'
    b'["settled",["billing","orders",0],[10]],["postponed",["billing","orders",0],[[11,1,6,70,0]]],'
    b'["moved",["billing","orders",0],3],["policy","billing",null],["began","o"],'
    b'["copied",["billing","orders",0],12,[],[],[14]],["edge",1,true]]}'
)
RECORD = DeliveryRecord(
    owner="o",
    events=(
        Took(PLACE, 12, (Flight(11, 1, 5, 60_005),), ((9, 7),)),
        Settled(PLACE, (10,)),
        Postponed(PLACE, (Flight(11, 1, 6, 70),)),
        Moved(PLACE, 3),
        PolicySet("billing", None),
        Began("o"),
        Copied(PLACE, 12, (), (), (14,)),
        CopyEdge(1, is_end=True),
    ),
)


def test_golden_bytes() -> None:
    """The bytes of each event are the bytes of docs/formats/delivery_record.md."""
    assert RECORD.encode() == GOLDEN
    assert DeliveryRecord.decode(GOLDEN) == RECORD


def test_a_copy_without_what_is_settled_ahead() -> None:
    """A journal whose copies have no list of messages that are settled ahead is read with an empty list."""
    data = b'{"format":1,"owner":"o","events":[["copied",["billing","orders",0],12,[],[]]]}'
    assert DeliveryRecord.decode(data).events == (Copied(PLACE, 12, (), ()),)


def test_a_policy_is_kept_as_it_is() -> None:
    """A policy is decoded from the journal with all its values."""
    policy = Policy(attempts_max=3, backoffs_ms=(1, 2), invisible_ms=7, is_ordered=True, from_end=True, is_paused=True)
    record = DeliveryRecord(owner="o", events=(PolicySet("g", policy),))
    assert DeliveryRecord.decode(record.encode()) == record


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"[]",
        b'{"format":0,"owner":"o","events":[]}',
        b'{"format":"2","owner":"o","events":[]}',
        b'{"format":1,"owner":"o","events":[["unknown",1]]}',
        b'{"format":1,"owner":"o","events":[["settled",["g","t",-1],[1]]]}',
        b'{"format":1,"owner":"o","events":[["settled",["g","t",0],[9223372036854775808]]]}',
        b'{"format":1,"owner":"o","events":[["policy","g",{"attempts_max":0}]]}',
        b'{"format":1,"owner":"o","events":[["policy","g",{"backoffs_ms":[]}]]}',
        b'{"format":1,"owner":"\xff","events":[]}',
        b"[" * 100_000,
    ],
)
def test_what_is_no_record_is_refused(body: bytes) -> None:
    """Unknown events and numbers out of range raise BadField, and never another error."""
    with pytest.raises(BadField) as caught:
        DeliveryRecord.decode(body)
    assert caught.value.field == "delivery record"


@given(st.binary(max_size=200), st.integers(0, len(GOLDEN) - 1))
def test_harmed_records_are_refused_or_read(noise: bytes, position: int) -> None:
    """No bytes make the decoder raise another error."""
    with contextlib.suppress(BadField, NewerVersion):
        DeliveryRecord.decode(GOLDEN[:position] + noise + GOLDEN[position + len(noise) :])


@pytest.mark.parametrize("stored", [BACKOFFS_MS, ORDERED_BACKOFFS_MS])
def test_waits_without_a_policy_are_rocketmqs(stored: tuple[int, ...]) -> None:
    """A group without its own waits has RocketMQ's waits; ordered groups begin with 1 s and 5 s.

    A group that becomes ordered, or is no longer ordered, gets the other list.
    """
    assert Policy(backoffs_ms=stored, is_ordered=True).waits_ms[:4] == (1_000, 5_000, 10_000, 30_000)
    assert len(Policy(backoffs_ms=stored, is_ordered=True).waits_ms) == 18
    assert Policy(backoffs_ms=stored).waits_ms == BACKOFFS_MS
    assert [Policy(backoffs_ms=stored, is_ordered=one).backoff_ms(1) for one in (False, True)] == [10_000, 1_000]
    assert Policy(backoffs_ms=(7,), is_ordered=True).waits_ms == (7,)


@pytest.mark.parametrize(("attempt", "delay_ms"), [(0, 1), (1, 1), (2, 5), (3, 9), (100, 9)])
def test_the_last_backoff_counts_for_all_others(attempt: int, delay_ms: int) -> None:
    """Each attempt has a delay; attempts behind the list have the last delay."""
    assert Policy(backoffs_ms=(1, 5, 9)).backoff_ms(attempt) == delay_ms
