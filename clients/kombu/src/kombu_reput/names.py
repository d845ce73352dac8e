# SPDX-License-Identifier: Apache-2.0
"""Names: the topics, groups and tags that stand for names of Kombu. No I/O.

A queue is the topic `PREFIX-QUEUE`, and its group has the same name. A character that topics do not have is `%` and the
hexadecimal digits of its bytes, so different names never meet.
"""

import hashlib

NAME_SIZE_MAX = 122
"""Characters of a group's name, which is shorter than a topic's so that its dead letters can have a topic."""
HEAD_SIZE = 70
"""Characters that stay of a name that is too long."""

_PLAIN = frozenset(b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_")


def prefix_of(virtual_host: str) -> str:
    """Return the prefix of all topics of a virtual host, `kombu` for the default host."""
    host = virtual_host.strip("/")
    return _shorten(_escape(host, _PLAIN), 40) if host else "kombu"


def topic_of(prefix: str, queue: str, level: int = 0) -> str:
    """Return the topic of a queue, or of the part of a queue with this level of priority."""
    suffix = f"%p{level}" if level else ""
    name = _escape(queue, _PLAIN | frozenset(b"-"))
    return f"{prefix}-{_shorten(name, NAME_SIZE_MAX - len(prefix) - 1 - len(suffix))}{suffix}"


def broadcast_topic(prefix: str) -> str:
    """Return the topic of all messages to queues that belong to a process."""
    return f"{prefix}%broadcast"


def bindings_topic(prefix: str) -> str:
    """Return the topic with the bindings of queues to exchanges."""
    return f"{prefix}%bindings"


def queue_tag(queue: str) -> str:
    """Return the tag of messages to a queue of a process, and the key of its record."""
    return "q" + _digest(queue)


def exchange_tag(exchange: str) -> str:
    """Return the tag of messages to an exchange, and the key of its bindings."""
    return "x" + _digest(exchange)


def _escape(name: str, plain: frozenset[int]) -> str:
    return "".join(chr(byte) if byte in plain else f"%{byte:02X}" for byte in name.encode())


def _shorten(name: str, size_max: int) -> str:
    """Return a name of at most `size_max` characters. No escape has the mark `%h`."""
    if len(name) <= size_max:
        return name
    end = f"%h{_digest(name)}"
    return name[: min(HEAD_SIZE, size_max - len(end))] + end


def _digest(name: str) -> str:
    return hashlib.sha256(name.encode()).hexdigest()[:24]
