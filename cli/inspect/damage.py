# SPDX-License-Identifier: Apache-2.0
"""Finds the wrong field of a damaged record. Layout: docs/formats/commit_log.md.

Two methods, both for the common case of a single damaged byte. If the structure is inconsistent, every byte that
belongs to the structure is replaced by every other value, until all lengths, the offset and the checksums agree again.
If only checksums fail, the difference of the two CRCs is rolled back byte by byte: a CRC is linear, so the difference
that a single byte makes names the byte. Damage of several bytes is named only as far as the failed checks show it.
"""

from __future__ import annotations

import itertools
import zlib
from collections.abc import Callable, Iterator
from typing import NamedTuple

from cli.inspect.inspection import Data
from libs.formats import crc
from libs.formats.errors import BadChecksum, FormatError
from libs.formats.limits import BLANK_SIZE_BYTES_MIN, CRC_PROPERTY_SIZE_BYTES, MIB
from libs.formats.records import record
from libs.formats.records.host import HOST_IPV4_SIZE_BYTES, HOST_IPV6_SIZE_BYTES
from libs.formats.records.record import RecordShape
from libs.log.tail_search import MAGIC_OR_BLANK

REPAIR_WINDOW_BYTES = 16 * MIB
"""Size of the window in which the end of a damaged record is searched; no record is larger."""

_MAGIC_BLANK = record.INT.pack(record.MAGIC_BLANK)

_TABLE = [zlib.crc32(bytes([value])) ^ zlib.crc32(b"\0") for value in range(256)]
_VALUE_OF_DIFFERENCE = {difference: value for value, difference in enumerate(_TABLE)}
_INDEX_OF_TOP_BYTE = {difference >> 24: value for value, difference in enumerate(_TABLE)}
assert len(_INDEX_OF_TOP_BYTE) == 256


class Verdict(NamedTuple):
    """The wrong field, the reason, its position, and the record's size, 0 if it is unknown."""

    field: str
    message: str
    position: int
    size_bytes: int = 0


def fields_of(shape: RecordShape) -> Iterator[tuple[str, int, int]]:
    """Yield (name, start, end) of every field of a record with a CRC property, in order and without a gap."""
    start = shape.position
    starts = [
        ("total size", start),
        ("magic", start + record.MAGIC_AT),
        ("body CRC", start + record.BODY_CRC_AT),
        ("queue id", start + record.QUEUE_ID_AT),
        ("flag", start + record.FLAG_AT),
        ("queue offset", start + record.QUEUE_OFFSET_AT),
        ("physical offset", start + record.PHYSICAL_OFFSET_AT),
        ("system flag", start + record.SYS_FLAG_AT),
        ("born time", start + record.BORN_TIME_AT),
        ("born host", start + record.BORN_HOST_AT),
        ("store time", shape.store_time_at),
        ("store host", shape.store_host_at),
        ("reconsume times", shape.reconsume_times_at),
        ("prepared transaction offset", shape.reconsume_times_at + 4),
        ("body size", shape.body_size_at),
        ("body", shape.body_at),
        ("topic size", shape.topic_size_at),
        ("topic", shape.topic_at),
        ("properties size", shape.properties_size_at),
        ("properties", shape.properties_at),
        ("CRC property", shape.crc_property_at),
        ("", shape.end),
    ]
    for (name, field_start), (_, field_end) in itertools.pairwise(starts):
        if field_end > field_start:
            yield name, field_start, field_end


def next_record(data: Data, position: int, base: int) -> int | None:
    """Return the start of the next record or blank after `position` that fits its place, or None."""
    for match in MAGIC_OR_BLANK.finditer(data, position + 1 + record.MAGIC_AT):
        start = match.start() - record.MAGIC_AT
        is_closing = record.BLANK.unpack_from(data, start) == (len(data) - start, record.MAGIC_BLANK)
        if is_closing or record.is_head(data, start, base + start):
            return start
    return None


