# SPDX-License-Identifier: Apache-2.0
"""Turns a record of the schedule topic into the message for its real topic. Pure.

All values of the producer are kept: body, flags, keys, tag, times, host. DELAY, REAL_TOPIC and REAL_QID are removed;
RocketMQ leaves them in the delivered message. RocketMQ's counterpart is ScheduleMessageService.messageTimeUp.
"""

from dataclasses import replace

from libs.formats.records import delay_level, properties
from libs.formats.records.record import Record
from services.indexer.errors import Undeliverable

QUEUE_ID_DIGIT_COUNT_MAX = 9
HALF_TOPIC = "RMQ_SYS_TRANS_HALF_TOPIC"
"""Topic where half messages wait; nothing may be delivered there."""


def delivered(record: Record) -> Record:
    """Return the message for its real topic, still with the queue offset of its record. Raises Undeliverable."""
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
