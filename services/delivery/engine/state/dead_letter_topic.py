# SPDX-License-Identifier: Apache-2.0
"""The topic of a group's dead letters."""

from libs.formats.state.system_topics import DEAD_LETTER_PREFIX


def dead_letter_topic(group: str) -> str:
    """Return the topic of a group's dead letters. A letter that the group has settled was replayed, or received."""
    return DEAD_LETTER_PREFIX + group
