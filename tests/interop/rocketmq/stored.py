# SPDX-License-Identifier: Apache-2.0
"""A message before and after it is stored, in the same shape for both stores: the JSON that the Java side speaks.

Hosts are `<address in hex>:<port>`, times milliseconds since 1970. A message is identified by its `flag`, which no
other message of the same history has. The CRC property is not shown: it belongs to the record, and only one of the
stores may write it.
"""

import zlib
from collections.abc import Sequence

import msgspec
from reput.commitlog.v1.append_service_pb2 import AppendMessage
from reput.common.v1.message_pb2 import Host, StoredMessage

CRC_PROPERTY = "__CRC32#"
SCHEDULE_TOPIC = "SCHEDULE_TOPIC_XXXX"
TRANSACTION_MASK = 0xC
PREPARED = 0x4
COMMIT = 0x8
ROLLBACK = 0xC
BORN_HOST_V6 = 0x10
STORE_HOST_V6 = 0x20

encoder = msgspec.json.Encoder()


class Sizes(msgspec.Struct, frozen=True):
    """Settings that must agree on both sides. Otherwise a store does not open."""

    segment_size_bytes: int = 128 << 10
    queue_file_size_bytes: int = 20 * 30
    index_slot_count: int = 97
    index_entry_capacity: int = 400


LARGE = Sizes(8 << 20, 20 * 5_000, 20_011, 60_000)


class Draft(msgspec.Struct, frozen=True, kw_only=True):
    """A message to write."""

    topic: str
    queue_id: int
    body: bytes
    properties: dict[str, str]
    flag: int
    sys_flag: int
    born_time_ms: int
    born_host: str
    store_host: str
    reconsume_times: int
    prepared_transaction_offset: int


class Stored(msgspec.Struct, frozen=True, kw_only=True):
    """A message as a store returns it."""

    topic: str
    queue_id: int
    queue_offset: int
    physical_offset: int
    size_bytes: int
    store_time_ms: int
    born_time_ms: int
    flag: int
    sys_flag: int
    born_host: str
    store_host: str
    reconsume_times: int
    prepared_transaction_offset: int
    message_id: str
    body_crc: int
    body: bytes
    properties: dict[str, str]

    @property
    def is_in_queue(self) -> bool:
        """Whether it has a place in its queue. Prepared and rolled back messages have none."""
        return self.sys_flag & TRANSACTION_MASK not in {PREPARED, ROLLBACK}

    @property
    def keys(self) -> list[str]:
        """The keys by which it is found."""
        found = [self.properties.get("UNIQ_KEY", ""), *self.properties.get("KEYS", "").split(" ")]
        return [key for key in dict.fromkeys(found) if key]


class Queue(msgspec.Struct, frozen=True):
    """A queue with all its messages."""

    topic: str
    queue_id: int
    min_queue_offset: int
    max_queue_offset: int
    messages: list[Stored]


def stored(draft: Draft, physical_offset: int, queue_offset: int, store_time_ms: int) -> Stored:
    """Return the draft as it must look at its place. Its size is 0, because only the readers compare sizes."""
    topic, queue_id, properties = draft.topic, draft.queue_id, draft.properties
    level = int(properties.get("DELAY", "0"))
    if level and draft.sys_flag & TRANSACTION_MASK in {0, COMMIT} and topic != SCHEDULE_TOPIC:
        properties = {**properties, "REAL_TOPIC": topic, "REAL_QID": str(queue_id)}
        topic, queue_id = SCHEDULE_TOPIC, level - 1
    flags = BORN_HOST_V6 * (_host_size(draft.born_host) == 16) | STORE_HOST_V6 * (_host_size(draft.store_host) == 16)
    address, _, port = draft.store_host.partition(":")
    return Stored(
        topic=topic,
        queue_id=queue_id,
        queue_offset=queue_offset,
        physical_offset=physical_offset,
        size_bytes=0,
        store_time_ms=store_time_ms,
        born_time_ms=draft.born_time_ms,
        flag=draft.flag,
        sys_flag=draft.sys_flag | flags,
        born_host=draft.born_host,
        store_host=draft.store_host,
        reconsume_times=draft.reconsume_times,
        prepared_transaction_offset=draft.prepared_transaction_offset,
        message_id=f"{address}{int(port):08x}{physical_offset:016x}".upper(),
        body_crc=zlib.crc32(draft.body) & 0x7FFFFFFF,
        body=draft.body,
        properties=properties,
    )


def from_reput(message: StoredMessage) -> Stored:
    """Return a message that Reput returned."""
    assert not message.raw_properties
    return Stored(
        topic=message.topic,
        queue_id=message.queue_id,
        queue_offset=message.queue_offset,
        physical_offset=message.physical_offset,
        size_bytes=message.record_size_bytes,
        store_time_ms=message.store_time_ms,
        born_time_ms=message.born_time_ms,
        flag=message.flag,
        sys_flag=message.sys_flag,
        born_host=f"{message.born_host.address.hex()}:{message.born_host.port}",
        store_host=f"{message.store_host.address.hex()}:{message.store_host.port}",
        reconsume_times=message.reconsume_times,
        prepared_transaction_offset=message.prepared_transaction_offset,
        message_id=message.offset_message_id,
        body_crc=zlib.crc32(message.body) & 0x7FFFFFFF,
        body=message.body,
        properties={name: value for name, value in message.properties.items() if name != CRC_PROPERTY},
    )


def to_reput(draft: Draft) -> AppendMessage:
    """Return the message as Reput takes it. Messages with an even `flag` have their properties as RocketMQ's string."""
    address, _, port = draft.born_host.partition(":")
    message = AppendMessage(
        topic=draft.topic,
        queue_id=draft.queue_id,
        body=draft.body,
        flag=draft.flag,
        sys_flag=draft.sys_flag,
        born_time_ms=draft.born_time_ms,
        born_host=Host(address=bytes.fromhex(address), port=int(port)),
        reconsume_times=draft.reconsume_times,
        prepared_transaction_offset=draft.prepared_transaction_offset,
    )
    if draft.flag % 2:
        message.properties.update(draft.properties)
    elif draft.properties:
        text = "\x02".join(f"{name}\x01{value}" for name, value in draft.properties.items())
        message.property_string = (text + "\x02" * (draft.flag % 4 == 0)).encode()
    return message


def without_size(messages: Sequence[Stored]) -> list[Stored]:
    """Return the messages as `stored` returns them."""
    return [msgspec.structs.replace(message, size_bytes=0) for message in messages]


def shown(message: Stored) -> Stored:
    """Return the message without its CRC property."""
    if CRC_PROPERTY not in message.properties:
        return message
    kept = {name: value for name, value in message.properties.items() if name != CRC_PROPERTY}
    return msgspec.structs.replace(message, properties=kept)


def _host_size(host: str) -> int:
    return len(host.partition(":")[0]) // 2
