# SPDX-License-Identifier: Apache-2.0
"""Names that become paths or keys of files: topics, queue ids, consumer groups. Checked before either use.

The characters of both are RocketMQ's (TopicValidator); topics have `+` besides, as the retry topics of pop consumers
(KeyBuilder.buildPopRetryTopicV2). A topic may have up to 255 bytes here, because V2 records of another store carry such
names; what may be appended is the CommitLog's business.
"""

import re

from libs.formats.limits import GROUP_SIZE_BYTES_MAX, INT32_MAX

TOPIC_SIZE_BYTES_MAX = 255
QUEUE_ID_MAX = INT32_MAX

_TOPIC = re.compile(r"[%|+a-zA-Z0-9_-]+", re.ASCII)
_GROUP = re.compile(r"[%|a-zA-Z0-9_-]+", re.ASCII)
_QUEUE_DIRECTORY = re.compile(r"0|[1-9][0-9]{0,9}", re.ASCII)


def is_topic(name: str) -> bool:
    """Whether the name is a topic's: never a path with more than one part, never `.` or `..`."""
    return len(name) <= TOPIC_SIZE_BYTES_MAX and _TOPIC.fullmatch(name) is not None


def is_group(name: str) -> bool:
    """Whether the name is a consumer group's: it has no `@`, which separates it from the topic in the file."""
    return len(name) <= GROUP_SIZE_BYTES_MAX and _GROUP.fullmatch(name) is not None


def queue_id_of(directory: str) -> int | None:
    """The queue id that a directory's name says, None if it says none."""
    if not _QUEUE_DIRECTORY.fullmatch(directory) or (queue_id := int(directory)) > QUEUE_ID_MAX:
        return None
    return queue_id
