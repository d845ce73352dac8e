# SPDX-License-Identifier: Apache-2.0
"""append asks for a stamp when a request names a writer, writes it to the first record, and scan finds it there."""

from typing import Any

import pytest

from libs.formats.protobuf_wire import int_field, length_delimited
from libs.formats.records import properties, record
from libs.formats.records.writer_stamp import WriterStamp, decode, encode_property
from libs.kernel import layout
from tests.unit.libs.kernel.builds import BUILDS, Build, label
from tests.unit.libs.kernel.requests import Appender, entry, message, request

pytestmark = pytest.mark.parametrize("build", BUILDS, ids=label)

WRITER = length_delimited(3, length_delimited(1, b"etl/0") + int_field(2, 7))
STAMP = encode_property(WriterStamp("etl/0", 7, 0xDEADBEEF, 1 << 40, 500))
FORGED = b"REPUT_WRITER\x01forged\x02"


def string(raw: bytes) -> bytes:
    """A message with a property string."""
    return message(b"TopicTest", length_delimited(5, raw))


def stored(appender: Appender, data: bytes, stamp: bytes) -> list[record.Record]:
    """The records of a batch, with checked checksums."""
    position = appender.position
    assert appender.append(data, stamp) > 0
    found = []
    while position < appender.position:
        found.append(record.decode(appender.segment, position))
        position += found[-1].size_bytes
    return found


def scanned(build: Build, appender: Appender) -> Any:
    """Columns of a scan over the appended records."""
    columns = build.scan_cy.ScanColumns(16, 16)
    build.scan_cy.scan(appender.segment, 0, appender.position, appender.base_physical_offset, True, columns)
    return columns


def test_a_writer_is_told_first(build: Build) -> None:
    """Without a stamp nothing is written.

    The answer has the place of the writer in the request, and the size that the batch will take.
    """
    appender = Appender(build)
    data = request(string(b"A\x01b\x02"), message()) + WRITER
    before = bytes(appender.segment)
    assert appender.append(data) == layout.E_WRITER
    columns = appender.columns
    assert data[columns.writer_start : columns.writer_start + columns.writer_size] == WRITER[2:]
    assert (columns.error_index, columns.error_field, columns.count) == (-1, 3, 0)
    assert (bytes(appender.segment), appender.table.counters()) == (before, [])
    plain_size = columns.error_value
    assert appender.append(data, STAMP) == plain_size + len(STAMP)
    assert appender.append(request(message())) > 0
    assert appender.columns.writer_start == -1


@pytest.mark.parametrize("crc_property", [False, True])
@pytest.mark.parametrize(
    ("first", "expected"),
    [
        (message(), b""),
        (string(b"A\x01b\x02"), b"A\x01b\x02"),
        (string(b"A\x01b"), b"A\x01b\x02"),
        (string(FORGED + b"A\x01b"), b"A\x01b\x02"),
        (string(b"A\x01b\x02" + FORGED), b"A\x01b\x02"),
        (message(b"TopicTest", entry(b"A", b"b"), entry(b"REPUT_WRITER", b"forged")), b"A\x01b\x02"),
        (string(b"DELAY\x011\x02" + FORGED), b"DELAY\x011\x02REAL_TOPIC\x01TopicTest\x02REAL_QID\x011\x02"),
    ],
)
def test_the_stamp_is_in_the_first_record_only(build: Build, first: bytes, expected: bytes, crc_property: bool) -> None:
    """The stamp is behind the other properties of the first record and before the CRC property.

    A property with the name of the stamp that a client sent is dropped.
    """
    appender = Appender(build, crc_property=crc_property)
    found = stored(appender, request(first, string(b"B\x01c\x02" + FORGED)) + WRITER, STAMP)
    raws = [one.properties.removesuffix(one.properties[-20:] if crc_property else b"") for one in found]
    assert raws == [expected + STAMP, b"B\x01c\x02"]
    columns = scanned(build, appender)
    assert columns.stamps == [(0, STAMP[13:-1])]
    assert decode(columns.stamps[0][1]).writer_id == "etl/0"


def test_records_without_a_writer_keep_no_stamp(build: Build) -> None:
    """A property of the name from a client never becomes a stamp."""
    appender = Appender(build)
    found = stored(appender, request(string(FORGED), string(FORGED + b"A\x01b\x02")), b"")
    assert [one.properties for one in found] == [b"", b"A\x01b\x02"]
    assert scanned(build, appender).stamps == []


def test_every_stamp_is_found(build: Build) -> None:
    """A scan finds each stamp with its record, in order, also when other records stand between."""
    appender = Appender(build)
    for count in (1, 3, 2):
        stored(appender, request(*[message()] * count) + WRITER, STAMP)
    assert scanned(build, appender).stamps == [(0, STAMP[13:-1]), (1, STAMP[13:-1]), (4, STAMP[13:-1])]


@pytest.mark.parametrize("field", [WRITER + WRITER, int_field(3, 5)])
def test_a_malformed_writer_is_refused(build: Build, field: bytes) -> None:
    """A request with two writers, or with another field in the writer's place, is refused."""
    appender = Appender(build)
    assert appender.append(request(message()) + field) == layout.E_WIRE
    assert appender.columns.error_field == 3


def test_what_is_wrong_goes_before_the_writer(build: Build) -> None:
    """A fault of a request is reported before its writer; a stamp counts in the size of the properties."""
    appender = Appender(build)
    assert appender.append(request(message(b"Closed")) + WRITER) == layout.E_TOPIC_FORBIDDEN
    assert appender.append(request(message(b"Unknown")) + WRITER) == layout.E_TOPIC_UNKNOWN
    room = 32_767 - len(STAMP) - 3
    full = request(string(b"A\x01" + b"x" * room + b"\x02")) + WRITER
    assert appender.append(full, STAMP) > 0
    over = request(string(b"A\x01" + b"x" * (room + 1) + b"\x02")) + WRITER
    assert appender.append(over) == layout.E_WRITER
    assert appender.append(over, STAMP) == layout.E_PROPERTIES_SIZE
    assert properties.decode(STAMP)
