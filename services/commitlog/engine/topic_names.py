# SPDX-License-Identifier: Apache-2.0
"""Which names a topic may have, and which topics belong to the store itself.

The charset has neither a slash nor a dot, so a name can never be a path. RocketMQ's counterpart is TopicValidator.
"""

import re

from libs.formats.limits import TOPIC_SIZE_BYTES_MAX
from libs.formats.topics_json import TopicConfig
from services.commitlog.errors import BadTopicName

_ALLOWED = re.compile(r"[%|a-zA-Z0-9_-]+", re.ASCII)
_SHOWN_SIZE_MAX = 80

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


def check_topic_name(name: str, field: str) -> None:
    """Raise BadTopicName that names the field."""
    if not name:
        raise BadTopicName("a topic name is missing", field=field, value="", limit=TOPIC_SIZE_BYTES_MAX)
    size = len(name.encode())
    if size > TOPIC_SIZE_BYTES_MAX:
        raise BadTopicName(
            f"a topic name of {size} bytes is too long", field=field, value=size, limit=TOPIC_SIZE_BYTES_MAX
        )
    if not _ALLOWED.fullmatch(name):
        raise BadTopicName(
            f"a topic name has letters, digits, `_`, `-`, `%` and `|` only, not {name[:_SHOWN_SIZE_MAX]!r}",
            field=field,
            value=name[:_SHOWN_SIZE_MAX],
            limit="[%|a-zA-Z0-9_-]",
        )
