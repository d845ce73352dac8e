# SPDX-License-Identifier: Apache-2.0
"""The compiled part of the producer, built here: the same bytes and errors as the plain encoder, the oracle."""

import itertools
import time
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from reput.commitlog.v1.append_service_pb2 import AppendRequest
from reput_client import NewMessage
from reput_client.core import speedups
from reput_client.core.compression import Compressor
from reput_client.core.encode import CHUNK_SIZE_BYTES_MAX, Encoder, UniqueIds
from reput_client.core.speedups import MakePacker, find_packer, find_records

from clients.python.tests import compiled
from clients.python.tests.test_encode import BAD, NAMED, PROPERTIES


@pytest.fixture(scope="module")
def packer() -> MakePacker:
    """The compiled Packer, from the project's own setup.py."""
    made: MakePacker = compiled.part("_pack").Packer
    return made


def outcome_of(packer: MakePacker | None, message: Any, **options: Any) -> object:
    """Return the bytes and the id of a message, or the type and the text of its error."""
    encoder = Encoder(**{"makes_unique_ids": False, "makes_born_times": False, "make_packer": packer, **options})
    try:
        return encoder.encode(message)
    except (ValueError, TypeError) as error:
        return type(error), str(error)


@pytest.mark.parametrize("message", [case[0] for case in (*PROPERTIES, *NAMED, *BAD)], ids=repr)
def test_the_cases_of_the_plain_encoder(packer: MakePacker, message: Any) -> None:
    """Each message that the tests of the plain encoder have gives the same bytes or the same error."""
    assert outcome_of(packer, message) == outcome_of(None, message)


ODD_TEXT = st.one_of(
    st.text(max_size=6),
    st.text(alphabet="ab \x00\x01\x02\x7fé\ud800😀", max_size=6),
    st.sampled_from(["TAGS", "KEYS", "UNIQ_KEY", "DELAY", "__SHARDINGKEY", "x" * 200, "é" * 9000]),
)
ODD_NUMBER = st.one_of(
    st.integers(),
    st.sampled_from([0, 1, -1, True, 2**31 - 1, 2**31, -(2**31), -(2**31) - 1, 2**63, 2**64, 0.5, "1"]),
    st.sampled_from([253_402_300_799_999, 253_402_300_800_000, 127, 128, 16_383, 16_384]),
)
MESSAGES = st.builds(
    NewMessage,
    st.one_of(ODD_TEXT, st.just("orders"), st.sampled_from([None, 7, b"t"])),
    st.one_of(
        st.binary(max_size=300), st.sampled_from([None, "text", bytearray(b"b"), memoryview(b"m"), bytes(20_000)])
    ),
    tag=st.one_of(st.none(), ODD_TEXT, st.just(5)),
    keys=st.one_of(
        ODD_TEXT,
        st.lists(ODD_TEXT, max_size=4),
        st.tuples(ODD_TEXT),
        st.just(["k"] * 40),
        st.sampled_from([None, 3, [1]]),
    ),
    properties=st.one_of(
        st.just({}),
        st.dictionaries(ODD_TEXT, ODD_TEXT, max_size=4),
        st.just({str(number): "v" for number in range(40)}),
        st.just({"a": 1}),
        st.just({1: "a"}),
    ),
    queue_id=st.one_of(st.none(), ODD_NUMBER),
    sharding_key=st.one_of(st.none(), ODD_TEXT),
    unique_id=st.one_of(st.none(), ODD_TEXT),
    flag=ODD_NUMBER,
    born_time_ms=st.one_of(st.none(), ODD_NUMBER),
    property_string=st.one_of(st.none(), st.none(), st.binary(max_size=5)),
    delay_level=st.sampled_from([0, 0, 0, 1, -1]),
    delay_s=st.sampled_from([None, None, None, 1, -1]),
)


@settings(max_examples=2_000, deadline=None)
@given(message=MESSAGES)
def test_any_message(packer: MakePacker, message: NewMessage) -> None:
    """Any message, also with hostile values, gives the same bytes or the same error."""
    assert outcome_of(packer, message) == outcome_of(None, message)


PLAIN = st.builds(
    NewMessage,
    st.text(alphabet="abé😀", min_size=1, max_size=200),
    st.one_of(st.binary(max_size=300), st.just(bytes(20_000))),
    tag=st.one_of(st.none(), st.text(alphabet="aé\x01", min_size=1)),
    keys=st.lists(st.text(alphabet="kéx\x01\n", min_size=1, max_size=9), max_size=32),
    properties=st.dictionaries(
        st.text(alphabet="nméo", min_size=1), st.text(alphabet="vé\x00\x01", min_size=1), max_size=32
    ),
    queue_id=st.one_of(st.none(), st.integers(-(2**31), 2**31 - 1)),
    sharding_key=st.one_of(st.none(), st.text(alphabet="sé", min_size=1)),
    unique_id=st.one_of(st.none(), st.text(alphabet="UV", min_size=1)),
    flag=st.integers(-(2**31), 2**31 - 1),
    born_time_ms=st.one_of(st.none(), st.integers(0, 253_402_300_799_999)),
)


