# SPDX-License-Identifier: Apache-2.0
"""Topics that belong to the store itself. RocketMQ's counterpart is TopicValidator's set of system topics."""

from libs.formats.topics_json import TopicConfig

SYSTEM_TOPIC_PREFIX = "rmq_sys_"
SCHEDULE_TOPIC = TopicConfig(name="SCHEDULE_TOPIC_XXXX", read_queue_count=18, write_queue_count=18)
"""Delayed messages, one queue for each of RocketMQ's 18 delay levels."""
SYSTEM_TOPICS = (
    TopicConfig(name="RMQ_SYS_TRANS_HALF_TOPIC", read_queue_count=1, write_queue_count=1),
    TopicConfig(name="RMQ_SYS_TRANS_OP_HALF_TOPIC", read_queue_count=1, write_queue_count=1),
    SCHEDULE_TOPIC,
)
"""What every store has, sorted by name."""

_SYSTEM_NAMES = frozenset(topic.name for topic in SYSTEM_TOPICS)


def is_system_topic(name: str) -> bool:
    """Whether the store itself needs the topic; nobody else appends to it, changes it or deletes it."""
    return name in _SYSTEM_NAMES or name.startswith(SYSTEM_TOPIC_PREFIX)
