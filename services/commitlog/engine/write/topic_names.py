# SPDX-License-Identifier: Apache-2.0
"""Which names a topic may have.

The charset has neither a slash nor a dot, so a name can never be a path. RocketMQ's counterpart is TopicValidator.
"""

import re

from libs.formats.limits import TOPIC_SIZE_BYTES_MAX
from libs.requests.errors import BadTopicName

_ALLOWED = re.compile(r"[%|a-zA-Z0-9_-]+", re.ASCII)
_SHOWN_SIZE_MAX = 80


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
