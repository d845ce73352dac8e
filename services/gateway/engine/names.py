# SPDX-License-Identifier: Apache-2.0
"""Names of topics and groups: the clients' form, with a separate namespace, and the store's form.

The store's form is RocketMQ's: the namespace, a percent sign, the name. RocketMQ's prefixes of names stay in front.
"""

DEAD_LETTERS, RETRIES = "%DLQ%", "%RETRY%"


def stored_name(namespace: str, name: str) -> str:
    """Return the store's name of a topic or group."""
    if not namespace:
        return name
    prefix, rest = _split(name)
    return f"{prefix}{namespace}%{rest}"


def shown_name(namespace: str, stored: str) -> str:
    """Return the name of a topic or group for clients of the namespace."""
    prefix, rest = _split(stored)
    return prefix + rest.removeprefix(f"{namespace}%") if namespace else stored


def is_of_group(stored: str) -> bool:
    """Return whether a topic belongs to a group. Clients receive from it, but neither create it nor send to it."""
    return stored.startswith((DEAD_LETTERS, RETRIES))


def _split(name: str) -> tuple[str, str]:
    for prefix in (DEAD_LETTERS, RETRIES):
        if name.startswith(prefix):
            return prefix, name.removeprefix(prefix)
    return "", name
