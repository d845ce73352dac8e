# SPDX-License-Identifier: Apache-2.0
"""What is said of a name that no topic may have. The rule: libs/formats/names.py."""

from libs.formats.limits import TOPIC_SIZE_BYTES_MAX
from libs.formats.names import is_appendable_topic
from libs.requests.errors import BadTopicName

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
    if not is_appendable_topic(name):
        raise BadTopicName(
            f"a topic name has letters, digits, `_`, `-`, `%` and `|` only, not {name[:_SHOWN_SIZE_MAX]!r}",
            field=field,
            value=name[:_SHOWN_SIZE_MAX],
            limit="[%|a-zA-Z0-9_-]",
        )
