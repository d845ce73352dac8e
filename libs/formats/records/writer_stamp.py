# SPDX-License-Identifier: Apache-2.0
"""The stamp of a writer's batch: a property of its first record. Spec: docs/formats/commit_log.md section 13.

It records in the log itself which batches of which writer it has, so that a repeated batch is recognized.
"""

import re

from msgspec import Struct

from libs.formats.errors import BadField, BadLength
from libs.formats.limits import INT32_MAX, INT64_MAX
from libs.formats.records import properties

WRITER_ID_SIZE_BYTES_MAX = 200
_WRITER_ID = re.compile(rb"[!-~]{1,%d}" % WRITER_ID_SIZE_BYTES_MAX)
_LAYOUT = re.compile(rb"([0-9a-f]{16})([0-9a-f]{8})([0-9a-f]{8})([0-9a-f]{16})")
DIGIT_COUNT = 16 + 8 + 8 + 16


class WriterStamp(Struct, frozen=True):
    """A batch of a writer, and its place. The whole batch is in the log if its last byte is in the log."""

    writer_id: str
    sequence: int
    """Number of the batch within its writer, from 0."""
    checksum: int
    """CRC-32 of the whole serialized request."""
    start_physical_offset: int
    size_bytes: int
    """Bytes of all records of the batch."""

    @property
    def end_physical_offset(self) -> int:
        """End of the batch, exclusive."""
        return self.start_physical_offset + self.size_bytes


def is_writer_id(text: str) -> bool:
    """Return whether this is 1 to 200 printable ASCII characters without spaces."""
    return text.isascii() and _WRITER_ID.fullmatch(text.encode()) is not None


def property_size_bytes(writer_id: str) -> int:
    """Return the bytes of the property of a stamp, with its separators."""
    return len(properties.WRITER) + 2 + DIGIT_COUNT + len(writer_id)


def encode_property(stamp: WriterStamp) -> bytes:
    """Return the property: name, 0x01, value, 0x02."""
    assert is_writer_id(stamp.writer_id)
    assert 0 <= stamp.sequence <= INT64_MAX
    assert 0 <= stamp.checksum < 2**32
    assert 0 <= stamp.start_physical_offset <= INT64_MAX
    assert 0 < stamp.size_bytes <= INT32_MAX
    numbers = f"{stamp.start_physical_offset:016x}{stamp.size_bytes:08x}{stamp.checksum:08x}{stamp.sequence:016x}"
    return properties.WRITER + b"\x01" + (numbers + stamp.writer_id).encode("ascii") + b"\x02"


def decode(value: bytes) -> WriterStamp:
    """Return the stamp in the value of a property. Raises BadLength or BadField."""
    if not DIGIT_COUNT < len(value) <= DIGIT_COUNT + WRITER_ID_SIZE_BYTES_MAX:
        raise BadLength(position=0, reason=f"a stamp of {len(value)} bytes", field=properties.WRITER.decode())
    match = _LAYOUT.match(value)
    if match is None:
        raise BadField(position=0, reason="the numbers are not hexadecimal", field=properties.WRITER.decode())
    if _WRITER_ID.fullmatch(value, DIGIT_COUNT) is None:
        raise BadField(position=DIGIT_COUNT, reason="the id has other characters", field=properties.WRITER.decode())
    start, size_bytes, checksum, sequence = (int(digits, 16) for digits in match.groups())
    if start > INT64_MAX or sequence > INT64_MAX or not 0 < size_bytes <= INT32_MAX:
        raise BadField(position=0, reason="a number is out of range", field=properties.WRITER.decode())
    return WriterStamp(value[DIGIT_COUNT:].decode("ascii"), sequence, checksum, start, size_bytes)