def explain_structure(data: Data, position: int, base: int, error: FormatError, next_start: int | None) -> Verdict:
    """Return the field that makes the lengths or the magic of the record at `position` wrong."""
    end = next_start if next_start is not None else min(len(data), position + REPAIR_WINDOW_BYTES)
    window = bytearray(data[position:end])
    if next_start is None and len(window) >= BLANK_SIZE_BYTES_MIN:
        verdict = _explain_blank(window, position, len(data) - position)
        if verdict is not None:
            return verdict
    repairs = list(_repairs(window, base + position))
    ranks = [(has_crc, _is_followed(data, position + repair.size_bytes, base)) for repair, has_crc in repairs]
    best = max(ranks, default=None)
    found = {repair.field: repair for (repair, _), rank in zip(repairs, ranks, strict=True) if rank == best}
    if len(found) == 1:
        (repair,) = found.values()
        return repair._replace(position=position + repair.position)
    size = 0 if next_start is None else next_start - position
    if found:
        return Verdict(" or ".join(found), f"{error.reason}; either field could be wrong", position, size)
    return Verdict(error.field or "header", f"{error.reason}; more than one byte is damaged", error.position, size)


def _explain_blank(window: bytearray, position: int, left: int) -> Verdict | None:
    """Explain a blank with a damaged magic: its size fits the rest of the segment, three of four bytes are right."""
    wrong = sum(a != b for a, b in zip(window[4:8], _MAGIC_BLANK, strict=True))
    if wrong != 1 or int.from_bytes(window[:4], "big") != left:
        return None
    return Verdict("magic", "the magic of a blank has a wrong byte", position + record.MAGIC_AT, left)


def _is_followed(data: Data, end: int, base: int) -> bool:
    """Return whether a valid successor of a record is here: a record, a blank, unwritten space or the file's end."""
    is_end = end == len(data) or not any(data[end : end + BLANK_SIZE_BYTES_MIN])
    return is_end or record.is_blank(data, end) or record.is_head(data, end, base + end)


def _repairs(window: bytearray, physical_offset: int) -> Iterator[tuple[Verdict, bool]]:
    """Yield each repair of a single byte that makes the record agree again, and whether its CRC property proves it.

    Positions count from the window's start.
    """
    for field, at in _structural_bytes(window):
        right = window[at]
        for value in range(256):
            window[at] = value
            shape = _agreeing_shape(window, physical_offset) if value != right else None
            if shape is not None:
                message = f"byte {at} of the record is {right:#04x}, all checks agree with {value:#04x}"
                yield Verdict(field, message, at, shape.size_bytes), record.has_crc_property(window, shape)
        window[at] = right


def _structural_bytes(window: bytearray) -> Iterator[tuple[str, int]]:
    """Yield (field, position) of the bytes that determine the places of the fields, as far as they can be found."""
    if len(window) < record.BORN_HOST_AT:
        return
    sys_flag = window[record.SYS_FLAG_AT + 3]
    hosts = [record.BORN_HOST_V6_FLAG, record.STORE_HOST_V6_FLAG]
    host_sizes = sum(HOST_IPV6_SIZE_BYTES if sys_flag & bit else HOST_IPV4_SIZE_BYTES for bit in hosts)
    body_size_at = record.BORN_HOST_AT + host_sizes + record.TIME.size + record.DELIVERY.size - record.INT.size
    topic_size_at = body_size_at + 4 + int.from_bytes(window[body_size_at : body_size_at + 4], "big")
    version = 2 if window[7] == record.MAGIC_V2 & 0xFF else 1
    topic_size = int.from_bytes(window[topic_size_at : topic_size_at + version], "big")
    for field, start, size in (
        ("total size", record.TOTAL_SIZE_AT, 4),
        ("magic", record.MAGIC_AT, 4),
        ("system flag", record.SYS_FLAG_AT + 3, 1),
        ("body size", body_size_at, 4),
        ("topic size", topic_size_at, version),
        ("properties size", topic_size_at + version + topic_size, 2),
    ):
        yield from ((field, at) for at in range(start, min(start + size, len(window))))


def _agreeing_shape(window: bytearray, physical_offset: int) -> RecordShape | None:
    try:
        shape = record.check_header(window)
        if record.LONG.unpack_from(window, record.PHYSICAL_OFFSET_AT)[0] != physical_offset:
            return None
        record.check_body_crc(window, shape)
        if record.has_crc_property(window, shape):
            record.check_crc_property(window, shape)
    except FormatError:
        return None
    return shape


