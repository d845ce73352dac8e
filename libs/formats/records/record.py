# SPDX-License-Identifier: Apache-2.0
"""Record: a message in the commit log, and the blank that closes a segment. Spec: docs/formats/commit_log.md.

Reads V1 and V2 records with IPv4 or IPv6 hosts, with or without the last 0x02 of the properties and the CRC property.
Cheap checks are first, and each failure has its own error: the end of the buffer (Truncated), magic (BadMagic), lengths
(BadLength), checksums (BadChecksum), text (BadField). The stored physical offset is returned without a check, because
the caller knows the record's place. Not handled: walking a segment (libs.kernel.scan.scan_cy) and the limits of an
append.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

from msgspec import Struct

from libs.formats import crc
from libs.formats.errors import BadChecksum, BadField, BadLength, BadMagic, Truncated
from libs.formats.limits import (
    BLANK_SIZE_BYTES_MIN,
    BORN_TIME_MS_MAX,
    CRC_PROPERTY_SIZE_BYTES,
    INT16_MAX,
    INT32_MAX,
    PROPERTIES_SIZE_BYTES_MAX,
    RECORD_SIZE_BYTES_MIN,
    TOPIC_SIZE_BYTES_MAX,
)
from libs.formats.records import properties
from libs.formats.records.host import HOST_IPV4_SIZE_BYTES, HOST_IPV6_SIZE_BYTES, Host

if TYPE_CHECKING:
    from libs.formats.buffers import ReadableBuffer

MAGIC_V1 = 0xDAA320A7 - 2**32
MAGIC_V2 = 0xDAA320AB - 2**32
MAGIC_BLANK = 0xCBD43194 - 2**32

TOTAL_SIZE_AT = 0
MAGIC_AT = 4
BODY_CRC_AT = 8
QUEUE_ID_AT = 12
FLAG_AT = 16
QUEUE_OFFSET_AT = 20
PHYSICAL_OFFSET_AT = 28
SYS_FLAG_AT = 36
BORN_TIME_AT = 40
BORN_HOST_AT = 48
STORE_TIME_AT_IPV4 = 56
"""Position with an IPv4 born host. With an IPv6 born host the store time is 12 bytes later."""

HEAD = struct.Struct(">iiiiiqqiq")  # total size ... born time
TIME = struct.Struct(">q")
DELIVERY = struct.Struct(">iqi")  # reconsume times, prepared transaction offset, body size
INT = struct.Struct(">i")
LONG = struct.Struct(">q")
SHORT = struct.Struct(">h")
BLANK = struct.Struct(">ii")  # size of the blank, magic
assert HEAD.size == BORN_HOST_AT
assert BORN_HOST_AT + HOST_IPV4_SIZE_BYTES == STORE_TIME_AT_IPV4
assert BLANK.size == BLANK_SIZE_BYTES_MIN
assert HEAD.size + TIME.size + DELIVERY.size + 2 * HOST_IPV4_SIZE_BYTES + 1 + SHORT.size == RECORD_SIZE_BYTES_MIN

COMPRESSED_FLAG = 0x1
MULTI_TAGS_FLAG = 0x2
TRANSACTION_MASK = 0xC
TRANSACTION_NOT = 0x0
TRANSACTION_PREPARED = 0x4
TRANSACTION_COMMIT = 0x8
TRANSACTION_ROLLBACK = 0xC
BORN_HOST_V6_FLAG = 0x10
STORE_HOST_V6_FLAG = 0x20
NEED_UNWRAP_FLAG = 0x40
INNER_BATCH_FLAG = 0x80
COMPRESSION_TYPE_MASK = 0x700


class Record(Struct, frozen=True):
    """A message with all fields of its record. Times are in milliseconds since 1970, properties are as stored.

    `encode` derives the `sys_flag` bits for IPv6 hosts from the hosts. `properties` from a stored record include its
    CRC property. `encode` drops or recomputes it.
    """

    topic: str
    queue_id: int
    queue_offset: int
    physical_offset: int
    body: bytes
    properties: bytes
    flag: int
    sys_flag: int
    born_time_ms: int
    born_host: Host
    store_time_ms: int
    store_host: Host
    reconsume_times: int = 0
    prepared_transaction_offset: int = 0
    version: int = 1

    @property
    def size_bytes(self) -> int:
        """Size of the record with these fields and exactly these properties."""
        return (
            RECORD_SIZE_BYTES_MIN
            + (HOST_IPV6_SIZE_BYTES - HOST_IPV4_SIZE_BYTES) * (self.born_host.is_ipv6 + self.store_host.is_ipv6)
            + (self.version == 2)
            + len(self.body)
            + len(self.topic.encode())
            + len(self.properties)
        )


class RecordShape(Struct, frozen=True):
    """The places of a record's fields: positions in the caller's buffer, sizes in bytes. Lengths are consistent."""

    position: int
    size_bytes: int
    version: int
    store_time_at: int
    store_host_at: int
    reconsume_times_at: int
    body_size_at: int
    body_at: int
    body_size_bytes: int
    topic_size_at: int
    topic_at: int
    topic_size_bytes: int
    properties_size_at: int
    properties_at: int
    properties_size_bytes: int

    @property
    def end(self) -> int:
        """The position after the last byte."""
        return self.position + self.size_bytes

    @property
    def crc_property_at(self) -> int:
        """The start of the CRC property, if the record has a CRC property (`has_crc_property`)."""
        return self.end - CRC_PROPERTY_SIZE_BYTES


def sys_flag_with_hosts(sys_flag: int, born_host: Host, store_host: Host) -> int:
    """Return the flag with its two IPv6 bits set or cleared by the hosts."""
    cleared = sys_flag & ~(BORN_HOST_V6_FLAG | STORE_HOST_V6_FLAG)
    return cleared | BORN_HOST_V6_FLAG * born_host.is_ipv6 | STORE_HOST_V6_FLAG * store_host.is_ipv6


def born_time_within(born_time_ms: int) -> int:
    """Return a born time for an append. A time out of range, from another store, becomes the nearest valid time."""
    return min(max(born_time_ms, 0), BORN_TIME_MS_MAX)


def encode(record: Record, *, crc_property: bool = False) -> bytes:
    """Return the record in the form of RocketMQ 5.3, with a computed BODYCRC.

    `crc_property` adds the CRC over the whole record. An old `__CRC32#` among the properties is always replaced or
    dropped.
    """
    topic = record.topic.encode()
    assert record.version in (1, 2)
    assert len(topic) <= (TOPIC_SIZE_BYTES_MAX if record.version == 1 else INT16_MAX)
    stored = properties.remove(record.properties, properties.CRC32)
    if crc_property and stored and not stored.endswith(properties.PROPERTY_SEPARATOR):
        stored += properties.PROPERTY_SEPARATOR
    properties_size = len(stored) + CRC_PROPERTY_SIZE_BYTES * crc_property
    assert properties_size <= PROPERTIES_SIZE_BYTES_MAX
    sys_flag = sys_flag_with_hosts(record.sys_flag, record.born_host, record.store_host)
    parts = [
        b"",
        record.born_host.to_bytes(),
        TIME.pack(record.store_time_ms),
        record.store_host.to_bytes(),
        DELIVERY.pack(record.reconsume_times, record.prepared_transaction_offset, len(record.body)),
        record.body,
        bytes([len(topic)]) if record.version == 1 else SHORT.pack(len(topic)),
        topic,
        SHORT.pack(properties_size),
        stored,
    ]
    total = HEAD.size + sum(map(len, parts)) + CRC_PROPERTY_SIZE_BYTES * crc_property
    parts[0] = HEAD.pack(
        total,
        MAGIC_V1 if record.version == 1 else MAGIC_V2,
        crc.body_crc(record.body),
        record.queue_id,
        record.flag,
        record.queue_offset,
        record.physical_offset,
        sys_flag,
        record.born_time_ms,
    )
    encoded = b"".join(parts)
    return encoded + crc.crc_property(crc.body_crc(encoded)) if crc_property else encoded


def encode_blank(size_bytes: int) -> bytes:
    """Return the eight bytes that close a segment with so many bytes left. The bytes after them are unchanged."""
    assert BLANK_SIZE_BYTES_MIN <= size_bytes <= INT32_MAX
    return BLANK.pack(size_bytes, MAGIC_BLANK)


def is_blank(buffer: ReadableBuffer, position: int = 0) -> bool:
    """Return whether a blank starts here: the magic alone decides, as in RocketMQ."""
    with memoryview(buffer) as view:
        assert 0 <= position <= len(view)
        return len(view) - position >= BLANK.size and INT.unpack_from(view, position + MAGIC_AT)[0] == MAGIC_BLANK


def check_header(buffer: ReadableBuffer, position: int = 0, *, end: int | None = None) -> RecordShape:
    """Check magic and lengths of the record at `position` for consistency. Returns the places of its fields.

    `end` is the end of the bytes that may be read, by default the buffer's end. Reads no body, topic or properties.
    Raises Truncated, BadMagic (also for a blank) or BadLength.
    """
    with memoryview(buffer) as view:
        end = len(view) if end is None else end
        assert 0 <= position <= end <= len(view)
        return _shape(view, position, end)


def is_head(buffer: ReadableBuffer, position: int, physical_offset: int) -> bool:
    """Return whether a record's magic is here, and its stored physical offset is this offset."""
    with memoryview(buffer) as view:
        if not 0 <= position <= len(view) - SYS_FLAG_AT:
            return False
        magic = INT.unpack_from(view, position + MAGIC_AT)[0]
        stored = LONG.unpack_from(view, position + PHYSICAL_OFFSET_AT)[0]
    return magic in (MAGIC_V1, MAGIC_V2) and stored == physical_offset


