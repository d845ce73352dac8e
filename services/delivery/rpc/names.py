# SPDX-License-Identifier: Apache-2.0
"""Names of groups: short enough that their dead letters can have a topic, and not of the store's own groups."""

from libs.formats.limits import TOPIC_SIZE_BYTES_MAX
from libs.formats.names import is_group
from libs.formats.state.system_topics import DEAD_LETTER_PREFIX, OWN_GROUPS
from libs.requests import arguments
from libs.requests.errors import BadArgument

GROUP_SIZE_MAX = TOPIC_SIZE_BYTES_MAX - len(DEAD_LETTER_PREFIX)


def group_name(name: str) -> str:
    """Return a group's name. Raises BadArgument."""
    if len(name) > GROUP_SIZE_MAX or not is_group(name):
        reason = f"must be 1 to {GROUP_SIZE_MAX} bytes of letters, digits, _, -, % and |"
        text = f"{reason}, so that {DEAD_LETTER_PREFIX} and it name a topic"
        raise BadArgument(text, field="group", value=name[: arguments.TEXT_SHOWN], limit=GROUP_SIZE_MAX)
    if name in OWN_GROUPS:
        raise BadArgument("is a group of the store itself", field="group", value=name)
    return name
