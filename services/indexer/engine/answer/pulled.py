# SPDX-License-Identifier: Apache-2.0
"""Pulled: how many messages and bytes pulls returned of each topic, for metrics.

Callers: the event loop's thread. Memory: two numbers for each of the first `topic_count_max` topics that are pulled.
"""


class Pulled:
    """The counts since the start of the process."""

    def __init__(self, *, topic_count_max: int) -> None:
        self._topic_count_max = topic_count_max
        self._counts: dict[str, list[int]] = {}

    def count(self, topic: str, message_count: int, size_bytes: int) -> None:
        """Count messages that a pull returns."""
        counts = self._counts.get(topic)
        if counts is None:
            if len(self._counts) >= self._topic_count_max:
                return
            counts = self._counts[topic] = [0, 0]
        counts[0] += message_count
        counts[1] += size_bytes

    def of(self, topic: str) -> tuple[int, int]:
        """Return the number of messages of a topic, and their bytes."""
        message_count, size_bytes = self._counts.get(topic, (0, 0))
        return message_count, size_bytes
