# SPDX-License-Identifier: Apache-2.0
"""Inspection of a commit log segment: every record, and the wrong field of every damaged record.

Layout: docs/formats/commit_log.md.
After a damaged record the walk continues at the next record: behind its size if that can be trusted, else at the next
magic whose stored physical offset fits its place. So a single flipped byte gives a single finding.
"""

from __future__ import annotations

import re
from contextlib import closing

from msgspec import Struct

from cli.inspect.damage import explain_checksums, explain_structure, next_record
from cli.inspect.inspection import Data, Finding, Inspection, Item, Steps
from cli.verify.files import Files
from libs.formats.crc import CRC_PROPERTY_PREFIX
from libs.formats.errors import BadField, BadMagic, FormatError
from libs.formats.limits import CRC_PROPERTY_SIZE_BYTES, MIB, QUEUE_COUNT_MAX
from libs.formats.records import message_id, properties, record
from libs.formats.records.host import HOST_IPV4_SIZE_BYTES, HOST_IPV6_SIZE_BYTES
from libs.formats.records.record import Record, RecordShape
from libs.kernel.scan.scan_cy import check_record

BODY_PREVIEW_BYTES = 80
_PROGRESS_STEP_BYTES = 8 * MIB
_TOPIC = re.compile(r"[%|+a-zA-Z0-9_-]+", re.ASCII)


class _Walk(Struct):
    """The state of the walk. It ends with the file, or when `end` is set to the reason."""

    data: Data
    base: int
    inspection: Inspection
    position: int = 0
    number: int = 0
    store_time_ms: int | None = None
    end: str = ""

    @property
    def name(self) -> str:
        """The name of the current record in findings."""
        return f"record {self.number} at physical offset {self.base + self.position}"


def inspect_segment(data: Data, inspection: Inspection) -> Steps:
    """Yield records and findings of a segment. If its name is no base offset, the first record has it."""
    base = inspection.base
    if base is None:
        base = record.LONG.unpack_from(data, record.PHYSICAL_OFFSET_AT)[0] if len(data) >= record.SYS_FLAG_AT else 0
    walk = _Walk(data, base, inspection)
    reported = 0
    while not walk.end and walk.position < len(data):
        if walk.position >= reported + _PROGRESS_STEP_BYTES:
            reported = walk.position
            inspection.progress(reported)
        _skip_sound(walk, reported + _PROGRESS_STEP_BYTES)
        if walk.position < len(data):
            yield from _step(walk)
    inspection.summary.update(
        end=walk.end or "the last record ends with the file",
        base_physical_offset=base,
        record_count=walk.number,
        end_position=walk.position,
    )


def _skip_sound(walk: _Walk, stop: int) -> None:
    """Pass over records that are not shown and that their CRC property proves sound, up to about position `stop`.

    Only the order of store times is checked for them. Any other record is left to `_step`.
    """
    data, end, base = walk.data, len(walk.data), walk.base
    while walk.position < min(stop, end) and not walk.inspection.window.shows(walk.number):
        position = walk.position
        size = check_record(data, position, end, base, True)
        record_end = position + size
        crc_property_at = record_end - CRC_PROPERTY_SIZE_BYTES
        if size <= 0 or data[record_end - 1] != properties.PROPERTY_SEPARATOR[0]:
            return
        if data[crc_property_at : crc_property_at + len(CRC_PROPERTY_PREFIX)] != CRC_PROPERTY_PREFIX:
            return
        is_ipv6 = data[position + record.SYS_FLAG_AT + 3] & record.BORN_HOST_V6_FLAG != 0
        store_time_at = position + record.STORE_TIME_AT_IPV4 + (HOST_IPV6_SIZE_BYTES - HOST_IPV4_SIZE_BYTES) * is_ipv6
        store_time_ms = record.TIME.unpack_from(data, store_time_at)[0]
        if walk.store_time_ms is not None and store_time_ms < walk.store_time_ms:
            return
        walk.store_time_ms = store_time_ms
        walk.position, walk.number = record_end, walk.number + 1


def _step(walk: _Walk) -> Steps:
    data, position = walk.data, walk.position
    if record.is_blank(data, position):
        yield from _blank(walk)
        return
    try:
        shape = record.check_header(data, position)
    except FormatError as error:
        is_zero = isinstance(error, BadMagic) and not any(data[position : position + 8])
        yield from _unwritten(walk) if is_zero else _damaged(walk, error)
        return
    verdict = explain_checksums(data, shape, walk.base)
    if walk.inspection.window.shows(walk.number):
        yield _item(walk, shape)
    if verdict is not None:
        yield Finding(verdict.position, walk.name, verdict.field, verdict.message)
    else:
        yield from _implausible(walk, shape)
    walk.position, walk.number = shape.end, walk.number + 1


