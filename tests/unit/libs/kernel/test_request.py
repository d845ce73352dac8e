# SPDX-License-Identifier: Apache-2.0
"""A check of a request before it is parsed: values are counted, and no byte behind the first excess value is read."""

import random
from array import array
from typing import Any, Self

import pytest
from hypothesis import given
from hypothesis import strategies as st
from reput.commitlog.v1.append_service_pb2 import AppendMessage, AppendRequest

from libs.formats.protobuf_wire import FIXED32, FIXED64, int_field, length_delimited, tag, varint
from libs.kernel import layout
from tests.unit.libs.kernel.builds import BUILDS, SOURCES, Build, Guarded, label

pytestmark = pytest.mark.parametrize("build", BUILDS, ids=label)

VARINT, BYTES, PACKED, MESSAGE = 0, 2, 8, 16
TYPES = array("i", [0, 6, 7, 1])
KINDS = array("i", [-1, VARINT, BYTES, MESSAGE + 1, PACKED + VARINT, PACKED + FIXED64, PACKED + FIXED32, -1, VARINT])
"""Type 0: number, text, part of type 1, and packed lists of three forms. Type 1: a number."""

NUMBER, TEXT, PART, NUMBERS, WIDE, NARROW = range(1, 7)


def count(build: Build, request: Any, *, limit: int = 1_000) -> int:
    found: int = build.request_cy.count_values(request, TYPES, KINDS, limit)
    return found


def test_every_field_and_every_element_counts(build: Build) -> None:
    """Each field and element counts: known and unknown, at the top and in a part, packed and single."""
    assert count(build, b"") == 0
    assert count(build, int_field(NUMBER, 5) * 3) == 3
    assert count(build, length_delimited(TEXT, b"\x80" * 100)) == 1
    assert count(build, length_delimited(PART, int_field(1, 5) + int_field(9, 5))) == 3
    assert count(build, length_delimited(PART, b"") * 7) == 7
    assert count(build, int_field(99, 5) + length_delimited(98, b"x" * 50)) == 2
    assert count(build, length_delimited(NUMBERS, varint(1) + varint(1 << 40))) == 3
    assert count(build, int_field(NUMBERS, 5) * 2) == 2
    assert count(build, length_delimited(WIDE, bytes(24)) + tag(WIDE, FIXED64) + bytes(8)) == 5
    assert count(build, length_delimited(NARROW, bytes(24)) + tag(NARROW, FIXED32) + bytes(4)) == 8


def test_what_is_no_such_message_is_told(build: Build) -> None:
    """Wire types that do not fit, groups, ends that lie outside, and messages in messages without end."""
    kernel = build.request_cy
    for request in (
        length_delimited(NUMBER, b"x"),
        int_field(TEXT, 5),
        int_field(PART, 5),
        length_delimited(PART, length_delimited(1, b"")),
        tag(NUMBERS, FIXED64) + bytes(8),
        tag(WIDE, FIXED32) + bytes(4),
    ):
        assert count(build, request) == layout.R_MISFIT
    for request in (b"\x0b", b"\x08", b"\x08" + b"\xff" * 11, b"\x12\x05abc", b"\x00\x01", b"\x1a\x02\x08"):
        assert count(build, request) == layout.R_WIRE
    nested = b""
    for _ in range(200):
        nested = length_delimited(1, nested)
    itself = array("i", [-1, MESSAGE])
    assert kernel.count_values(nested, array("i", [0, 1]), itself, 1_000) == layout.R_WIRE


def test_a_table_that_leads_outside_of_itself_is_refused(build: Build) -> None:
    """A table of kinds that points outside of itself is refused, and no byte is read behind it."""
    for types, kinds in (([0, 1], [-1]), ([0, 0], [MESSAGE + 1]), ([-1, 0], [0]), ([0, -1], [0])):
        with pytest.raises(ValueError, match="table"):
            build.request_cy.count_values(b"", array("i", types), array("i", kinds), 1)


@pytest.mark.parametrize(
    "part",
    [
        length_delimited(PART, b""),
        int_field(NUMBER, 1),
        int_field(99, 1),
        length_delimited(NUMBERS, varint(1) * 100),
        length_delimited(WIDE, bytes(800)),
        length_delimited(PART, int_field(1, 1) * 100),
    ],
)
def test_the_first_value_too_many_is_the_last_that_is_looked_at(build: Build, part: bytes) -> None:
    """A request of millions of parts costs only the work that its limit allows.

    In the sources the test sees each byte that is read.
    """
    limit = 50
    request = part * 10_000
    assert count(build, request, limit=limit) == layout.R_TOO_MANY
    assert count(build, part[:0], limit=0) == 0
    if build is SOURCES:
        with Watched(build) as watched:
            count(build, request, limit=limit)
        assert watched.last_at <= (limit + 2) * len(part)


class Watched:
    """Notes the last byte that the sources read of a request."""

    def __init__(self, build: Build) -> None:
        self.last_at = 0
        self._kernel = build.request_cy
        self._source_of = build.request_cy.source_of

    def __enter__(self) -> Self:
        def watched(buffer: bytes) -> Any:
            return Noting(buffer, self)

        self._kernel.source_of = watched
        return self

    def __exit__(self, *_: object) -> None:
        self._kernel.source_of = self._source_of


class Noting:
    """Bytes that tell which of them is read."""

    def __init__(self, data: bytes, watched: Watched) -> None:
        self._data = data
        self._watched = watched

    def __getitem__(self, at: int) -> int:
        self._watched.last_at = max(self._watched.last_at, at)
        return self._data[at]


def test_bytes_that_make_no_sense_stay_inside(build: Build) -> None:
    """For random bytes both builds give the same count, and read no byte behind the end."""
    chance = random.Random(5)
    guarded = Guarded(256)
    good = int_field(NUMBER, 5) + length_delimited(PART, int_field(1, 7)) + length_delimited(NUMBERS, b"\x01\x80\x01")
    for _ in range(3_000):
        data = bytearray(good * chance.randrange(1, 4))
        for _ in range(chance.randrange(4)):
            data[chance.randrange(len(data))] = chance.randrange(256)
        request = bytes(data[: chance.randrange(len(data) + 1)])
        limit = chance.choice([3, 1_000])
        assert count(build, guarded.hold(request), limit=limit) == count(SOURCES, request, limit=limit)


@given(
    names=st.lists(st.sampled_from(["a", "b", "", "数据"]), max_size=6), has_decoys=st.booleans(), cut=st.integers(0, 3)
)
def test_topics_of_a_batch_are_the_topics_that_the_parser_finds(
    names: list[str], has_decoys: bool, cut: int, build: Build
) -> None:
    """Of a repeated field the last is in force, and a malformed batch ends the search."""
    decoy = length_delimited(1, b"decoy") if has_decoys else b""
    messages = [
        decoy + AppendMessage(topic=name, body=b"x", properties={"k": "v"}).SerializeToString() for name in names
    ]
    request = b"".join(length_delimited(1, data) for data in messages) + int_field(2, 1)
    parsed = [message.topic.encode() for message in AppendRequest.FromString(request).messages]
    expected = {name: parsed.index(name) for name in parsed}
    assert build.request_cy.topics_of(request) == expected
    assert build.request_cy.topics_of(request[: len(request) - cut]).items() <= expected.items()