def claimed_body_end(buffer: ReadableBuffer, position: int, physical_offset: int) -> int | None:
    """Return the end of the body by the head at `position`, None unless it is the head of a record of this place.

    Only the head is checked: magic, stored physical offset, and a body that leaves the rest of the head's total size
    to topic and properties. The body may be past the buffer's end, or be torn.
    """
    with memoryview(buffer) as view:
        if len(view) - position < HEAD.size:
            return None
        size, magic, _, _, _, _, stored, sys_flag, _ = HEAD.unpack_from(view, position)
        body_at = position + HEAD.size + TIME.size + DELIVERY.size + sum(_host_sizes(sys_flag))
        if magic not in (MAGIC_V1, MAGIC_V2) or stored != physical_offset or len(view) < body_at:
            return None
        body_end = body_at + INT.unpack_from(view, body_at - INT.size)[0]
        topic_size_size = 2 if magic == MAGIC_V2 else 1
        rest = position + size - body_end - topic_size_size - SHORT.size
        is_consistent = body_end >= body_at and 0 < rest <= INT16_MAX + PROPERTIES_SIZE_BYTES_MAX
        return body_end if is_consistent else None


def _shape(view: memoryview, position: int, end: int) -> RecordShape:
    size, version = _size_and_version(view, position, end)
    sys_flag = INT.unpack_from(view, position + SYS_FLAG_AT)[0]
    born_size, store_size = _host_sizes(sys_flag)
    topic_size_size = version
    spare = size - (RECORD_SIZE_BYTES_MIN - 1 + topic_size_size) - (born_size + store_size - 2 * HOST_IPV4_SIZE_BYTES)
    if spare < 0:
        raise BadLength(position=position, reason=f"{size} bytes cannot hold such a record", field="total size")
    store_time_at = position + BORN_HOST_AT + born_size
    store_host_at = store_time_at + TIME.size
    reconsume_times_at = store_host_at + store_size
    body_size_at = reconsume_times_at + DELIVERY.size - INT.size
    body_size = INT.unpack_from(view, body_size_at)[0]
    if not 0 <= body_size <= spare:
        raise BadLength(position=body_size_at, reason=f"body size {body_size} of {size} bytes", field="body size")
    body_at = body_size_at + INT.size
    topic_size_at = body_at + body_size
    # The size of a V1 topic is a signed byte in RocketMQ: sizes from 128 on are negative.
    topic_size = struct.unpack_from(">b" if version == 1 else ">h", view, topic_size_at)[0]
    if not 0 <= topic_size <= spare - body_size:
        raise BadLength(position=topic_size_at, reason=f"topic size {topic_size}", field="topic size")
    topic_at = topic_size_at + topic_size_size
    properties_size_at = topic_at + topic_size
    properties_size = SHORT.unpack_from(view, properties_size_at)[0]
    if properties_size != spare - body_size - topic_size:
        reason = f"properties size {properties_size}, but {spare - body_size - topic_size} bytes are left for them"
        raise BadLength(position=properties_size_at, reason=reason, field="properties size")
    return RecordShape(
        position=position,
        size_bytes=size,
        version=version,
        store_time_at=store_time_at,
        store_host_at=store_host_at,
        reconsume_times_at=reconsume_times_at,
        body_size_at=body_size_at,
        body_at=body_at,
        body_size_bytes=body_size,
        topic_size_at=topic_size_at,
        topic_at=topic_at,
        topic_size_bytes=topic_size,
        properties_size_at=properties_size_at,
        properties_at=properties_size_at + SHORT.size,
        properties_size_bytes=properties_size,
    )


