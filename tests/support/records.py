# SPDX-License-Identifier: Apache-2.0
"""Builders: a plausible record with any field changed, a segment's bytes from several records, messages of records."""

from typing import Any

from reput.common.v1 import message_pb2

from libs.formats.records import message_id, properties, record
from libs.formats.records.host import HOST_IPV4_SIZE_BYTES, Host
from libs.formats.records.record import Record

BORN_TIME_MS = 1_700_000_000_000
STORE_TIME_MS = 1_700_000_000_123
IPV4_BORN, IPV4_STORE = Host.parse("192.168.1.10:50123"), Host.parse("10.0.0.5:10911")
IPV6_BORN, IPV6_STORE = Host.parse("[2001:db8::a]:50123"), Host.parse("[2001:db8::5]:10911")

BODY_AT_IPV4 = record.BORN_HOST_AT + 2 * HOST_IPV4_SIZE_BYTES + record.TIME.size + record.DELIVERY.size
"""The position of the body in a record with IPv4 hosts."""


def make_record(**changes: Any) -> Record:
    """Return a record of topic TopicTest with a tag and a key. `changes` are fields of Record."""
    fields: dict[str, Any] = {
        "topic": "TopicTest",
        "queue_id": 3,
        "queue_offset": 7,
        "physical_offset": 0,
        "body": b"a body of some thirty-odd ASCII bytes",
        "properties": b"TAGS\x01TagA\x02KEYS\x01order-1001\x02",
        "flag": 0,
        "sys_flag": 0,
        "born_time_ms": BORN_TIME_MS,
        "born_host": IPV4_BORN,
        "store_time_ms": STORE_TIME_MS,
        "store_host": IPV4_STORE,
    }
    return Record(**{**fields, **changes})


def encoded(base_physical_offset: int = 0, *, crc_property: bool = False, **changes: Any) -> bytes:
    """The bytes of such a record at this physical offset."""
    return record.encode(make_record(physical_offset=base_physical_offset, **changes), crc_property=crc_property)


def run_of(count: int, base_physical_offset: int = 0, *, crc_property: bool = True, **changes: Any) -> bytes:
    """`count` adjacent records from this physical offset on, with queue offsets from 0."""
    data = b""
    for index in range(count):
        position = base_physical_offset + len(data)
        data += encoded(position, crc_property=crc_property, **{"queue_offset": index, **changes})
    return data


def stored_message(data: bytes, position: int) -> message_pb2.StoredMessage:
    """The StoredMessage for the record at this position, as an answer has it."""
    one = record.decode(data, position)
    message = message_pb2.StoredMessage(
        topic=one.topic, queue_id=one.queue_id, queue_offset=one.queue_offset, physical_offset=one.physical_offset,
        body=one.body, born_time_ms=one.born_time_ms, store_time_ms=one.store_time_ms, flag=one.flag,
        sys_flag=one.sys_flag, reconsume_times=one.reconsume_times, record_size_bytes=one.size_bytes,
        prepared_transaction_offset=one.prepared_transaction_offset,
        offset_message_id=message_id.encode_offset_id(one.store_host, one.physical_offset),
        born_host=message_pb2.Host(address=one.born_host.address, port=one.born_host.port),
        store_host=message_pb2.Host(address=one.store_host.address, port=one.store_host.port),
    )  # fmt: skip
    try:
        one.properties.decode()
    except UnicodeDecodeError:
        message.raw_properties = one.properties
    else:
        shown = properties.decode(one.properties)
        shown.pop("__CRC32#", None)
        message.properties.update(shown)
    return message
