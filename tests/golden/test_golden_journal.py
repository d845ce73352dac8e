# SPDX-License-Identifier: Apache-2.0
"""Journals of every format that was ever written: each is readable for ever, and has the same meaning."""

import json
from collections.abc import Callable, Mapping

import pytest

from libs.formats.errors import NewerVersion
from libs.formats.records import delivery_record, state_record
from libs.formats.records.delivery_record import Copied, DeliveryRecord, Flight, Place, Policy
from libs.formats.records.state_record import CopyPart, DelayProgress, StateRecord
from services.delivery.engine.journal import replay as loading
from tests.support.golden import DATA, golden
from tests.support.memory_delivery import MemoryStore

LAST = 13
"""Queue offset of the record with which the reading process begins."""
COPY_BEGINS = 7


def lines(name: str) -> list[bytes]:
    """The records of a golden file, a line each."""
    return golden(name).splitlines()


@pytest.mark.parametrize("start", [0, COPY_BEGINS])
async def test_the_journal_of_format_1(start: int) -> None:
    """The whole journal and its part from the copy on give the same deliveries."""
    store = MemoryStore()
    store.journal_records = [
        (100 * number, body) for number, body in enumerate(lines("delivery_record/v1/journal.jsonl"))
    ]
    reading = await loading.replay_journal(store, "c", start=start, began=LAST)
    groups, place = reading.groups, Place("billing", "orders", 0)
    policy = Policy(attempts_max=3, backoffs_ms=(1_000, 5_000), invisible_ms=30_000, is_ordered=True)
    assert groups.policies == {"billing": policy}
    assert [queue.copied() for queue in groups.all_queues()] == [
        Copied(place, 4, (Flight(1, 1, 1_700_000_000_001, 1_700_000_001_000),), ((2, 7),))
    ]
    assert (groups.delays.low, 1 in groups.delays, 2 in groups.delays) == (1, False, True)
    assert groups.behind_ms == 3_600_000
    assert (reading.last, reading.format, reading.is_whole) == (LAST - 1, 1, True)


def test_the_records_of_shared_state_of_format_1() -> None:
    """Changes and parts of a copy have the same meaning for ever."""
    progress = {3: DelayProgress(17, 4, 2)}
    assert [StateRecord.decode(line) for line in lines("state_record/v1/records.jsonl")] == [
        StateRecord(origin="5e2f", number=7, offsets={"billing": {"orders": {0: 120, 1: None}}}),
        StateRecord(origin="5e2f", number=8, delays=progress),
        StateRecord(
            origin="77aa", number=1, offsets={"billing": {"orders": {0: 120}}}, delays=progress, copy=CopyPart(0, 2)
        ),
        StateRecord(origin="77aa", number=1, offsets={"audit": {"orders": {0: 3}}}, copy=CopyPart(1, 2)),
    ]


@pytest.mark.parametrize(
    ("name", "decoders", "written"),
    [
        ("delivery_record", delivery_record.DECODERS, delivery_record.FORMAT),
        ("state_record", state_record.DECODERS, state_record.FORMAT),
    ],
)
def test_every_format_has_a_decoder_and_golden_records(name: str, decoders: Mapping[int, object], written: int) -> None:
    """A format is read, with golden records, before it is written, and for ever."""
    assert set(decoders) >= set(range(1, written + 1))
    assert {path.name for path in (DATA / name).iterdir()} == {f"v{number}" for number in decoders}


@pytest.mark.parametrize("decode", [DeliveryRecord.decode, StateRecord.decode])
@pytest.mark.parametrize("number", [2, 1_000_000])
def test_a_later_format_is_no_damage(decode: Callable[[bytes], object], number: int) -> None:
    """A journal record of a later format raises NewerVersion with both versions, also with unknown fields."""
    with pytest.raises(
        NewerVersion, match=f"is of version {number}, and this program reads versions up to 1"
    ) as caught:
        decode(json.dumps({"format": number, "renamed": []}).encode())
    assert (caught.value.version, caught.value.newest) == (number, 1)
