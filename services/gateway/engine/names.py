# SPDX-License-Identifier: Apache-2.0
"""Names of topics and groups: as clients have them, with a namespace beside, and as the store has them.

As RocketMQ writes them: the namespace, a percent sign, the name; what RocketMQ puts before a name stays in front.
"""

DEAD_LETTERS, RETRIES = "%DLQ%", "%RETRY%"


def stored_name(namespace: str, name: str) -> str:
    """Return what the store calls it."""
    prefix, rest = _split(name)
    return f"{prefix}{namespace}%{rest}" if namespace else name


def shown_name(namespace: str, stored: str) -> str:
    """Return what clients of the namespace call it."""
    prefix, rest = _split(stored)
    return prefix + rest.removeprefix(f"{namespace}%") if namespace else stored


def is_of_group(stored: str) -> bool:
    """Return whether a topic is a group's own: clients receive from it, and neither make it nor send to it."""
    return bool(_split(stored)[0])


def _split(name: str) -> tuple[str, str]:
    for prefix in (DEAD_LETTERS, RETRIES):
        if name.startswith(prefix):
            return prefix, name.removeprefix(prefix)
    return "", name
