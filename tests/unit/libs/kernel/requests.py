# SPDX-License-Identifier: Apache-2.0
"""Append requests on the wire, and the surroundings of a call of `append`."""

from dataclasses import dataclass, field
from typing import Any

from libs.formats.protobuf_wire import int_field, length_delimited
from libs.kernel.append.append_columns import AppendColumns, AppendLimits
from libs.kernel.append.topic_table import TopicTable
from tests.support.records import IPV4_BORN, IPV4_STORE, STORE_TIME_MS

SEGMENT_SIZE_BYTES = 1 << 20
LIMITS = {"body_size_bytes_max": 4096, "record_size_bytes_max": 65536, "message_count_max": 100}


def entry(name: bytes, value: bytes) -> bytes:
    """An entry of the property map as a field of the message."""
    return length_delimited(4, length_delimited(1, name) + length_delimited(2, value))


def message(topic: bytes = b"TopicTest", *parts: bytes, body: bytes = b"a body", queue_id: int | None = 1) -> bytes:
    """A serialized AppendMessage; `parts` are further fields as they stand on the wire."""
    queue = b"" if queue_id is None else b"\x10" + int_field(1, queue_id)[1:] if queue_id else b"\x10\x00"
    return length_delimited(1, topic) + queue + length_delimited(3, body) + b"".join(parts)


def request(*messages: bytes, durability: int = 0) -> bytes:
    """A serialized AppendRequest."""
    return b"".join(length_delimited(1, one) for one in messages) + int_field(2, durability)


def make_table() -> TopicTable:
    """TopicTest and Other with four queues, Closed without permission to write, and the topics where messages wait."""
    table = TopicTable()
    table.put_topic(b"TopicTest", write_queue_count=4, is_writable=True)
    table.put_topic(b"Other", write_queue_count=4, is_writable=True)
    table.put_topic(b"Closed", write_queue_count=4, is_writable=False)
    table.put_topic(b"SCHEDULE_TOPIC_XXXX", write_queue_count=18, is_writable=False)
    for name in (b"rmq_sys_wheel_timer", b"RMQ_SYS_TRANS_HALF_TOPIC"):
        table.put_topic(name, write_queue_count=1, is_writable=False, is_internal=True)
    return table


@dataclass
class Appender:
    """A table and a segment; `append` calls the kernel of a build and keeps its answer."""

    build: Any
    crc_property: bool = False
    limits: dict[str, int] = field(default_factory=lambda: dict(LIMITS))
    segment: Any = field(default_factory=lambda: bytearray(SEGMENT_SIZE_BYTES))
    base_physical_offset: int = 1 << 40
    table: TopicTable = field(default_factory=make_table)
    position: int = 0
    born_host: bytes = IPV4_BORN.to_bytes()
    store_host: bytes = IPV4_STORE.to_bytes()

    def __post_init__(self) -> None:
        self.columns = AppendColumns(128)

    def append(self, data: Any, stamp: bytes = b"") -> int:
        """The kernel's answer; the position moves on after a success."""
        limits = AppendLimits(**self.limits, crc_property=self.crc_property)
        outcome: int = self.build.append_cy.append(
            data,
            self.segment,
            self.position,
            self.base_physical_offset,
            STORE_TIME_MS,
            self.born_host,
            self.store_host,
            self.table,
            limits,
            self.columns,
            stamp,
        )
        if outcome > 0:
            self.position = outcome
        return outcome

    def placed(self) -> list[tuple[int, int, int]]:
        """(queue_id, queue_offset, physical_offset) of the messages of the last call."""
        columns, count = self.columns, self.columns.count
        return list(
            zip(columns.queue_ids[:count], columns.queue_offsets[:count], columns.physical_offsets[:count], strict=True)
        )
