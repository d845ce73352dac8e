# SPDX-License-Identifier: Apache-2.0
"""Rules for names that become paths and keys of files: topics, queue ids, consumer groups.

Names are checked before they are used. The characters are RocketMQ's (TopicValidator), without slash and dot, so that
no name is a path of several parts. Stored topics may also have `+`, as the retry topics of pop consumers
(KeyBuilder.buildPopRetryTopicV2), and up to 255 bytes, as V2 records of another store.
"""

import re

from libs.formats.limits import (
    GROUP_SIZE_BYTES_MAX,
    STORED_QUEUE_ID_MAX,
    STORED_TOPIC_SIZE_BYTES_MAX,
    TOPIC_SIZE_BYTES_MAX,
)

_TOPIC = re.compile(r"[%|+a-zA-Z0-9_-]+", re.ASCII)
_PLAIN = re.compile(r"[%|a-zA-Z0-9_-]+", re.ASCII)
_QUEUE_DIRECTORY = re.compile(r"0|[1-9][0-9]{0,9}", re.ASCII)


def is_topic(name: str) -> bool:
    """Return whether records may have the topic. It is never a path of several parts, and never `.` or `..`."""
    return len(name) <= STORED_TOPIC_SIZE_BYTES_MAX and _TOPIC.fullmatch(name) is not None


def is_appendable_topic(name: str) -> bool:
    """Return whether a topic of this name can be created and appended to. The append kernel has the same rule."""
    return len(name) <= TOPIC_SIZE_BYTES_MAX and _PLAIN.fullmatch(name) is not None


def is_group(name: str) -> bool:
    """Return whether the name can be a consumer group's. It has no `@`, which separates topic and group in a file."""
    return len(name) <= GROUP_SIZE_BYTES_MAX and _PLAIN.fullmatch(name) is not None


def queue_id_of(directory: str) -> int | None:
    """Return the queue id of a directory's name, None if the name is no queue id."""
    if not _QUEUE_DIRECTORY.fullmatch(directory) or (queue_id := int(directory)) > STORED_QUEUE_ID_MAX:
        return None
    return queue_id
