# SPDX-License-Identifier: Apache-2.0
"""The rules of names that become paths and keys of files, checked before: topics, queue ids, consumer groups.

The characters are RocketMQ's (TopicValidator), without slash and dot, so that no name is a path of more parts. Stored
topics may have `+` besides, as the retry topics of pop consumers (KeyBuilder.buildPopRetryTopicV2), and up to 255
bytes, as V2 records of another store.
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
    """Return whether records may have the topic: never a path with more than one part, never `.` or `..`."""
    return len(name) <= STORED_TOPIC_SIZE_BYTES_MAX and _TOPIC.fullmatch(name) is not None


def is_appendable_topic(name: str) -> bool:
    """Return whether a topic of this name can be made and appended to. The append kernel tells the same of bytes."""
    return len(name) <= TOPIC_SIZE_BYTES_MAX and _PLAIN.fullmatch(name) is not None


def is_group(name: str) -> bool:
    """Return whether the name can be a consumer group's. It has no `@`, which stands between it and the topic."""
    return len(name) <= GROUP_SIZE_BYTES_MAX and _PLAIN.fullmatch(name) is not None


def queue_id_of(directory: str) -> int | None:
    """Return the queue id that a directory's name says, None if it says none."""
    if not _QUEUE_DIRECTORY.fullmatch(directory) or (queue_id := int(directory)) > STORED_QUEUE_ID_MAX:
        return None
    return queue_id