def _blank(walk: _Walk) -> Steps:
    left = len(walk.data) - walk.position
    size = record.BLANK.unpack_from(walk.data, walk.position)[0]
    if walk.inspection.window.shows(walk.number):
        yield Item("blank", walk.number, walk.position, {"size_bytes": size})
    walk.end = "a blank closes the segment"
    if size != left:
        name = f"blank at physical offset {walk.base + walk.position}"
        yield Finding(walk.position, name, "total size", f"it is {size}, but {left} bytes are left")


def _unwritten(walk: _Walk) -> Steps:
    """Handle zeros at the place of a record: the end of the written part if only zeros follow, else a finding."""
    with closing(Files()) as files:
        nonzero = files.first_nonzero(walk.inspection.path, walk.position, len(walk.data))
    if nonzero is None:
        walk.end = "unwritten space follows the last record"
        return
    yield Finding(walk.position, walk.name, "unwritten space", f"zeros, but byte {nonzero} is not zero")
    _resume(walk, next_record(walk.data, walk.position, walk.base))


def _damaged(walk: _Walk, error: FormatError) -> Steps:
    following = next_record(walk.data, walk.position, walk.base)
    verdict = explain_structure(walk.data, walk.position, walk.base, error, following)
    yield Finding(verdict.position, walk.name, verdict.field, verdict.message)
    if verdict.size_bytes:
        end = walk.position + verdict.size_bytes
        following = end if following is None else min(end, following)
    _resume(walk, following)


def _resume(walk: _Walk, following: int | None) -> None:
    walk.number += 1
    if following is None:
        walk.end = "no further record was found"
    else:
        walk.position = following


def _implausible(walk: _Walk, shape: RecordShape) -> Steps:
    """Yield values that no checksum covers in a record without CRC property, and the order of store times."""
    try:
        found = record.decode(walk.data, walk.position, check_crc=False)
    except BadField as error:
        yield Finding(error.position, walk.name, error.field, error.reason)
        return
    start = shape.position
    if not 0 <= found.queue_id <= QUEUE_COUNT_MAX:
        yield Finding(start + record.QUEUE_ID_AT, walk.name, "queue id", f"it is {found.queue_id}")
    if found.queue_offset < 0:
        yield Finding(start + record.QUEUE_OFFSET_AT, walk.name, "queue offset", f"it is {found.queue_offset}")
    if not _TOPIC.fullmatch(found.topic):
        yield Finding(shape.topic_at, walk.name, "topic", f"{found.topic[:80]!r} has other than the allowed characters")
    if not found.born_host.is_port_valid:
        yield Finding(start + record.BORN_HOST_AT, walk.name, "born host", f"port {found.born_host.port}")
    if not found.store_host.is_port_valid:
        yield Finding(shape.store_host_at, walk.name, "store host", f"port {found.store_host.port}")
    if walk.store_time_ms is not None and found.store_time_ms < walk.store_time_ms:
        message = f"it runs back by {walk.store_time_ms - found.store_time_ms} ms against the record before it"
        yield Finding(shape.store_time_at, walk.name, "store time", message)
    walk.store_time_ms = found.store_time_ms


def _item(walk: _Walk, shape: RecordShape) -> Item:
    fields: dict[str, object] = {"physical_offset": walk.base + walk.position, "size_bytes": shape.size_bytes}
    try:
        fields |= _fields(record.decode(walk.data, walk.position, check_crc=False))
    except BadField as error:
        fields["error"] = str(error)
    return Item("record", walk.number, walk.position, fields)


def _fields(found: Record) -> dict[str, object]:
    preview = found.body[:BODY_PREVIEW_BYTES].decode("utf-8", "backslashreplace")
    return {
        "version": found.version,
        "topic": found.topic,
        "queue_id": found.queue_id,
        "queue_offset": found.queue_offset,
        "stored_physical_offset": found.physical_offset,
        "flag": found.flag,
        "sys_flag": found.sys_flag,
        "born_time_ms": found.born_time_ms,
        "born_host": str(found.born_host),
        "store_time_ms": found.store_time_ms,
        "store_host": str(found.store_host),
        "reconsume_times": found.reconsume_times,
        "prepared_transaction_offset": found.prepared_transaction_offset,
        "offset_message_id": message_id.encode_offset_id(found.store_host, max(0, found.physical_offset)),
        "properties": properties.decode(found.properties),
        "body_size_bytes": len(found.body),
        "body_preview": preview,
    }
