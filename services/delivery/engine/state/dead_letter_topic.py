# SPDX-License-Identifier: Apache-2.0
"""Where the dead letters of a group are."""

from libs.formats.state.system_topics import DEAD_LETTER_PREFIX


def dead_letter_topic(group: str) -> str:
    """Return the topic of a group's dead letters. What the group has settled there is replayed, or was received."""
    return DEAD_LETTER_PREFIX + group