def _host_sizes(sys_flag: int) -> tuple[int, int]:
    """Return the sizes of the born host and of the store host in bytes."""
    return (
        HOST_IPV6_SIZE_BYTES if sys_flag & BORN_HOST_V6_FLAG else HOST_IPV4_SIZE_BYTES,
        HOST_IPV6_SIZE_BYTES if sys_flag & STORE_HOST_V6_FLAG else HOST_IPV4_SIZE_BYTES,
    )


def _size_and_version(view: memoryview, position: int, end: int) -> tuple[int, int]:
    left = end - position
    if left < BLANK.size:
        raise Truncated(position=position, reason=f"{left} bytes are left", field="total size")
    size, magic = BLANK.unpack_from(view, position)
    if magic not in (MAGIC_V1, MAGIC_V2):
        reason = "a blank" if magic == MAGIC_BLANK else f"magic {magic & 0xFFFFFFFF:#010x}"
        raise BadMagic(position=position + MAGIC_AT, reason=reason, field="magic")
    version = 1 if magic == MAGIC_V1 else 2
    if size < RECORD_SIZE_BYTES_MIN - 1 + version:
        raise BadLength(position=position, reason=f"total size {size}", field="total size")
    if size > left:
        raise Truncated(position=position, reason=f"total size {size}, {left} bytes are left", field="total size")
    return size, version