def explain_checksums(data: Data, shape: RecordShape, base: int) -> Verdict | None:
    """Return the field that fails a check of offset, BODYCRC or CRC property, or None. Lengths must be sound."""
    is_body_sound = _passes(record.check_body_crc, data, shape)
    offset_at = shape.position + record.PHYSICAL_OFFSET_AT
    is_offset_right = record.LONG.unpack_from(data, offset_at)[0] == base + shape.position
    has_property = record.has_crc_property(data, shape)
    if has_property:
        if not _passes(record.check_crc_property, data, shape):
            return _explain_crc_property(data, shape, is_body_sound=is_body_sound, is_offset_right=is_offset_right)
    elif _has_damaged_crc_property(data, shape):
        return _verdict(shape, "CRC property", "its name has a wrong byte, its number is right", shape.crc_property_at)
    if not is_offset_right:
        return _verdict(shape, "physical offset", f"it is not {base + shape.position}, where it lies", offset_at)
    if not is_body_sound:
        return _explain_body_crc(data, shape)
    return None


def _passes(check: Callable[[Data, RecordShape], None], data: Data, shape: RecordShape) -> bool:
    try:
        check(data, shape)
    except BadChecksum:
        return False
    return True


def _verdict(shape: RecordShape, field: str, message: str, position: int) -> Verdict:
    return Verdict(field, message, position, shape.size_bytes)


def _explain_crc_property(data: Data, shape: RecordShape, *, is_body_sound: bool, is_offset_right: bool) -> Verdict:
    stored = data[shape.crc_property_at : shape.end]
    covered = data[shape.position : shape.crc_property_at]
    computed = crc.body_crc(covered)
    if _differing(stored, crc.crc_property(computed)) == 1:
        return _verdict(shape, "CRC property", "one of its bytes is wrong", shape.crc_property_at)
    names = {"header", "topic", "properties"}
    try:
        difference = crc.crc_property_value(stored) ^ computed
        for at in _flipped_bytes(difference, len(covered)):
            position = shape.position + at
            field = next(name for name, start, end in fields_of(shape) if start <= position < end)
            # A damaged body or BODYCRC fails the body's own check; other damage does not.
            if (field in ("body", "body CRC")) != is_body_sound and (field != "physical offset") == is_offset_right:
                return _verdict(shape, field, f"the checksums point at byte {at} of the record", position)
    except BadChecksum:
        names.add("CRC property")
    if not is_offset_right:
        return _verdict(shape, "physical offset", "it is not where it lies", shape.position + record.PHYSICAL_OFFSET_AT)
    if is_body_sound:
        return _verdict(shape, " or ".join(sorted(names)), "the CRC property fails, BODYCRC agrees", shape.position)
    return _verdict(shape, "body or body CRC", "BODYCRC and the CRC property fail", shape.body_at)


def _explain_body_crc(data: Data, shape: RecordShape) -> Verdict:
    stored = data[shape.position + record.BODY_CRC_AT : shape.position + record.QUEUE_ID_AT]
    computed = record.INT.pack(crc.body_crc(data[shape.body_at : shape.topic_size_at]))
    if _differing(stored, computed) == 1:
        position = shape.position + record.BODY_CRC_AT
        return _verdict(shape, "body CRC", "one of its bytes disagrees with the body", position)
    return _verdict(shape, "body", "it does not have the checksum in BODYCRC", shape.body_at)


def _has_damaged_crc_property(data: Data, shape: RecordShape) -> bool:
    """Return whether the record ends with a CRC property that has a single wrong byte, in its name."""
    if shape.properties_size_bytes < CRC_PROPERTY_SIZE_BYTES:
        return False
    stored = data[shape.crc_property_at : shape.end]
    if _differing(stored[: len(crc.CRC_PROPERTY_PREFIX)], crc.CRC_PROPERTY_PREFIX) != 1:
        return False
    return _differing(stored, crc.crc_property(crc.body_crc(data[shape.position : shape.crc_property_at]))) == 1


def _differing(left: bytes, right: bytes) -> int:
    return sum(a != b for a, b in zip(left, right, strict=True))


def _flipped_bytes(difference: int, size_bytes: int) -> Iterator[int]:
    """Yield the positions, last first, at which a single wrong byte makes two masked CRCs differ like this."""
    candidates = (difference, difference | 1 << 31)  # the stored CRC has lost its top bit
    for at in range(size_bytes - 1, -1, -1):
        if any(candidate in _VALUE_OF_DIFFERENCE for candidate in candidates):
            yield at
        candidates = (_one_byte_earlier(candidates[0]), _one_byte_earlier(candidates[1]))


def _one_byte_earlier(difference: int) -> int:
    """Return the difference before a byte was added that both messages share."""
    index = _INDEX_OF_TOP_BYTE[difference >> 24]
    return (difference ^ _TABLE[index]) << 8 & 0xFFFFFFFF | index