@settings(max_examples=1_000, deadline=None)
@given(message=PLAIN)
def test_plain_messages_are_packed(packer: MakePacker, message: NewMessage) -> None:
    """A plain message is packed by the compiled part itself, to the same bytes."""
    packed = packer(None, False, CHUNK_SIZE_BYTES_MAX).pack(message)
    assert packed == outcome_of(None, message)
    assert packed is not None
    assert packer(None, False, len(packed[0])).pack(message) == packed
    assert packer(None, False, len(packed[0]) - 1).pack(message) is None, "Encoder refuses it, with its own words"


def test_ids_and_times_of_the_encoder(packer: MakePacker) -> None:
    """A message without an id and a time gets them as by the plain encoder, an id for each message."""
    encoder = Encoder(makes_unique_ids=True, make_packer=packer)
    ids = [encoder.encode(NewMessage("t", b"x"))[1] for _ in range(3)]
    assert [int(unique_id[-4:], 16) for unique_id in ids] == [0, 1, 2]
    with pytest.raises(ValueError, match="no space"):
        encoder.encode(NewMessage("t", b"x", keys="a b"))
    assert encoder.encode(NewMessage("t", bytearray(b"x"), delay_s=1))[1][-4:] == "0004"
    chunk, last = encoder.encode(NewMessage("t", b"x"))
    assert last[-4:] == "0005"
    assert last.encode() in chunk


class FixedIds(UniqueIds):
    """Ids of months that are given."""

    def __init__(self, months: list[tuple[int, int]], first: int) -> None:
        super().__init__()
        self.months, self.count = months, itertools.count(first)

    def month_of(self, now_ns: int) -> tuple[int, int]:
        return self.months.pop(0)


@pytest.mark.parametrize("start_ms", [0, 1, 15, 16, 2_678_400_000, 2**32 - 1])
@pytest.mark.parametrize("first", [0, 255, 65_535, 65_536])
def test_ids_have_one_layout(packer: MakePacker, start_ms: int, first: int) -> None:
    """The id of a packed message is the id that UniqueIds makes of its time in the month and its number."""
    now_ns = time.time_ns()
    month = now_ns - start_ms * 1_000_000, now_ns + 3600 * 10**9
    ids = FixedIds([month], first)
    packed = packer(ids, True, CHUNK_SIZE_BYTES_MAX).pack(NewMessage("t", b"x"))
    assert packed is not None
    (born_time_ms,) = [message.born_time_ms for message in AppendRequest.FromString(packed[0]).messages]
    late_ms = born_time_ms - now_ns // 1_000_000
    assert 0 <= late_ms < 60_000
    plain = FixedIds([month], first)
    plain.prefix = ids.prefix
    made = plain.next(now_ns)
    number, plain_number = int(packed[1][20:28], 16), int(made[20:28], 16)
    assert (number - plain_number) % 2**32 in (late_ms - 1, late_ms, late_ms + 1)
    assert (packed[1][:20], packed[1][28:]) == (made[:20], made[28:])
    assert packed[1].isascii()


def test_fields_of_other_classes_are_not_read(packer: MakePacker) -> None:
    """A message of a class of its own is left to Encoder, and a field that is deleted is an error, not a crash."""

    class Named(NewMessage):
        __slots__ = ()

    assert packer(None, False, CHUNK_SIZE_BYTES_MAX).pack(Named("t", b"x")) is None
    assert outcome_of(packer, Named("t", b"x")) == outcome_of(None, NewMessage("t", b"x"))
    for name in NewMessage.__slots__:
        message = NewMessage("t", b"x")
        delattr(message, name)
        with pytest.raises(AttributeError, match=name):
            packer(None, False, CHUNK_SIZE_BYTES_MAX).pack(message)


def test_a_new_month_begins(packer: MakePacker) -> None:
    """A message after the end of the month gets an id with its time in the next month."""
    now_ns = time.time_ns()
    over, current = (now_ns - 10**12, now_ns), (now_ns - 10**9, now_ns + 10**15)
    ids = FixedIds([over, current], 0)
    made = packer(ids, True, CHUNK_SIZE_BYTES_MAX)
    first, second, third = (made.pack(NewMessage("t", b"x")) for _ in range(3))
    assert first is not None
    assert second is not None
    assert third is not None
    assert int(first[1][20:28], 16) >= 10**6
    assert 10**3 <= int(second[1][20:28], 16) <= int(third[1][20:28], 16) < 10**6
    assert ids.months == []


def test_bodies_that_are_compressed_are_not_packed(packer: MakePacker) -> None:
    """An encoder with a compressor does not use the compiled part."""
    message = NewMessage("t", bytes(10_000))
    encoder = Encoder(makes_unique_ids=False, compressor=Compressor("zlib", 100, 5), make_packer=packer)
    assert len(encoder.encode(message)[0]) < 200


def test_the_build_is_known(monkeypatch: pytest.MonkeyPatch) -> None:
    """REPUT_NO_EXTENSIONS=1 ignores the compiled part, and `IS_COMPILED` tells the build."""
    assert (speedups.PACKER is not None) is (speedups.RECORDS is not None) is speedups.IS_COMPILED
    monkeypatch.setenv("REPUT_NO_EXTENSIONS", "1")
    assert find_packer() is None
    assert find_records() is None