def has_crc_property(view: ReadableBuffer, shape: RecordShape) -> bool:
    """Return whether the record ends with a CRC property: its name and 0x01 are 20 bytes before the end."""
    start = shape.crc_property_at
    with memoryview(view) as bytes_view:
        return (
            shape.properties_size_bytes >= CRC_PROPERTY_SIZE_BYTES
            and bytes_view[start : start + len(crc.CRC_PROPERTY_PREFIX)] == crc.CRC_PROPERTY_PREFIX
        )


def check_body_crc(buffer: ReadableBuffer, shape: RecordShape) -> None:
    """Compare BODYCRC with the body. Raises BadChecksum at the body."""
    with memoryview(buffer) as view, view[shape.body_at : shape.topic_size_at] as body:
        computed = crc.body_crc(body)
        stored = INT.unpack_from(view, shape.position + BODY_CRC_AT)[0]
    if computed != stored:
        reason = f"BODYCRC is {stored & 0xFFFFFFFF:#010x}, the body has {computed:#010x}"
        raise BadChecksum(position=shape.body_at, reason=reason, field="body")


def check_crc_property(buffer: ReadableBuffer, shape: RecordShape) -> None:
    """Compare the CRC property with all bytes before it. The record must have a CRC property. Raises BadChecksum."""
    start = shape.crc_property_at
    with memoryview(buffer) as view, view[shape.position : start] as covered:
        computed = crc.body_crc(covered)
        stored = crc.crc_property_value(bytes(view[start : shape.end]), position=start)
    if computed != stored:
        reason = f"the CRC property says {stored}, the record has {computed}"
        raise BadChecksum(position=start, reason=reason, field="CRC property")


def decode(buffer: ReadableBuffer, position: int = 0, *, end: int | None = None, check_crc: bool = True) -> Record:
    """Return the record at `position`. `check_crc` checks BODYCRC and, if the record has it, the CRC property.

    Raises the errors of `check_header`, BadChecksum, or BadField for a topic that is not UTF-8.
    """
    shape = check_header(buffer, position, end=end)
    if check_crc:
        check_body_crc(buffer, shape)
        if has_crc_property(buffer, shape):
            check_crc_property(buffer, shape)
    with memoryview(buffer) as view, view[position : shape.end] as raw:
        return _decode_fields(raw, shape)


def _decode_fields(raw: memoryview, shape: RecordShape) -> Record:
    start = shape.position
    _, _, _, queue_id, flag, queue_offset, physical_offset, sys_flag, born_time = HEAD.unpack_from(raw)
    reconsume_times, prepared, _ = DELIVERY.unpack_from(raw, shape.reconsume_times_at - start)
    try:
        topic = str(raw[shape.topic_at - start : shape.properties_size_at - start], "utf-8")
    except UnicodeDecodeError as error:
        raise BadField(position=shape.topic_at + error.start, reason="the topic is not UTF-8", field="topic") from None
    return Record(
        topic=topic,
        queue_id=queue_id,
        queue_offset=queue_offset,
        physical_offset=physical_offset,
        body=bytes(raw[shape.body_at - start : shape.topic_size_at - start]),
        properties=bytes(raw[shape.properties_at - start :]),
        flag=flag,
        sys_flag=sys_flag,
        born_time_ms=born_time,
        born_host=Host.from_bytes(raw, BORN_HOST_AT, is_ipv6=bool(sys_flag & BORN_HOST_V6_FLAG)),
        store_time_ms=TIME.unpack_from(raw, shape.store_time_at - start)[0],
        store_host=Host.from_bytes(raw, shape.store_host_at - start, is_ipv6=bool(sys_flag & STORE_HOST_V6_FLAG)),
        reconsume_times=reconsume_times,
        prepared_transaction_offset=prepared,
        version=shape.version,
    )
