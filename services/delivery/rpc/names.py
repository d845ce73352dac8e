# SPDX-License-Identifier: Apache-2.0
"""Names of groups: short enough that their dead letters can have a topic."""

from libs.formats.limits import TOPIC_SIZE_BYTES_MAX
from libs.formats.state.system_topics import DEAD_LETTER_PREFIX
from libs.requests import arguments
from libs.requests.errors import BadArgument

GROUP_SIZE_MAX = TOPIC_SIZE_BYTES_MAX - len(DEAD_LETTER_PREFIX)


def group_name(name: str) -> str:
    """Return a group's name. Raises BadArgument."""
    if len(name) > GROUP_SIZE_MAX:
        reason = f"must be at most {GROUP_SIZE_MAX} bytes, so that {DEAD_LETTER_PREFIX} and it name a topic"
        raise BadArgument(reason, field="group", value=len(name), limit=GROUP_SIZE_MAX)
    return arguments.group(name)
