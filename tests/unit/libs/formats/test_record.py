# SPDX-License-Identifier: Apache-2.0
"""Records through the reader of libs.formats: the shared table of frames, and the promises of the writer."""

import pytest

from libs.formats import crc
from libs.formats.errors import BadChecksum, BadField, BadLength, BadMagic, FormatError, Truncated
from libs.formats.records import properties, record
from tests.support.frame_cases import FRAME_CASES, flipped
from tests.support.records import IPV6_BORN, IPV6_STORE, encoded, make_record

OUTCOMES = {Truncated: "truncated", BadMagic: "bad_magic", BadLength: "bad_length", BadChecksum: "bad_crc"}


def walk(data: bytes, base_physical_offset: int) -> tuple[int, int, str]:
    """(good records, stop position, outcome): the plainest reader of a run of records, in the order of the checks."""
    count = position = 0
    while position < len(data):
        if record.is_blank(data, position):
            return count, position, "blank"
        try:
            decoded = record.decode(data, position, check_crc=False)
            if decoded.physical_offset != base_physical_offset + position:
                return count, position, "bad_offset"
            assert record.decode(data, position) == decoded
        except FormatError as error:
            is_inside = position <= error.position <= len(data)
            return count, position, OUTCOMES[type(error)] if is_inside else f"position {error.position}"
        count, position = count + 1, position + decoded.size_bytes
    return count, position, "ok"


def test_frames(subtests: pytest.Subtests) -> None:
    """Every hostile or good buffer has exactly the outcome of the table, never another exception."""
    for case in FRAME_CASES:
        expected = (case.record_count, case.stop_position, case.outcome)
        with subtests.test(case.name):
            assert walk(case.data, case.base_physical_offset) == expected


def test_good_frames_are_written_back_byte_for_byte(subtests: pytest.Subtests) -> None:
    """Decoding and encoding again gives the same bytes, with and without the CRC property."""
    good = [case for case in FRAME_CASES if case.name.startswith("good_")]
    assert good
    for case in good:
        with subtests.test(case.name):
            _check_written_back(case.data)


def _check_written_back(data: bytes) -> None:
    position = 0
    while position < len(data):
        decoded = record.decode(data, position)
        has_crc = properties.get(decoded.properties, properties.CRC32) is not None
        again = record.encode(decoded, crc_property=has_crc)
        assert again == data[position : position + decoded.size_bytes]
        position += len(again)


def test_every_single_byte_flip_of_a_record_with_crc_property_is_seen() -> None:
    """With the CRC property each flipped byte is detected, except in the name of the CRC property."""
    data = encoded(crc_property=True)
    name = range(len(data) - 20, len(data) - 11)
    for position in set(range(len(data))) - set(name):
        assert walk(flipped(data, position, 0x40), 0)[2] != "ok"


def test_decoding_without_crc_check_reads_a_damaged_body() -> None:
    """A reader that trusts the bytes can skip the checksums."""
    data = flipped(encoded(crc_property=True), 90, 0x01)
    with pytest.raises(BadChecksum):
        record.decode(data)
    assert record.decode(data, check_crc=False).body != make_record().body


def test_end_bounds_what_is_read() -> None:
    """A record that exceeds the caller's end is truncated, even if the buffer continues."""
    data = encoded() + encoded()
    with pytest.raises(Truncated):
        record.decode(data, 0, end=len(encoded()) - 1)


def test_client_crc_property_is_never_kept() -> None:
    """A `__CRC32#` that came with the message is dropped or recomputed."""
    raw = b"A\x011\x02__CRC32#\x010000000000\x02B\x012\x02"
    plain = record.decode(encoded(properties=raw))
    assert plain.properties == b"A\x011\x02B\x012\x02"
    checked = record.decode(encoded(properties=raw, crc_property=True))
    assert checked.properties.startswith(b"A\x011\x02B\x012\x02__CRC32#\x01")
    assert len(checked.properties) == 8 + 20


def test_crc_property_adds_the_missing_last_separator() -> None:
    """Properties without their last 0x02 get a 0x02 before the CRC property, and empty properties get none."""
    assert record.decode(encoded(properties=b"A\x011", crc_property=True)).properties[:4] == b"A\x011\x02"
    assert len(record.decode(encoded(properties=b"", crc_property=True)).properties) == 20


def test_host_bits_of_the_client_are_not_trusted() -> None:
    """IPv6 bits come from the hosts, with any bits in the client's flag.

    RocketMQ keeps wrong bits and writes a corrupt record.
    """
    assert record.decode(encoded(sys_flag=0x31)).sys_flag == 0x1
    assert record.decode(encoded(sys_flag=0, born_host=IPV6_BORN)).sys_flag == 0x10


def test_topic_that_is_not_utf8_is_refused_with_its_position() -> None:
    """A topic of other bytes is a BadField at the first wrong byte."""
    data = bytearray(encoded())
    shape = record.check_header(data)
    data[shape.topic_at + 2] = 0xFF
    with pytest.raises(BadField) as caught:
        record.decode(data)
    assert (caught.value.position, caught.value.field) == (shape.topic_at + 2, "topic")


def test_crc_property_positions_are_named() -> None:
    """A CRC property that holds no number is a bad checksum at its start."""
    with pytest.raises(BadChecksum) as caught:
        crc.crc_property_value(b"__CRC32#\x01" + b"12345x7890" + b"\x02", position=112)
    assert caught.value.position == 112


@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize("hosts", [{}, {"born_host": IPV6_BORN, "store_host": IPV6_STORE}])
def test_claimed_body_end(version: int, hosts: dict[str, object]) -> None:
    """The head alone gives the end of the body, also if the rest is torn.

    A damaged head gives no end.
    """
    data = bytearray(encoded(7_000, version=version, body=bytes(300), **hosts))
    shape = record.check_header(data)
    body_end = shape.body_at + 300
    for end in range(len(data) + 1):
        found = record.claimed_body_end(data[:end], 0, 7_000)
        assert found == (body_end if end >= shape.body_at else None), end
    assert record.claimed_body_end(data, 0, 7_001) is None
    for position in (0, 4, 28, shape.body_at - 4):
        assert record.claimed_body_end(flipped(data, position, 0x40), 0, 7_000) is None


@pytest.mark.parametrize(("stored", "appended"), [(-1, 0), (0, 0), (5, 5), (2**63 - 1, 253_402_300_799_999)])
def test_a_born_time_that_no_append_takes_becomes_the_nearest_one(stored: int, appended: int) -> None:
    """A born time out of range becomes the nearest allowed time.

    So a message that is appended again is never refused for it, for example a delayed message of another store.
    """
    assert record.born_time_within(stored) == appended
