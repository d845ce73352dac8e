# SPDX-License-Identifier: Apache-2.0
"""A record of the schedule topic as the AppendMessage that brings it to its real topic. Pure: bytes in, bytes out.

Everything that the producer gave is kept: body, flags, keys, tag, times, host. DELAY, REAL_TOPIC and REAL_QID go, which
RocketMQ leaves in the delivered message. Layout: protos/reput/commitlog/v1/append_service.proto.
RocketMQ's counterpart is ScheduleMessageService.messageTimeUp.
"""

from dataclasses import replace

from libs.formats import fields
from libs.formats.protobuf_wire import VARINT, int_field, length_delimited, tag, varint
from libs.formats.records import delay_level, properties
from libs.formats.records.record import Record
from services.indexer.errors import Undeliverable

DURABILITY_LOCAL_DISK = 2
QUEUE_ID_DIGIT_COUNT_MAX = 9
HALF_TOPIC = "RMQ_SYS_TRANS_HALF_TOPIC"
"""Where prepared messages wait; nothing may be brought there."""


def delivered(record: Record) -> Record:
    """Return the message as it goes to its real topic, still with its queue offset here. Raises Undeliverable."""
    topic = properties.get(record.properties, properties.REAL_TOPIC)
    queue_id = properties.get(record.properties, properties.REAL_QID)
    if topic is None or queue_id is None or len(queue_id) > QUEUE_ID_DIGIT_COUNT_MAX or not queue_id.isdigit():
        raise Undeliverable("it does not say for which topic and queue it waits", record.physical_offset)
    return replace(
        record,
        topic=topic.decode("utf-8", "replace"),
        queue_id=int(queue_id),
        properties=delay_level.delivered_properties(record.properties),
    )


def append_request(messages: list[Record], *, names_queue: bool) -> bytes:
    """Serialize an AppendRequest to be answered from the disk. Without queue ids the log chooses the queues."""
    batch = b"".join(
        length_delimited(fields.APPEND_REQUEST_MESSAGES, _append_message(message, names_queue=names_queue))
        for message in messages
    )
    return batch + int_field(fields.APPEND_REQUEST_DURABILITY, DURABILITY_LOCAL_DISK)


def _append_message(message: Record, *, names_queue: bool) -> bytes:
    host = length_delimited(fields.HOST_ADDRESS, message.born_host.address) + int_field(
        fields.HOST_PORT, message.born_host.port
    )
    return b"".join(
        (
            length_delimited(fields.APPEND_MESSAGE_TOPIC, message.topic.encode()),
            tag(fields.APPEND_MESSAGE_QUEUE_ID, VARINT) + varint(message.queue_id) if names_queue else b"",
            length_delimited(fields.APPEND_MESSAGE_BODY, message.body),
            length_delimited(fields.APPEND_MESSAGE_PROPERTY_STRING, message.properties),
            int_field(fields.APPEND_MESSAGE_FLAG, message.flag),
            int_field(fields.APPEND_MESSAGE_SYS_FLAG, message.sys_flag),
            int_field(fields.APPEND_MESSAGE_BORN_TIME_MS, message.born_time_ms),
            length_delimited(fields.APPEND_MESSAGE_BORN_HOST, host),
            int_field(fields.APPEND_MESSAGE_RECONSUME_TIMES, message.reconsume_times),
            int_field(fields.APPEND_MESSAGE_PREPARED_TRANSACTION_OFFSET, message.prepared_transaction_offset),
        )
    )
