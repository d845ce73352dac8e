# SPDX-License-Identifier: Apache-2.0
"""encode_messages gives the bytes that protobuf itself serializes for the record that libs.formats decodes.

encode_records gives the records themselves, and refuses the same records.
"""

from array import array
from typing import Any

import pytest
from reput.commitlog.v1 import log_service_pb2

from libs.formats.records.host import Host
from tests.support.records import IPV6_BORN, IPV6_STORE, encoded, stored_message
from tests.unit.libs.kernel.builds import BUILDS, Build, Guarded, label

pytestmark = pytest.mark.parametrize("build", BUILDS, ids=label)
SHAPES: list[dict[str, Any]] = [
    {},
    {"crc_property": True},
    {"body": b"", "properties": b"", "queue_id": 0, "queue_offset": 0, "flag": 0},
    {"born_host": IPV6_BORN, "store_host": IPV6_STORE, "version": 2, "topic": "t" * 300},
    {"flag": -1, "sys_flag": -1 & ~0x30, "reconsume_times": 2**31 - 1, "queue_id": -5},
    {"queue_offset": 2**63 - 1, "prepared_transaction_offset": -(2**63), "born_time_ms": -1, "store_time_ms": 127},
    {"properties": "имя\x01值😀\x02A\x01b\x01c".encode(), "topic": "订单", "body": bytes(range(256)) * 70},
    {"properties": b"broken\x02\x01x\x02A\x01\x02A\x011\x02A\x012\x02"},
    {"properties": b"A\x01\xff\x02TAGS\x01x\x02"},
    {"born_host": Host.parse("0.0.0.0:0")},
]


def records() -> tuple[bytes, Any, Any]:
    """A record of each shape, with positions and sizes."""
    data, positions, sizes = b"", array("q"), array("i")
    for number, shape in enumerate(SHAPES):
        raw = encoded(0 if number == 2 else 2**40 + len(data), **shape)
        positions.append(len(data))
        sizes.append(len(raw))
        data += raw
    return data, positions, sizes


@pytest.mark.parametrize("field_number", [5, 15])
def test_every_shape_of_record(build: Build, field_number: int) -> None:
    """Messages in the order of the positions, of every shape, equal to the generated classes' own."""
    data, positions, sizes = records()
    out = build.encode_cy.encode_messages(data, positions, sizes, len(SHAPES), field_number)
    assert isinstance(out, bytes)
    if field_number == 5:
        parsed = log_service_pb2.StreamRecordsResponse.FromString(out)
        assert list(parsed.messages) == [stored_message(data, position) for position in positions]
        assert parsed.ByteSize() <= len(out)


def test_selection(build: Build) -> None:
    """Only the first `count` of the listed records are taken; none gives empty bytes."""
    data, positions, sizes = records()
    assert build.encode_cy.encode_messages(data, positions, sizes, 0, 5) == b""
    chosen = array("q", [positions[3], positions[0]]), array("i", [sizes[3], sizes[0]])
    parsed = log_service_pb2.StreamRecordsResponse.FromString(build.encode_cy.encode_messages(data, *chosen, 1, 5))
    assert [one.topic for one in parsed.messages] == ["t" * 300]


def test_damaged_records_are_named(build: Build) -> None:
    """A record that is not whole, or not of its listed size, stops the call with its position; nothing is over-read."""
    good = encoded(7)
    size = len(good)
    guarded = Guarded(4096)
    wrong = [(0, size - 1), (0, size + 1), (1, size), (-1, size), (0, -1), (2**62, size), (size, 91), (0, 0), (0, 8)]
    for position, listed in wrong:
        with pytest.raises(ValueError, match=f"position {position}$"):
            build.encode_cy.encode_messages(guarded.hold(good), array("q", [position]), array("i", [listed]), 1, 5)
    for at in [*range(8), *range(84, 88)]:
        damaged = bytearray(good)
        damaged[at] ^= 0x81
        with pytest.raises(ValueError, match=r"position 0$"):
            build.encode_cy.encode_messages(guarded.hold(damaged), array("q", [0]), array("i", [size]), 1, 5)
    not_text = bytearray(good)
    not_text[good.index(b"TopicTest")] = 0xFF
    with pytest.raises(ValueError, match=r"position 0$"):
        build.encode_cy.encode_messages(not_text, array("q", [0]), array("i", [size]), 1, 5)


def test_bad_arguments(build: Build) -> None:
    """More records than are listed and a field number of two bytes are the caller's errors."""
    for count, number in ((2, 5), (1, 0), (1, 16)):
        with pytest.raises(ValueError, match=r"records of field"):
            build.encode_cy.encode_messages(encoded(0), array("q", [0]), array("i", [len(encoded(0))]), count, number)
        with pytest.raises(ValueError, match=r"records of field"):
            build.encode_cy.encode_records(
                encoded(0), array("q", [0]), array("i", [len(encoded(0))]), count, number, b""
            )


@pytest.mark.parametrize("head", [b"", b"\x08\x01", bytes(300)])
def test_records_behind_a_head(build: Build, head: bytes) -> None:
    """The records are the field behind the head, in the order of the positions, with the bytes that they have."""
    data, positions, sizes = records()
    places = list(zip(positions, sizes, strict=True))[::-1]
    chosen = array("q", [place[0] for place in places]), array("i", [place[1] for place in places])
    for count in (len(places), 2, 1):
        out = build.encode_cy.encode_records(data, *chosen, count, 4, head)
        assert isinstance(out, bytes)
        assert out[: len(head)] == head
        parsed = log_service_pb2.StreamRecordsResponse.FromString(out[len(head) :])
        assert parsed.records == b"".join(data[at : at + size] for at, size in places[:count])
        assert parsed.SerializeToString() == out[len(head) :]
    assert build.encode_cy.encode_records(data, *chosen, 0, 4, head) == head


def test_both_forms_refuse_the_same_records(build: Build) -> None:
    """Every changed byte, every cut and every wrong size: both forms fail, or neither."""
    good = encoded(7, crc_property=True)
    guarded = Guarded(4096)
    cases = [(good[:size], 0, len(good)) for size in range(len(good))]
    cases += [(good, position, size) for position in (-1, 0, 1, 2**62) for size in (-1, 0, 91, len(good) + 1)]
    for at in range(len(good)):
        damaged = bytearray(good)
        damaged[at] ^= 0xFF
        cases.append((bytes(damaged), 0, len(good)))
    refused = 0
    for data, position, size in cases:
        held = guarded.hold(data)
        places = array("q", [position]), array("i", [size])
        answers = []
        for make in (
            lambda: build.encode_cy.encode_messages(held, *places, 1, 4),  # noqa: B023 - called at once
            lambda: build.encode_cy.encode_records(held, *places, 1, 4, b"head"),  # noqa: B023
        ):
            try:
                make()
                answers.append("")
            except ValueError as error:
                answers.append(str(error))
        assert answers[0] == answers[1], (data, position, size)
        refused += answers[0] != ""
    assert refused > len(good)
