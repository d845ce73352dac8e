# SPDX-License-Identifier: Apache-2.0
"""Plain encoders of data that only the kernel or RocketMQ writes.

Tests compare with them, and make files with them.
"""

import re
from collections.abc import Iterable, Mapping, Sequence

from libs.formats.errors import BadField
from libs.formats.indexes import batch_consume_queue, consume_queue, index_file
from libs.formats.indexes.batch_consume_queue import BatchConsumeQueueUnit
from libs.formats.indexes.consume_queue_ext import ADDRESS_MAX, HEAD, UNIT_SIZE_BYTES_MIN
from libs.formats.indexes.index_file import IndexEntry, IndexHeader
from libs.formats.java import HASH_MAP_CAPACITY, hash_map_bucket
from libs.formats.limits import INT16_MAX, INT32_MAX
from libs.formats.records import properties
from libs.formats.records.delay_level import DELAY_LEVEL_MAX, DELAY_LEVELS_MS, SCHEDULE_TOPIC
from libs.formats.records.properties import (
    CRC32,
    DELAY,
    REAL_QID,
    REAL_TOPIC,
    TIMER_DELAY_MS,
    TIMER_DELAY_SEC,
    TIMER_DELIVER_MS,
)
from libs.formats.records.record import Record

_JAVA_INT = re.compile(rb"[+-]?[0-9]{1,40}", re.ASCII)


def hash_map_order(names: Iterable[str], capacity: int = HASH_MAP_CAPACITY) -> list[str]:
    """Return the names in the order of a HashMap that is filled with them.

    A repeated name keeps its first place. `capacity` is the first capacity, a power of two; the map doubles when it is
    more than three quarters full. Not handled: a bucket with more than eight names, which Java turns into a tree and
    may reorder.
    """
    unique = list(dict.fromkeys(names))
    while len(unique) * 4 > capacity * 3:
        capacity *= 2
    return sorted(unique, key=lambda name: hash_map_bucket(name, capacity))


def java_properties(mapping: Mapping[str, str]) -> bytes:
    """Return the properties in the order of RocketMQ's HashMap."""
    return properties.encode({name: mapping[name] for name in hash_map_order(mapping)})


def queue_unit(physical_offset: int, record_size_bytes: int, tags_code: int) -> bytes:
    """A unit of 20 bytes."""
    assert physical_offset >= 0
    assert record_size_bytes > 0
    return consume_queue.ENTRY.pack(physical_offset, record_size_bytes, tags_code)


def batch_queue_unit(unit: BatchConsumeQueueUnit) -> bytes:
    """A unit of 46 bytes."""
    assert unit.is_valid
    return batch_consume_queue.UNIT.pack(*unit)


def extension_unit(tags_code: int, store_time_ms: int, bitmap: bytes) -> bytes:
    """A unit: 20 bytes and the bitmap."""
    size = UNIT_SIZE_BYTES_MIN + len(bitmap)
    assert size <= INT16_MAX
    return HEAD.pack(size, tags_code, store_time_ms, len(bitmap)) + bitmap


def extension_address(position: int) -> int:
    """The tags code with which a consume queue unit refers to an extension unit at this position of the extension."""
    address = position - 2**63
    assert -(2**63) <= address <= ADDRESS_MAX
    return address


def index_header(header: IndexHeader) -> bytes:
    """Return a header of 40 bytes."""
    return index_file.HEADER.pack(*header)


def index_entry(entry: IndexEntry) -> bytes:
    """Return an entry of 20 bytes."""
    return index_file.ENTRY.pack(*entry)


def record_tags_code(record: Record, delay_levels_ms: Sequence[int] = DELAY_LEVELS_MS) -> int:
    """The tags code of a record's unit: the hash of TAGS, or the delivery time of a delayed message.

    Raises BadField for a DELAY that is not a number, which makes the record invalid in RocketMQ too.
    """
    level_text = properties.get(record.properties, properties.DELAY) if record.topic == SCHEDULE_TOPIC else None
    if level_text is not None:
        level = _java_int(level_text)
        if level > 0:
            return delivery_time_ms(record.store_time_ms, level, delay_levels_ms)
    tag = properties.get(record.properties, properties.TAGS) or b""
    return consume_queue.tags_code(tag.decode("utf-8", "replace"))


def _java_int(text: bytes) -> int:
    """Return the result of Integer.parseInt. Raises BadField."""
    if not _JAVA_INT.fullmatch(text) or not -INT32_MAX - 1 <= (value := int(text)) <= INT32_MAX:
        raise BadField(position=0, reason=f"DELAY is {text[:40]!r}", field="DELAY")
    return value


def delivery_time_ms(store_time_ms: int, level: int, levels_ms: Sequence[int] = DELAY_LEVELS_MS) -> int:
    """Return the due time of a delayed message. A level above the last is the last level. `level` is positive."""
    assert level > 0
    return store_time_ms + levels_ms[min(level, len(levels_ms)) - 1]


def delayed_properties(raw: bytes, *, topic: bytes, queue_id: int, level_count: int = DELAY_LEVEL_MAX) -> bytes:
    """The properties of a message with a DELAY above 0 as the schedule topic keeps them.

    REAL_TOPIC is placed before the first property that RocketMQ's HashMap would give after it, and REAL_QID is last.
    The client's properties of these names are dropped, and a DELAY above the last level becomes the last level.
    """
    level = int(properties.get(raw, DELAY) or b"")
    assert level > 0
    last = b"%d" % level_count
    orders = (TIMER_DELIVER_MS, TIMER_DELAY_MS, TIMER_DELAY_SEC)
    pairs = [(name, value) for name, value in properties.pieces(raw) if name not in orders]
    changed = [(name, last if name == DELAY and level > level_count else value) for name, value in pairs]
    return waiting_properties(changed, {REAL_TOPIC: topic, REAL_QID: b"%d" % queue_id})


def waiting_properties(pairs: Iterable[tuple[bytes, bytes]], added: Mapping[bytes, bytes]) -> bytes:
    """The properties of a message that waits, without the client's properties for its place.

    Each of the added properties, which come in the order of RocketMQ's HashMap, is placed before the first property
    that the map would give after it.
    """
    written: list[bytes] = []
    left = dict(added)
    for name, value in pairs:
        if name in (REAL_TOPIC, REAL_QID, CRC32):
            continue
        earlier = [one for one in left if hash_map_bucket(one.decode()) < hash_map_bucket(name.decode())]
        written += [properties.encode_one(one, left.pop(one)) for one in earlier]
        written.append(properties.encode_one(name, value))
    return b"".join([*written, *(properties.encode_one(*one) for one in left.items())])
